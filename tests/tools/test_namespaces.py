#!/usr/bin/env python3
"""Ranks on hosts that are network namespaces, joined by links of a stated rate (tests/tools/network_hosts.py).

Arguments: the program, the source tree. What is asked does not depend on how busy this machine is: at 100 Mbit/s the
links decide. tests/tools/bench_namespaces.py holds measured factors against predicted ones. It needs root.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from network_hosts import NetworkHosts, why_not

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
SKIPPED = 77
MIB = 1 << 20
CALLS = 9  # of bench comm with --seconds-a-time 0: to warm up, to count, and the rounds

SCENARIO = """
model: tiny-gpt2
cluster: ./hosts.yaml
train: {global_batch: 4, micro_batch: 1, sequence: 32, precision: fp32, learning_rate: 1e-3, steps: 2}
strategy: {data_parallel: 4}
world: real
"""


CLUSTER = """
groups:
  - {name: host, nodes: 2, chip: host-core, chips_per_node: 2,
     inside: {fabric: loopback, bandwidth: 1 GB/s, latency: 10 us},
     nics: [{kind: ethernet, count: 1, bandwidth: 1 Gb/s, latency: 50 us}]}
"""


class Namespaces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        os.chdir(self.folder)

    def launched(self, hosts, *command, code=0):
        answer = hosts.launch(PROGRAM, 2, PROGRAM, *command)
        self.assertEqual(code, answer.returncode, answer.stderr)
        return answer

    def comm(self, hosts, *options):
        return json.loads(self.launched(hosts, "bench", "comm", "--json", *options).stdout)

    def calibrate(self, hosts):
        """Writes hosts.yaml, the cluster of these hosts. Messages that a busy machine disturbed are measured again."""
        for _ in range(5):
            measured = self.launched(hosts, "bench", "comm", "--json", "--operations", "message", "--bytes",
                                     "8 B,1 MiB,4 MiB").stdout
            (self.folder / "comm.json").write_text(measured)
            run = subprocess.run([PROGRAM, "calibrate", "--comm", "comm.json", "--cluster", "hosts.yaml", "--json"],
                                 check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if run.returncode == 0:
                break
        self.assertEqual(0, run.returncode, run.stderr)
        return json.loads(run.stdout)

    def test_at_a_slow_link_the_algorithm_that_knows_hosts_wins_and_sends_what_it_says(self):
        with NetworkHosts(2, "100mbit") as hosts:
            links = self.calibrate(hosts)
            # The rate, as well as a busy machine lets it be measured; inside a host it does not count.
            self.assertTrue(0.6 < links["between_hosts"]["bytes_per_s"] / 12.5e6 < 1.4, links)
            self.assertGreater(links["inside_host"]["bytes_per_s"], 2 * links["between_hosts"]["bytes_per_s"])
            told = self.comm(hosts, "--cluster", "hosts.yaml", "--operations", "all_reduce", "--paths", "shm",
                             "--bytes", "2 MiB", "--algorithms", "ring,hierarchical,automatic", "--seconds-a-time", "0")
            self.assertEqual((4, 2, 2), (told["ranks"], told["hosts"], told["ranks_per_host"]))
            ring, hierarchical, automatic = told["calls"]
            # A ring of four crosses twice in each of six rounds; two rails cross four times in each of two.
            self.assertEqual(6 * 2 * MIB / 2, ring["between_hosts_bytes"])
            self.assertEqual(2 * 4 * MIB / 2, hierarchical["between_hosts_bytes"])
            self.assertEqual("hierarchical", automatic["chosen"])
            # Three to two by bytes; other processes may take a part of that.
            self.assertGreater(ring["seconds"], 1.2 * hierarchical["seconds"])
            for call in told["calls"]:  # nothing is sent faster than the link is
                self.assertGreater(call["seconds"], call["between_hosts_bytes"] / 2 / 12.5e6)

    def test_the_kernel_counts_the_same_bytes_on_the_link(self):
        with NetworkHosts(2, "1gbit") as hosts:
            for algorithm, each in [("ring", 1.5), ("hierarchical", 1)]:
                before = hosts.sent_bytes(0)
                self.comm(hosts, "--operations", "all_reduce", "--paths", "tcp", "--bytes", "4 MiB", "--algorithms",
                          algorithm, "--seconds-a-time", "0")
                sent = (hosts.sent_bytes(0) - before) / (CALLS * each * 4 * MIB)
                self.assertTrue(1 < sent < 1.12, (algorithm, sent))  # headers and acknowledgements

    def test_memory_is_read_inside_a_host_only(self):
        with NetworkHosts(2, "-") as hosts:
            pairs = json.loads(self.launched(hosts, "doctor", "--peers", "--json").stdout)["pairs"]
        self.assertEqual(12, len(pairs))
        for pair in pairs:
            near = pair["from"] // 2 == pair["to"] // 2
            self.assertEqual("shm" if near else "tcp", pair["large"], pair)
            self.assertEqual(not near, pair["why"] == "another host", pair)

    def test_training_runs_on_the_hosts_of_its_cluster_alone(self):
        scenario = self.folder / "train.yaml"
        scenario.write_text(SCENARIO)
        with NetworkHosts(2, "1gbit") as hosts:
            (self.folder / "hosts.yaml").write_text(CLUSTER)
            over_hosts = json.loads(self.launched(hosts, "train", scenario, "--json").stdout)["loss"]
            other = self.folder / "other.yaml"
            other.write_text(SCENARIO.replace("./hosts.yaml", "host-4"))
            refused = self.launched(hosts, "train", other, code=3)
            self.assertIn("the ranks run on 2 hosts (ranks 0-1 on 10.78.0.1; ranks 2-3 on 10.78.0.2), and cluster "
                          "`host-4` has them on 1 node (ranks 0-3 on node 0 of `host`)", refused.stderr)
            anywhere = json.loads(self.launched(hosts, "train", other, "--any-hosts", "--json").stdout)["loss"]
        self.assertEqual(2, len(over_hosts))
        for one, two in zip(over_hosts, anywhere):
            self.assertLess(abs(one - two), 1e-5 * abs(one))


if __name__ == "__main__":
    if missing := why_not():
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)
    unittest.main()

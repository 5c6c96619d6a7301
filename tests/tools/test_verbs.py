#!/usr/bin/env python3
"""Messages over RDMA verbs, between ranks in guests of tools/rdma-vm: the hidden test cases of test_hw, by their tags.

Arguments: test_hw, motley, the source tree, the classes to run. CTest runs the quick ones each time, and the long ones
(label `long`) in tools/test --all. They are skipped where qemu is not installed, unless MOTLEY_TEST_ALL is set.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

TEST_HW = str(pathlib.Path(sys.argv.pop(1)).resolve())
MOTLEY = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

SKIPPED = 77


class Guests(unittest.TestCase):
    def rdma_vm(self, *arguments):
        run = subprocess.run([sys.executable, str(ROOT / "tools" / "rdma-vm"), "--timeout", "240",
                              *map(str, arguments)], capture_output=True, text=True, cwd=ROOT,
                             stdin=subprocess.DEVNULL, timeout=500, check=False)
        self.assertEqual(0, run.returncode, run.stdout + run.stderr)
        return run.stdout

    def passes(self, tag, guests, *arguments):
        """The test cases with this tag pass in all guests, which are started with these arguments."""
        output = self.rdma_vm("--guests", guests, *arguments, "--", TEST_HW, f"[verbs]{tag}")
        self.assertEqual(guests, output.count("All tests passed"), output)


class Messages(Guests):
    def test_a_communicator_uses_memory_verbs_and_tcp_at_once(self):
        self.passes("[mixed]", 3, "--no-rdma", 2)

    def test_guarded_memory_is_staged_and_outlives_a_link(self):
        self.passes("[guarded]", 2, "--rails", 2)

    def test_a_link_that_goes_down_hands_over_to_tcp(self):
        self.passes("[link]", 2, "--rails", 2)


class LongMessages(Guests):
    def test_collectives_are_right_within_one_guest_and_between_several(self):
        for guests in [1, 2, 3]:
            with self.subTest(guests=guests):
                self.passes("[collectives]", guests)

    def test_registered_memory_is_read_and_written_in_place(self):
        self.passes("[registered]", 2)

    def test_packets_that_are_lost_are_sent_again(self):
        self.passes("[loss]", 2, "--netem", "delay 2ms loss 1%")

    def test_a_wire_that_carries_nothing_any_more_hands_over_to_tcp(self):
        self.passes("[silence]", 2, "--rails", 2)

    def test_the_rail_that_is_left_carries_all(self):
        self.passes("[rails]", 2, "--rails", 2)

    def test_without_any_wire_every_rank_names_who_does_not_answer(self):
        self.passes("[cut]", 2)

    def test_a_rank_that_is_killed_is_named(self):
        script = f"""
            {TEST_HW} "[verbs][kill]"; code=$?
            [ "$RDMA_VM_RANK" = 0 ] && exit $code
            [ $code = {128 + signal.SIGKILL} ]"""
        self.assertEqual(1, self.rdma_vm("--guests", 2, "--", "sh", "-c", script).count("All tests passed"))

    def train(self, folder, strategy):
        """The losses of two steps of a tiny model, on one rank here or, with a second rank, in two guests."""
        scenario = pathlib.Path(folder) / "tiny.yaml"
        scenario.write_text(f"""
            model: tiny-gpt2
            cluster: host-2
            train: {{global_batch: 4, micro_batch: 1, sequence: 32, precision: fp32, learning_rate: 1e-3, steps: 2}}
            strategy: {strategy}
            world: real
            """)
        train = [MOTLEY, "train", str(scenario), "--json", "--out", str(scenario.with_suffix(".json"))]
        if strategy == "{}":
            subprocess.run(train, check=True, capture_output=True, cwd=ROOT)
        else:
            place = "RANK=$RDMA_VM_RANK WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=7000 MOTLEY_JOB_TOKEN=guests"
            counter = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
            output = self.rdma_vm("--guests", 2, "--rw", folder, "--", "sh", "-c",
                                  f"{place} {' '.join(train)} && echo sent $(cat {counter})")
            self.assertEqual(2, len(re.findall(r"sent [1-9]\d", output)), output)  # packets
        return json.loads(scenario.with_suffix(".json").read_text())["loss"]

    def test_training_over_verbs_gives_the_losses_of_one_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = self.train(folder, "{}")
            for strategy in ["{pipeline_parallel: 2}", "{data_parallel: 2}"]:
                losses = self.train(folder, strategy)
                self.assertEqual(2, len(losses))
                for one, two in zip(alone, losses):
                    self.assertLess(abs(one - two), 1e-5 * abs(one), strategy)


if __name__ == "__main__":
    if shutil.which("qemu-system-x86_64") is None and not os.environ.get("MOTLEY_TEST_ALL"):
        print("skipped: qemu-system-x86_64 is not here; tools/test installs it, and all that tools/rdma-vm needs")
        sys.exit(SKIPPED)
    unittest.main()

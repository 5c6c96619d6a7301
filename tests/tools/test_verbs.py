#!/usr/bin/env python3
"""Messages over RDMA verbs, between ranks in guests of tools/rdma-vm: the hidden test cases of test_hw, by their tags,
training, and a simulation in which two ranks are real.

Arguments: test_hw, motley, the source tree, the classes to run. CTest runs the quick ones each time, and the long ones
(label `long`) in tools/test --all. They are skipped where qemu is not installed, unless MOTLEY_TEST_ALL is set.
"""

import collections
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
GUEST_DIED = 125

PACKETS = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"  # that this guest has sent over verbs

# How two guests or one rank train a tiny model, and which ranks each guest has. The transfers of resharding go from a
# rank that holds the whole to two that hold halves.
STRATEGIES = {
    "tensor parallel": ("tiny-gpt2", "{tp: 2}", ["0", "1"]),
    "pipeline": ("tiny-gpt2", "{pp: 2}", ["0", "1"]),
    "data parallel": ("tiny-gpt2", "{dp: 2}", ["0", "1"]),
    "zero 2": ("tiny-gpt2", "{dp: 2, zero: 2}", ["0", "1"]),
    "zero 3": ("tiny-gpt2", "{dp: 2, zero: 3}", ["0", "1"]),
    "experts": ("tiny-mixtral", "{dp: 2, ep: 2}", ["0", "1"]),
    "context": ("tiny-gpt2", "{cp: 2}", ["0", "1"]),
    "resharding": ("tiny-gpt2", "{templates: [{micro_batches: 4, stages: [{layers: 0-1}, {layers: 2-3, tp: 2}]}]}",
                   ["0", "1 2"]),
}


def run_motley(*arguments):
    """On this host, without guests."""
    run = subprocess.run([MOTLEY, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT,
                         stdin=subprocess.DEVNULL, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def place(rank, ranks, port):
    """What a process in a guest finds in its environment: which rank it is, and where the ranks meet."""
    return f"RANK={rank} WORLD_SIZE={ranks} MASTER_ADDR=10.77.0.1 MASTER_PORT={port} MOTLEY_JOB_TOKEN=guests"


def slices(trace):
    """What ranks did: (rank, kind, name, bytes, paths); `paths` is None where nothing moved."""
    return [(event["pid"], event["cat"], event["name"], event["args"].get("bytes", 0), event["args"].get("paths"))
            for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]


class Guests(unittest.TestCase):
    def rdma_vm(self, *arguments, code=0):
        run = subprocess.run([sys.executable, str(ROOT / "tools" / "rdma-vm"), "--timeout", "400",
                              *map(str, arguments)], capture_output=True, text=True, cwd=ROOT,
                             stdin=subprocess.DEVNULL, timeout=600, check=False)
        self.assertEqual(code, run.returncode, run.stdout + run.stderr)
        return run.stdout

    def new_folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def passes(self, tag, guests, *arguments):
        """The test cases with this tag pass in all guests, which are started with these arguments."""
        output = self.rdma_vm("--guests", guests, *arguments, "--", TEST_HW, f"[verbs]{tag}")
        self.assertEqual(guests, output.count("All tests passed"), output)


class Training(Guests):
    def scenario(self, folder, name, model, strategy):
        path = folder / f"{name.replace(' ', '-')}.yaml"
        path.write_text(f"""
            model: {model}
            cluster: host-4
            train: {{global_batch: 4, micro_batch: 1, sequence: 32, precision: fp32, learning_rate: 1e-3, steps: 2}}
            strategy: {strategy}
            world: real
            """)
        return path

    def losses(self, scenario):
        return json.loads(scenario.with_suffix(".json").read_text())["loss"]

    def check_paths(self, name, trace):
        """Every transfer names its path, and all that is large goes over verbs."""
        for event in slices(trace):
            _, kind, _, size, paths = event
            if kind in ["transfer", "collective"] and size > 0:
                self.assertIsNotNone(paths, (name, event))
                is_large = kind == "transfer" or size >= 16384
                self.assertEqual(is_large, "verbs" in paths.split(), (name, event))
            elif name == "tensor parallel" and kind == "compute":  # its collectives, large and small, are inside
                self.assertIn("verbs", (paths or "").split(), (name, event))

    def trains(self, *names):
        """Two guests have the losses of one rank, and do what is simulated, with these strategies."""
        folder = self.new_folder()
        scripts, scenarios = ["", ""], {}
        for port, name in enumerate(names, 7000):
            model, strategy, guests = STRATEGIES[name]
            path = scenarios[name] = self.scenario(folder, name, model, strategy)
            ranks = len(" ".join(guests).split())
            for guest, own in enumerate(guests):
                scripts[guest] += f"before=$(cat {PACKETS}); started=\n"
                for rank in own.split():
                    scripts[guest] += (f"env {place(rank, ranks, port)} {MOTLEY} train {path} --any-hosts --json "
                                       f"--out {path.with_suffix('.json')} --trace {path.with_suffix('.trace')} & "
                                       "started=\"$started $!\"\n")
                scripts[guest] += (f"for each in $started; do wait $each || exit; done\n"
                                   f"[ $(cat {PACKETS}) -gt $before ] || {{ echo no packets; exit 1; }}\n")
        for guest, script in enumerate(scripts):
            (folder / f"guest-{guest}.sh").write_text(script)
        self.rdma_vm("--guests", 2, "--rw", folder, "--", "sh", "-c", f"exec sh {folder}/guest-$RDMA_VM_RANK.sh")
        for name, path in scenarios.items():
            with self.subTest(name):
                alone = self.scenario(folder, "alone", STRATEGIES[name][0], "{}")
                run_motley("train", alone, "--json", "--out", alone.with_suffix(".json"))
                self.assertEqual(2, len(self.losses(path)))
                for one, several in zip(self.losses(alone), self.losses(path)):
                    self.assertLess(abs(one - several), 1e-5 * abs(one))
                simulated, real = folder / "simulated.json", path.with_suffix(".trace")
                self.check_paths(name, real)
                run_motley("simulate", path, "--no-fold", "--no-changes", "--trace", simulated)
                self.assertIn("structure: equal, ", run_motley("compare", simulated, real))


class Messages(Training):
    def test_a_communicator_uses_memory_verbs_and_tcp_at_once(self):
        self.passes("[mixed]", 3, "--no-rdma", 2)

    def test_guarded_memory_is_staged_and_outlives_a_link(self):
        self.passes("[guarded]", 2, "--rails", 2)

    def test_a_link_that_goes_down_hands_over_to_tcp(self):
        self.passes("[link]", 2, "--rails", 2)

    def test_training_that_divides_everything_is_training_on_one_rank(self):
        self.trains("zero 3")


class LongMessages(Training):
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

    def test_training_by_eight_strategies_is_training_on_one_rank(self):
        self.trains(*STRATEGIES)


class Mixed(Guests):
    """scenarios/mixed-rdma.yaml: real ranks in two guests; the process in guest 0 simulates the 62 others, too."""

    SCENARIO = "scenarios/mixed-rdma.yaml"
    GONE = r"real rank 1 \(process \d+ at 10\.77\.0\.2\) is gone \(.+\), at stage "

    def setUp(self):
        self.folder = self.new_folder()
        self.simulate = f"env {place('$RDMA_VM_RANK', 2, 7000)} {MOTLEY} simulate {self.SCENARIO}"

    def both(self, script, *options, code=0):
        """What two guests print that run this script."""
        return self.rdma_vm("--guests", 2, "--rw", self.folder, *options, "--", "sh", "-c", script, code=code)

    def interrupted(self, what):
        """A run that would take minutes. Guest 1 does `what` to its process `$rank` when the first bytes have come."""
        return f"""
            before=$(cat {PACKETS})
            cd {self.folder}; exec 3>out.$RDMA_VM_RANK 4>errors.$RDMA_VM_RANK; cd {ROOT}
            {self.simulate} --repeats 100 >&3 2>&4 & rank=$!
            if [ $RDMA_VM_RANK = 1 ]; then
                while kill -0 $rank && [ $(cat {PACKETS}) = $before ]; do sleep 0.1; done
                {what}
            fi
            wait $rank; echo ended with $?"""

    def check_rank_1_is_named(self, output):
        self.assertIn("[0] ended with 1\n", output)
        self.assertRegex((self.folder / "errors.0").read_text(), self.GONE)
        self.assertEqual("", (self.folder / "out.0").read_text())


class MixedRuns(Mixed):
    def test_two_of_sixty_four_ranks_are_real_and_talk_over_verbs(self):
        tape, report, again = (self.folder / name for name in ["tape.json", "report.json", "again.json"])
        output = self.both(f"{self.simulate} --json --record {tape} --out {report} || exit\n" +
                           self.interrupted("kill -KILL $rank"))

        real = json.loads(report.read_text())["real"]
        self.assertEqual(([0, 1], 16, "verbs"), (real["ranks"], real["moved"], real["moved_by"]))
        moved = collections.Counter((rank, name.rsplit(" ", 1)[0], size, paths)
                                    for rank, _, name, size, paths in slices(tape) if paths)
        self.assertEqual({(rank, f"{way} {1 - rank}", 16384, "verbs"): 8
                          for rank in range(2) for way in ["send to", "recv from"]}, moved)

        replayed = run_motley("simulate", self.SCENARIO, "--world", "replay", "--tape", tape, "--json", "--trace",
                              again)
        self.assertEqual(report.read_text(), replayed)
        self.assertEqual(tape.read_bytes(), again.read_bytes())

        self.assertIn(f"[1] ended with {128 + signal.SIGKILL}\n", output)
        self.check_rank_1_is_named(output)


class LongMixedRuns(Mixed):
    def test_a_rank_whose_guest_is_killed_is_named(self):
        # Its emulator ends at once: nobody says goodbye, and no connection is closed.
        output = self.both(self.interrupted("echo b > /proc/sysrq-trigger; sleep 60"), "--grace", 90,
                           code=GUEST_DIED)
        self.check_rank_1_is_named(output)


if __name__ == "__main__":
    if shutil.which("qemu-system-x86_64") is None and not os.environ.get("MOTLEY_TEST_ALL"):
        print("skipped: qemu-system-x86_64 is not here; tools/test installs it, and all that tools/rdma-vm needs")
        sys.exit(SKIPPED)
    unittest.main()

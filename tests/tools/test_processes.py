#!/usr/bin/env python3
"""Commands that start processes: without standard input, and under SIGINT, SIGTERM and SIGKILL. Their exit codes are
those of README.md, and nothing is left.

Arguments: the program, the source tree.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
TRAIN = ["train", "scenarios/quickstart-train.yaml"]
MIXED = ["simulate", "scenarios/quickstart-train.yaml", "--world", "mixed", "--real-rank", "0,1"]
LARGE = "scenarios/h2-four-types-1024.yaml"

# Each starts processes and ends soon.
SHORT = [
    [*TRAIN, "--steps", "2"],
    ["launch", "-n", "2", "--", PROGRAM, *TRAIN, "--steps", "2"],
    ["compare", "scenarios/quickstart-train.yaml", "--steps", "2"],
    ["bench", "comm", "-n", "2", "--operations", "all_reduce", "--bytes", "1 KiB", "--seconds-a-time", "0.002"],
    ["doctor", "--peers", "-n", "2"],
    MIXED,
    ["launch", "-n", "2", "--", PROGRAM, *MIXED],
    ["simulate", "scenarios/quickstart.yaml"],
    ["sweep", "scenarios/quickstart.yaml", "--set", "train.micro_batch=1,2"],
    ["report", "scenarios/quickstart.yaml", "--out", "{folder}/page.html"],
    ["explain", "scenarios/quickstart.yaml"],
]
# Each takes longer than a moment.
LONG = {
    "simulate": ["simulate", *[LARGE] * 100, "--json"],
    "mixed": [*MIXED, "--repeats", "1000"],
    "sweep": ["sweep", LARGE, "--set", "train.global_batch=512..131072:+512"],
    "plan": ["plan", LARGE],
    "train": [*TRAIN, "--steps", "1000000"],
    "launch": ["launch", "-n", "2", "--", PROGRAM, *TRAIN, "--steps", "1000000"],
    "compare": ["compare", "scenarios/quickstart-train.yaml", "--steps", "1000000"],
    "calibrate": ["calibrate", "--out", "{folder}/chip.yaml", "--seconds", "600"],
    "rehearse": ["rehearse", "scenarios/quickstart-train.yaml", "--steps", "1000"],
    "validate": ["validate"],
    "bench": ["bench", "comm", "-n", "2", "--seconds-a-time", "60"],
    "report": ["report", LARGE, "--out", "{folder}/page.html"],
    "explain": ["explain", LARGE],
}
MOMENT_S = 0.4
CODES = {signal.SIGINT: {130}, signal.SIGTERM: {143, -signal.SIGTERM}, signal.SIGKILL: {-signal.SIGKILL}}


def descendants(process):
    try:
        children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [each for child in children for each in [int(child), *descendants(child)]]


def is_alive(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@unittest.skipIf("MOTLEY_SANITIZED" in os.environ, "starts the program some hundred times")
class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def start(self, words, **options):
        words = [word.replace("{folder}", self.folder) for word in words]
        return subprocess.Popen([PROGRAM, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                **options)

    def assert_end(self, processes):
        until = time.monotonic() + 20
        while left := [each for each in processes if is_alive(each)]:
            self.assertLess(time.monotonic(), until, f"{left} are left")
            time.sleep(0.01)

    def test_commands_work_without_standard_input(self):
        for words in SHORT:
            with self.subTest(words=words):
                run = self.start(words, preexec_fn=lambda: os.close(0))
                output, errors = run.communicate(timeout=300)
                self.assertEqual(0, run.returncode, errors)
                self.assertNotEqual("" if "--out" not in words else "x", output)

    def test_signals_end_every_command_with_the_documented_code_and_all_its_processes(self):
        for name, words in LONG.items():
            for sent, codes in CODES.items():
                with self.subTest(command=name, signal=sent.name):
                    run = self.start(words, stdin=subprocess.DEVNULL)
                    self.addCleanup(run.kill)
                    time.sleep(MOMENT_S)
                    if run.poll() is not None:
                        self.fail(f"it ended too soon for this test: {run.communicate()}")
                    processes = descendants(run.pid)
                    run.send_signal(sent)
                    _, errors = run.communicate(timeout=120)
                    self.assertIn(run.returncode, codes, errors)
                    self.assert_end(processes)

    def test_interrupts_while_kernels_compute_overwrite_nothing(self):
        for name in ["rehearse", "train"]:
            for tenth in range(5):
                with self.subTest(command=name, tenth=tenth):
                    run = self.start(LONG[name], stdin=subprocess.DEVNULL)
                    self.addCleanup(run.kill)
                    time.sleep(MOMENT_S + tenth / 10)
                    run.send_signal(signal.SIGINT)
                    _, errors = run.communicate(timeout=120)
                    self.assertEqual(130, run.returncode, errors)

    def test_nothing_that_ranks_have_started_outlives_a_launcher_that_is_killed(self):
        script = "sleep 600 & echo $!; sh -c 'echo $$; sleep 600; true' & wait"
        run = self.start(["launch", "-n", "2", "--", "sh", "-c", script], stdin=subprocess.DEVNULL)
        self.addCleanup(run.kill)
        processes = [int(run.stdout.readline()) for _ in range(4)]
        ranks = descendants(run.pid)
        run.kill()
        run.communicate(timeout=60)
        self.assert_end([*processes, *ranks])

    def test_a_launcher_that_is_killed_while_it_looks_leaves_nothing(self):
        run = self.start(["launch", "-n", "2", "--", PROGRAM, *TRAIN], stdin=subprocess.DEVNULL)
        self.addCleanup(run.kill)
        until = time.monotonic() + 60
        while not (processes := descendants(run.pid)) and time.monotonic() < until:
            pass
        run.kill()
        run.communicate(timeout=60)
        self.assert_end(processes)


if __name__ == "__main__":
    unittest.main()

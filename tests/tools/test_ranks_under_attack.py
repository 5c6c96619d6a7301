#!/usr/bin/env python3
"""Ranks that are killed or stopped at random: every run ends in time, names the rank that it was done to, and leaves
nothing behind.

Arguments: the program, the source tree. MOTLEY_ATTACKS=KILLS,STOPS says how many of each (few by default), and
MOTLEY_SEED which; a failure prints the seed of its run. Nothing here checks what the ranks compute.
"""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

KILLS, STOPS = (int(count) for count in os.environ.get("MOTLEY_ATTACKS", "6,3").split(","))
SEED = int(os.environ.get("MOTLEY_SEED", "1"))
LIMIT_S = 2  # of silence
END_S = 10  # beyond it, within which all have ended
LAST_POINT_S = 2.5  # after the start; a run trains after half a second or so
TRAIN = ["train", "scenarios/quickstart-train.yaml", "--steps", "1000000", "--silence-limit", str(LIMIT_S)]
MIXED = ["simulate", "scenarios/quickstart-train.yaml", "--world", "mixed", "--real-rank", "0,1", "--repeats", "1000",
         "--silence-limit", str(LIMIT_S)]  # for longer than any test waits
FORKED = "mixed"  # its ranks are children of the process that simulates, which says what ended one and exits with 1
KINDS = {  # how ranks are started, and how many there are
    "train": (TRAIN, 2),
    "launch": (["launch", "-n", "2", "--", PROGRAM, *TRAIN], 2),
    "launch of 4": (["launch", "-n", "4", "--", PROGRAM, *TRAIN, "--set", "train.global_batch=16", "--set",
                     "cluster=host-4", "--set", "strategy.data_parallel=2"], 4),
    FORKED: (MIXED, 2),
    "launch of mixed": (["launch", "-n", "2", "--", PROGRAM, *MIXED], 2),
}


def children(process):
    listed = pathlib.Path(f"/proc/{process}/task/{process}/children")
    try:
        return [int(child) for child in listed.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def state(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def variable(process, name):
    try:
        words = pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    values = [word.split(b"=", 1)[1].decode() for word in words if word.startswith(name.encode() + b"=")]
    return values[0] if values else None


class Attacks(unittest.TestCase):
    def started(self, kind):
        """A run, and its ranks once all have started."""
        words, count = KINDS[kind]
        run = subprocess.Popen([PROGRAM, *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        self.addCleanup(run.kill)
        ranks = {}
        until = time.monotonic() + 60
        while len(ranks) < count and time.monotonic() < until and run.poll() is None:
            for number, child in enumerate(children(run.pid)):
                if kind == FORKED:  # in the order of the ranks
                    ranks[number] = child
                elif (rank := variable(child, "MOTLEY_RANK")) is not None:
                    ranks[int(rank)] = child
        self.assertEqual(count, len(ranks), "the ranks did not start")
        return run, ranks

    def attack(self, number, sent):
        rng = random.Random(f"{SEED} {sent} {number}")
        kind = rng.choice(sorted(KINDS))
        run, ranks = self.started(kind)
        victim = rng.choice(sorted(ranks))
        point_s = rng.random() * LAST_POINT_S
        told = f"MOTLEY_SEED={SEED}, {sent.name} {number}: rank {victim} of `{kind}` after {point_s:.3f} s"
        time.sleep(point_s)
        begin = time.monotonic()
        os.kill(ranks[victim], sent)
        try:
            _, errors = run.communicate(timeout=LIMIT_S + END_S)
        except subprocess.TimeoutExpired:
            states = {rank: state(process) for rank, process in ranks.items()}
            run.kill()
            self.fail(f"{told}: it has not ended after {LIMIT_S + END_S} s: {states}, {run.communicate()}")
        lines = [line for line in errors.splitlines() if "error:" in line]
        self.assertTrue(lines, told)
        # Of the last line, the rank that is named first is the one to which it was done.
        self.assertEqual(str(victim), re.search(r"rank (\d+) \(process", lines[-1])[1], f"{told}: {errors}")
        # Each rank that says who has failed names the same, perhaps behind its own name: "rank 0: rank 1 is gone".
        for line in lines[:-1]:
            blamed = re.search(r"error: ((real )?rank \d+: )?(the process of )?(real )?rank (?P<rank>\d+)[ ,]", line)
            if blamed is None or blamed["rank"] != str(victim):
                self.wrong.append(f"{told}: {errors}")
        killed = sent == signal.SIGKILL and kind != FORKED
        self.assertEqual(128 + signal.SIGKILL if killed else 1, run.returncode, f"{told}: {errors}")
        until = time.monotonic() + 2
        while any(state(process) not in ("", "Z") for process in ranks.values()):
            self.assertLess(time.monotonic(), until, f"{told}: a rank is left")
        return time.monotonic() - begin

    def campaign(self, count, sent):
        self.wrong = []
        times = [self.attack(number, sent) for number in range(count)]
        print(f"{count} x {sent.name}: the longest took {max(times):.1f} s, "
              f"{len(self.wrong)} runs have a line of a rank that names another one", file=sys.stderr)
        self.assertFalse(self.wrong, "\n".join(self.wrong))

    def test_a_rank_that_is_killed_is_named_and_all_end(self):
        self.campaign(KILLS, signal.SIGKILL)

    def test_a_rank_that_is_stopped_is_named_and_all_end(self):
        self.campaign(STOPS, signal.SIGSTOP)


if __name__ == "__main__":
    unittest.main()

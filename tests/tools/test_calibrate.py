#!/usr/bin/env python3
"""motley calibrate and motley rehearse as a person types them: what was measured survives kills and full disks, samples
of unlike origins are refused, and a scenario keeps its hash from simulate through rehearse to train.

No test depends on how fast this machine is: accuracy is measured by tools/bench rehearse.
Arguments: the program, the source tree.
"""

import csv
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
SCENARIO = ROOT / "scenarios" / "quickstart-train.yaml"
KILLS = 3 if os.environ.get("MOTLEY_SANITIZED") else 10
SLOWER = 6 if os.environ.get("MOTLEY_SANITIZED") else 1


def probes_of(path):
    """The names of the probes in a table, each with its number of rows; a line without its end is left out."""
    text = path.read_text() if path.exists() else ""
    rows = list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))
    wanted = {row["probe"]: int(row["rows"]) for row in rows}
    there = {}
    for row in rows:
        there[row["probe"]] = there.get(row["probe"], 0) + 1
    return {name: count for name, count in there.items() if count == wanted[name]}, there


class Calibrate(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def motley(self, *arguments, code=0, **options):
        run = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder,
                             timeout=600, **options)
        self.assertEqual(code, run.returncode, run.stdout + run.stderr)
        return run

    def calibrate(self, *arguments, ranks=1, **options):
        return self.motley("calibrate", "--keep-disturbed", "--ranks", ranks, *arguments, **options)

    def test_kills_lose_no_finished_probe_and_count_none_twice(self):
        table = self.folder / "samples.csv"
        dice = random.Random(7)
        kept = {}
        for _ in range(KILLS):
            run = subprocess.Popen(
                [PROGRAM, "calibrate", "--keep-disturbed", "--ranks", "2", "--seconds", "60", "--samples", str(table)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder)
            size = table.stat().st_size if table.exists() else 0
            for _ in range(6000):  # until a probe was added, and then a little more
                if table.exists() and table.stat().st_size > size + 1000:
                    break
                time.sleep(0.01)
            time.sleep(0.4 * dice.random())
            run.send_signal(signal.SIGKILL)
            run.wait()
            complete, there = probes_of(table)
            for name, rows in kept.items():
                self.assertEqual(rows, complete.get(name), "a finished probe was lost, or counted twice")
            self.assertLessEqual(len(set(there) - set(complete)), 1)
            kept = complete
        answer = json.loads(self.calibrate("--seconds", 0.01, "--samples", table, "--json", ranks=2).stdout)
        self.assertEqual(len(kept), answer["probes_kept"])
        self.assertGreater(len(kept), 0)

    def test_full_disk_keeps_what_was_finished(self):
        table = self.folder / "samples.csv"

        def little_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

        run = self.calibrate("--seconds", 60, "--samples", table, code=1, preexec_fn=little_room)
        self.assertIn("samples.csv", run.stderr)
        self.assertIn("what was measured before is kept", run.stderr)
        complete, there = probes_of(table)
        self.assertEqual(complete, there, "a probe that did not fit was left behind")
        self.assertGreater(len(complete), 0)
        answer = json.loads(self.calibrate("--seconds", 0.01, "--samples", table, "--json").stdout)
        self.assertEqual(len(complete), answer["probes_kept"])

    def test_a_calibration_is_a_chip_that_scenarios_name(self):
        self.calibrate("--seconds", 3 * SLOWER, "--out", "core.yaml")
        self.assertTrue((self.folder / "core.csv").exists())
        scenario = self.folder / "own.yaml"
        scenario.write_text("model: tiny-gpt2\ncluster:\n  groups:\n    - {name: host, nodes: 1, chip: ./core.yaml, "
                            "chips_per_node: 2, inside: {fabric: loopback, bandwidth: 4 GB/s, latency: 10 us}}\n"
                            "train: {global_batch: 8, micro_batch: 2, sequence: 128, precision: fp32}\n"
                            "strategy: {pipeline_parallel: 2}\n")
        plain = json.loads(self.motley("simulate", SCENARIO, "--world", "sim", "--json").stdout)
        answer = json.loads(self.motley("simulate", scenario, "--json").stdout)
        self.assertEqual(plain["strategy_hash"], answer["strategy_hash"])
        self.assertNotEqual(plain["iteration_s"], answer["iteration_s"])
        # --strict says no if and only if a part of the prediction lies outside what was measured.
        rests_on = answer["coverage"]
        outside = rests_on["extrapolated"] + rests_on["assumed"] > 0
        for command in ("simulate", "explain"):
            run = self.motley(command, scenario, "--no-changes", "--strict", code=4 if outside else 0)
            self.assertEqual(outside, "outside what was measured" in run.stderr)
        # Samples of other kernels or another number of ranks are not added to the same table.
        for ranks, kernels in ((1, "reference"), (2, "fast")):
            run = self.calibrate("--seconds", 1, "--samples", "core.csv", "--kernels", kernels, ranks=ranks, code=2)
            self.assertIn("name another file", run.stderr)
        with self.subTest("other-library"):
            run = self.motley("rehearse", SCENARIO, "--chip", "core.yaml", "--kernels", "reference", code=2)
            self.assertIn("was calibrated with `fast kernels", run.stderr)

    def test_one_hash_through_simulate_rehearse_and_train(self):
        rehearsed = json.loads(self.motley("rehearse", SCENARIO, "--seconds", 1, "--steps", 2, "--rounds", 2,
                                           "--keep-disturbed", "--out", "core.yaml", "--json").stdout)
        simulated = json.loads(self.motley("simulate", SCENARIO, "--world", "sim", "--json").stdout)
        trained = json.loads(self.motley("train", SCENARIO, "--steps", 2, "--json").stdout)
        for other in (simulated, trained):
            self.assertEqual(rehearsed["strategy_hash"], other["strategy_hash"])
        self.assertEqual(trained["program_hash"], rehearsed["program_hash"])
        self.assertEqual(2, len(trained["step_s"]))
        self.assertEqual(4, len(rehearsed["steps_s"]))
        self.assertAlmostEqual(simulated["iteration_s"], rehearsed["uncalibrated_s"], places=12)
        self.assertAlmostEqual(1, sum(rehearsed["coverage"].values()), places=9)
        self.assertGreater(rehearsed["coverage"]["measured"], 0.5)  # its own kernels were measured first
        # A strict rehearsal says no if and only if a kernel lies outside what was measured.
        large = self.folder / "large.yaml"
        large.write_text(SCENARIO.read_text().replace("micro_batch: 2", "micro_batch: 8"))
        missing = json.loads(self.motley("calibrate", large, "--chip", "core.yaml", "--missing", "--json").stdout)
        outside = {"extrapolated", "assumed"} & {shape["known"] for shape in missing["scenarios"][0]["missing"]}
        run = self.motley("rehearse", large, "--chip", "core.yaml", "--strict", "--steps", 1, "--rounds", 1,
                          "--keep-disturbed", code=4 if outside else 0)
        self.assertEqual(bool(outside), "outside what was measured" in run.stderr)
        low, high = rehearsed["interval_s"]
        self.assertLess(low, rehearsed["predicted_s"])
        self.assertLess(rehearsed["predicted_s"], high)
        with self.subTest("not-within"):
            run = self.motley("rehearse", SCENARIO, "--chip", "core.yaml", "--steps", 1, "--rounds", 1,
                              "--keep-disturbed", "--within", 1e-9, code=4)
            self.assertIn("more than 1e-09 %", run.stderr)
        run = self.motley("rehearse", SCENARIO, "--chip", "host-core", code=2)
        self.assertIn("has no measured kernels", run.stderr)

    def test_transfers_are_timed_among_the_ranks_of_a_launcher(self):
        few = ("--seconds", 0.5)
        measured = json.loads(self.motley("calibrate", "--transfers", "two.csv", *few, "--json").stdout)["transfers"]
        kinds = {"send latency", "all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
        self.assertEqual({(kind, beside) for kind in kinds for beside in (False, True)},
                         {(each["transfer"], each["beside_compute"]) for each in measured})
        for each in measured:
            self.assertEqual(2, each["ranks"])
            self.assertGreater(each["sizes"], 5)
        # The table says what was printed when it was measured.
        read = json.loads(self.motley("calibrate", "--from", "two.csv", "--source", "here", "--json").stdout)
        self.assertEqual(measured, read["transfers"])
        self.motley("launch", "-n", 3, "--", PROGRAM, "calibrate", "--transfers", "three.csv", *few)
        with open(self.folder / "three.csv") as file:
            ranks = {(row["transfer"], row["ranks"]) for row in csv.DictReader(file)}
        self.assertEqual({(kind, "2" if kind == "send latency" else "3") for kind in kinds}, ranks)
        with self.subTest("bad-rank-count"):
            run = self.motley("launch", "-n", 1, "--", PROGRAM, "calibrate", "--transfers", "one.csv", code=2)
            self.assertIn("one rank has nobody to exchange bytes with", run.stderr)
        # The cluster of these ranks has the chip that was measured before, and the links of now.
        self.calibrate("--seconds", 2 * SLOWER, "--out", "core.yaml")
        self.motley("calibrate", "--transfers", "two.csv", *few, "--chip", "core.yaml", "--cluster", "pair.yaml")
        scenario = self.folder / "pair-job.yaml"
        scenario.write_text("model: tiny-gpt2\ncluster: ./pair.yaml\ntrain: {global_batch: 4, micro_batch: 2, "
                            "sequence: 64, precision: fp32}\nstrategy: {data_parallel: 2}\n")
        answer = json.loads(self.motley("simulate", scenario, "--json").stdout)
        self.assertGreater(answer["coverage"]["interpolated"] + answer["coverage"]["measured"], 0.3)
        # Real ranks of such a cluster may measure what they move.
        mixed = self.motley("simulate", scenario, "--world", "mixed", "--real-rank", "0,1", "--transfers", "measured",
                            "--json")
        self.assertEqual("measured", json.loads(mixed.stdout)["real"]["moved_timed"])

    def test_a_neighbour_on_one_core_is_reported_or_refused(self):
        core = min(os.sched_getaffinity(0))
        neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                     preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        try:
            run = subprocess.run([PROGRAM, "calibrate", "--seconds", str(2 * SLOWER), "--out", "core.yaml", "--json"],
                                 capture_output=True, text=True, cwd=self.folder, timeout=600)
        finally:
            neighbour.kill()
            neighbour.wait()
        if run.returncode == 0:
            answer = json.loads(run.stdout)
            self.assertGreater(answer["disturbed"], 0)
            self.assertGreater(answer["probes"], 0, "a calibration that measured nothing was not refused")
            self.assertTrue((self.folder / "core.yaml").exists())
        else:
            self.assertEqual(4, run.returncode, run.stderr)
            self.assertIn("this machine does not keep still", run.stderr)
            self.assertFalse((self.folder / "core.yaml").exists())

    def test_never_still_among_busy_neighbours(self):
        self.calibrate("--seconds", 1, "--out", "core.yaml", ranks=2)
        neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                      for _ in range(2 * os.cpu_count())]
        try:
            rehearse = ("rehearse", SCENARIO, "--chip", "core.yaml", "--steps", 1, "--rounds", 1)
            with self.subTest("never-still"):
                run = self.motley(*rehearse, code=4)
                self.assertIn("this machine does not keep still: 3 of 3 runs were disturbed", run.stderr)
            answer = json.loads(self.motley(*rehearse, "--keep-disturbed", "--json").stdout)
            self.assertEqual(1, answer["runs_disturbed"])
        finally:
            for each in neighbours:
                each.kill()
                each.wait()


unittest.main()

#!/usr/bin/env python3
"""motley sweep: its rows are those of motley simulate, whatever was killed, whoever did which part.

Arguments: the program, the source tree. A launcher that is not installed is skipped; tools/test --all installs them.
"""

import csv
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

from refusal_pages import expected_refusal, message_of

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, FAILED, USAGE, INFEASIBLE, INTERRUPTED = 0, 1, 2, 3, 130
AXES = ["--set", "strategy.tp=2,3,8", "--set", "train.micro_batch=1,2", "--set", "strategy.dp=2,8"]
ROWS = 12
SCENARIO = "quickstart"


def motley(*words, **variables):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=ROOT,
                          stdin=subprocess.DEVNULL, timeout=300, env=os.environ | variables, check=False)


def need(*programs):
    missing = [program for program in programs if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin") is None]
    return unittest.skipIf(missing, f"{', '.join(missing)} is not here; tools/test --all installs it")


class Sweep(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def sweep(self, *words, code=OK, **variables):
        answer = motley("sweep", *words, **variables)
        self.assertEqual(code, answer.returncode, answer.stderr)
        return answer

    def whole(self):
        return self.sweep(SCENARIO, *AXES, "--json").stdout

    def test_rows_are_those_of_simulate(self):
        table = json.loads(self.whole())
        self.assertEqual(ROWS, len(table["rows"]))
        keys = [axis["key"] for axis in table["axes"]]
        simulated = refused = 0
        for row in table["rows"]:
            settings = [word for key, value in zip(keys, row["values"]) for word in ("--set", f"{key}={value}")]
            alone = motley("simulate", SCENARIO, *settings, "--no-changes", "--json")
            if "figures" not in row:
                refused += 1
                self.assertNotEqual(OK, alone.returncode)
                self.assertIn(row["refused"]["message"].split("\n")[0], alone.stderr)
                continue
            simulated += 1
            report = json.loads(alone.stdout)
            figures = row["figures"]
            self.assertEqual(report["iteration_s"], figures["step_s"])
            self.assertEqual(report["tokens_per_s"], figures["tokens_per_s"])
            self.assertEqual(report["mfu"], figures["mfu"])
            self.assertEqual(report["strategy_hash"], figures["strategy_hash"])
            self.assertEqual([report["interval"]["low_s"], report["interval"]["high_s"]], figures["likely_s"])
        self.assertGreater(simulated, 3)
        self.assertGreater(refused, 3)

    def test_speeds_that_vary_give_the_mean_step(self):
        table = json.loads(self.sweep(SCENARIO, "--set", "variation=usual", "--set", "train.micro_batch=1,2",
                                      "--json").stdout)
        for row in table["rows"]:
            alone = motley("simulate", SCENARIO, "--set", "variation=usual", "--set",
                           f"train.micro_batch={row['values'][1]}", "--no-changes", "--json")
            self.assertEqual(json.loads(alone.stdout)["iteration_s"], row["figures"]["step_s"])

    def test_measured_kernels_give_their_own_interval(self):
        kernels = "{source: a, busy: 2, matmul: {flops: 50 GFLOP/s}, optimizer: {bandwidth: 1 GB/s}}"
        settings = ["--set", f"cluster.groups.0.chip.kernels={kernels}"]
        table = json.loads(self.sweep("quickstart-train", *settings, "--set", "train.sequence=64,128", "--json").stdout)
        for row, sequence in zip(table["rows"], (64, 128), strict=True):
            alone = motley("simulate", "quickstart-train", *settings, "--set", f"train.sequence={sequence}",
                           "--no-changes", "--json")
            interval = json.loads(alone.stdout)["interval"]
            self.assertEqual("measured", interval["regime"])
            self.assertEqual([interval["low_s"], interval["high_s"]], row["figures"]["likely_s"])

    def test_several_scenarios_are_simulated_as_each_alone(self):
        names = ["quickstart", "mixed-fleet", "gpt3-175b-1024"]
        several = json.loads(motley("simulate", *names, "--json").stdout)
        self.assertEqual("motley.simulations/1", several["schema"])
        for name, report in zip(names, several["results"], strict=True):
            alone = json.loads(motley("simulate", name, "--json").stdout)
            for each in (alone, report):
                each.pop("simulation_bytes", None)
            self.assertEqual(alone, report)
        text = motley("simulate", *names, "--no-changes").stdout
        self.assertRegex(text, r"\n  scenario +chips +step ")

    def test_a_plan_with_settings_is_written_with_them(self):
        planned = self.folder / "planned.yaml"
        settings = ["--set", "cluster.groups.0.nodes=2", "--set", "train.global_batch=64", "--set", "strategy.dp=2"]
        plan = json.loads(motley("plan", SCENARIO, *settings, "--evaluations", "6", "--out", planned, "--json").stdout)
        step = json.loads(motley("simulate", planned, "--no-changes", "--json").stdout)
        self.assertEqual(plan["simulated_s"], step["iteration_s"])
        self.assertEqual(plan["strategy_hash"], step["strategy_hash"])

    def test_real_ranks_train_with_the_settings(self):
        settings = ["--set", "train.global_batch=4", "--set", "train.micro_batch=1"]
        self.assertEqual(OK, motley("compare", "quickstart-train", *settings).returncode)

    def test_table_csv_and_json_have_the_same_rows(self):
        table = json.loads(self.whole())
        rows = list(csv.DictReader(io.StringIO(self.sweep(SCENARIO, *AXES, "--csv").stdout)))
        self.assertEqual([row["values"] for row in table["rows"]],
                         [[row["strategy.tp"], row["train.micro_batch"], row["strategy.dp"]] for row in rows])
        self.assertEqual([row.get("figures", {}).get("step_s") for row in table["rows"]],
                         [float(row["step_s"]) if row["step_s"] else None for row in rows])
        text = self.sweep(SCENARIO, *AXES).stdout
        refused = sum("refused" in row for row in table["rows"])
        self.assertIn(f"{ROWS - refused} simulated, {refused} refused; fastest: ", text)

    def test_the_same_bytes_with_any_number_of_processes(self):
        self.assertEqual(self.whole(), self.sweep(SCENARIO, *AXES, "--json", "--processes", "1").stdout)
        self.assertEqual(self.whole(), self.sweep(SCENARIO, *AXES, "--json", "--processes", "7").stdout)

    def test_a_killed_sweep_goes_on_without_a_row_lost_or_doubled(self):
        rows = self.folder / "rows"
        for end, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, INTERRUPTED)):
            run = subprocess.Popen([PROGRAM, "sweep", SCENARIO, *AXES, "--rows", rows, "--processes", "1"], cwd=ROOT,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
            before = rows.read_text().count("\n") if rows.exists() else 0
            while run.poll() is None and (not rows.exists() or rows.read_text().count("\n") < max(before, 1) + 2):
                time.sleep(0.001)
            run.send_signal(end)
            run.communicate(timeout=300)
            self.assertIn(run.returncode, (code, OK))  # OK: it was faster
        rows.write_text(rows.read_text() + '{"row": 11, "figu')  # killed while it wrote a row
        self.assertEqual(self.whole(), self.sweep(SCENARIO, *AXES, "--rows", rows, "--json").stdout)
        lines = [json.loads(line) for line in rows.read_text().splitlines()]
        self.assertEqual(list(range(ROWS)), sorted(line["row"] for line in lines[1:]))
        # Nothing is left to do: no row is written again.
        before = rows.read_bytes()
        self.assertEqual(self.whole(), self.sweep(SCENARIO, *AXES, "--rows", rows, "--json").stdout)
        self.assertEqual(before, rows.read_bytes())

    def test_rows_of_another_sweep_are_refused(self):
        # The refusal "other-sweep", whichever part of the sweep differs.
        scenario = self.folder / "own.yaml"
        scenario.write_text((ROOT / "scenarios/quickstart.yaml").read_text())
        rows = self.folder / "rows"
        axis = ["--set", "strategy.tp=2,4"]
        self.sweep(scenario, *axis, "--rows", rows)
        self.sweep(scenario, *axis, "--rows", rows)
        answer = self.sweep(scenario, "--set", "strategy.tp=2,8", "--rows", rows, code=USAGE)
        self.assertIn("it has rows of a sweep over other values", answer.stderr)
        scenario.write_text(scenario.read_text() + "\nsoftware: none\n")
        answer = self.sweep(scenario, *axis, "--rows", rows, code=USAGE)
        self.assertIn("which has changed since", answer.stderr)
        other = self.folder / "other"
        other.write_text("a line\n")
        self.assertIn("other:1:1: this is no row of a sweep", self.sweep(scenario, *axis, "--rows", other,
                                                                         code=USAGE).stderr)
        self.assertEqual("a line\n", other.read_text())

    def test_one_sweep_writes_a_file_at_a_time(self):
        rows = self.folder / "rows"
        with open(rows, "w", encoding="utf-8") as held:
            import fcntl
            fcntl.flock(held, fcntl.LOCK_EX)
            answer = self.sweep(SCENARIO, *AXES, "--rows", rows, code=USAGE)
        self.assertEqual(expected_refusal("unwritable-file: rows that another sweep is writing"),
                         message_of(answer).replace(f"{self.folder}/", ""))

    def test_a_simulation_that_needs_more_than_its_part_of_the_memory_is_a_refused_row(self):
        answer = self.sweep(SCENARIO, "--set", "strategy.tp=2,4", "--memory", "1MB", "--processes", "1", "--json")
        refused = json.loads(answer.stdout)["rows"][0]["refused"]
        self.assertEqual("too-little-memory", refused["kind"])
        self.assertEqual(expected_refusal("too-little-memory: a row of a sweep"), refused["message"] + "\nexit 3\n")

    def test_parts_give_the_whole_table(self):
        rows = self.folder / "rows"
        for part in range(3):
            self.sweep(SCENARIO, *AXES, "--rows", rows, "--shard", f"{part}/3")
        files = [f"{rows}.{part}-of-3" for part in (2, 0, 1)]
        self.assertEqual(self.whole(), self.sweep("--merge", *files, "--json").stdout)
        answer = self.sweep("--merge", *files[:2], "--json")
        self.assertEqual(4, json.loads(answer.stdout)["missing"])

    def assert_parts_are_whole(self, rows, parts):
        files = [f"{rows}.{part}-of-{parts}" for part in range(parts)]
        self.assertEqual(self.whole(), self.sweep("--merge", *files, "--json").stdout)

    @need("mpirun")
    def test_open_mpi_gives_each_rank_a_part(self):
        rows = self.folder / "rows"
        answer = subprocess.run(["mpirun", "-n", "3", "--oversubscribe", PROGRAM, "sweep", SCENARIO, *AXES, "--rows",
                                 rows, "--shard", "auto"], cwd=ROOT, capture_output=True, text=True, check=False,
                                stdin=subprocess.DEVNULL, timeout=300,
                                env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        self.assertEqual(OK, answer.returncode, answer.stderr)
        self.assert_parts_are_whole(rows, 3)

    @need("srun", "slurmctld", "munged")
    @unittest.skipIf(os.geteuid() != 0, "only root may do this")
    def test_slurm_gives_each_task_a_part(self):
        rows = self.folder / "rows"
        command = [ROOT / "tests/tools/slurm-one-node", "srun", "-n", "2", PROGRAM, "sweep", SCENARIO, *AXES, "--rows",
                   rows, "--shard", "auto"]
        # On a busy machine the step daemon of Slurm 22.05 hangs after its tasks have ended, so there is a second try.
        for _ in range(3):
            run = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.PIPE, start_new_session=True)
            try:
                errors = run.communicate(timeout=25)[1]
                self.assertEqual(OK, run.returncode, errors)
                break
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGTERM)
                time.sleep(2)
                os.killpg(run.pid, signal.SIGKILL)
                run.wait(timeout=60)
        self.assert_parts_are_whole(rows, 2)

    def test_an_array_of_slurm_jobs_gives_each_job_a_part(self):
        rows = self.folder / "rows"
        for task in (4, 5):
            self.sweep(SCENARIO, *AXES, "--rows", rows, "--shard", "auto", SLURM_ARRAY_TASK_ID=str(task),
                       SLURM_ARRAY_TASK_MIN="4", SLURM_ARRAY_TASK_COUNT="2")
        self.assert_parts_are_whole(rows, 2)

    def test_a_part_that_nobody_names_is_refused(self):
        self.assertIn("no launcher says", self.sweep(SCENARIO, *AXES, "--shard", "auto", code=USAGE).stderr)

    def test_a_plot_is_a_picture_with_every_step(self):
        for name, points in (("plot.svg", "circle"), ("plot.html", "circle")):
            path = self.folder / name
            table = json.loads(self.sweep("mixed-fleet", "--set", "cluster.groups.*.nics.*.bandwidth=100..800Gb/s:x2",
                                          "--plot", path, "--json").stdout)
            self.assertEqual(4, len(table["rows"]))
            text = path.read_text()
            self.assertEqual(4, text.count("<title>cluster.groups"))
            root = xml.etree.ElementTree.fromstring(text[text.index("<svg"):text.index("</svg>") + 6])
            self.assertTrue(any(each.tag.endswith(points) for each in root.iter()))

    def test_a_front_marks_rows_that_none_beats(self):
        table = json.loads(self.sweep(SCENARIO, *AXES, "--front", "time,memory", "--json").stdout)
        front = [row["figures"] for row in table["rows"] if row["front"]]
        fastest = min(row["figures"]["step_s"] for row in table["rows"] if "figures" in row)
        self.assertIn(fastest, [figures["step_s"] for figures in front])
        least = min(row["figures"]["memory_bytes"] for row in table["rows"] if "figures" in row)
        self.assertIn(least, [figures["memory_bytes"] for figures in front])

    def test_a_nic_that_is_faster_is_never_slower(self):
        table = json.loads(self.sweep("mixed-fleet", "--set", "cluster.groups.*.nics.*.bandwidth=25..1600Gb/s:x2",
                                      "--json").stdout)
        steps = [row["figures"]["step_s"] for row in table["rows"]]
        self.assertEqual(steps, sorted(steps, reverse=True))


if __name__ == "__main__":
    unittest.main(verbosity=2)

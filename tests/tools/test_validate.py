#!/usr/bin/env python3
"""`motley validate`: published runs, collectives and claims, beside what is predicted of them.

Arguments: the program, the source tree. Whether the errors are small enough is tested here for a few sets alone:
`motley validate` itself takes minutes.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

# A sanitized build takes five times as long; what these tests run, others run with fewer or smaller jobs.
unless_sanitized = unittest.skipIf("MOTLEY_SANITIZED" in os.environ, "takes minutes with sanitizers")

OK, USAGE, MISMATCH = 0, 2, 4


def motley(*arguments, text=""):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT,
                          input=text, timeout=500)


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def right(self, *arguments, text=""):
        answer = motley(*arguments, text=text)
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr), arguments)
        self.assertNotIn("\x1b", answer.stdout)
        return answer.stdout


class OwnRuns(Commands):
    def columns(self):
        """The example of --columns: the names and one run."""
        lines = self.right("validate", "--columns").splitlines()
        return [line.strip() for line in lines if line.startswith("  id,") or line.startswith("  mine-1,")]

    def table(self, *changes):
        names, values = (line.split(",") for line in self.columns())
        run = dict(zip(names, values, strict=True)) | dict(changes)
        path = self.folder / "mine.csv"
        path.write_text(",".join(run) + "\n" + ",".join(run.values()) + "\n")
        return path

    def test_one_run_of_ones_own_is_predicted(self):
        report = json.loads(self.right("validate", self.table(), "--json"))
        self.assertEqual(1, len(report["rows"]))
        self.assertEqual(6.9, report["rows"][0]["measured_s"])
        same = json.loads(self.right("validate", self.table(("metric", "iteration_time")), "--json"))
        self.assertEqual(report["rows"][0]["predicted_s"], same["rows"][0]["predicted_s"])

    def test_a_table_of_which_nothing_is_used_is_no_success(self):
        answer = motley("validate", self.table(("model_name", "nobody-knows")))
        self.assertEqual(MISMATCH, answer.returncode)
        self.assertIn("none of the 1 runs could be used", answer.stderr)
        self.assertIn("rows passed over:", answer.stdout)

    def test_a_scenario_says_what_was_measured(self):
        plain = json.loads(self.right("simulate", "quickstart", "--no-changes", "--json"))
        held = json.loads(self.right("simulate", "quickstart", "--set", "measured=7 s", "--no-changes", "--json"))
        self.assertAlmostEqual(100 * (plain["iteration_s"] / 7 - 1), held["error_pct"])
        self.assertNotIn("measured_s", plain)
        text = self.right("simulate", "quickstart", "--set", "measured=7 s", "--no-changes")
        self.assertRegex(text, r"measured +7.00 s: the prediction is 2.\d % too fast, and the run inside")
        text = self.right("simulate", "quickstart", "--set", "measured=70 s", "--no-changes")
        self.assertIn("too fast, and the run outside what is likely", text)


class Validate(Commands):
    SETS = ["seqsel", "sc21", "zb"]

    @unless_sanitized
    def test_published_runs_are_predicted_within_a_twentieth(self):
        report = json.loads(self.right("validate", *self.SETS, "--no-memory", "--json"))
        self.assertEqual("motley.validate/1", report["schema"])
        self.assertEqual(self.SETS, sorted((s["set"] for s in report["summary"]), key=self.SETS.index))
        for each in report["summary"]:
            self.assertEqual(each["rows"], sum(row["set"] == each["set"] for row in report["rows"]))
            self.assertLess(each["mean_abs_pct"], 5, each["set"])
            self.assertLessEqual(each["median_abs_pct"], each["worst_abs_pct"])
            self.assertEqual([], each["skipped"])

    @unless_sanitized
    def test_plans_of_published_jobs_are_no_slower_than_what_was_published(self):
        report = json.loads(self.right("validate", "--plans", "zb", "seqsel", "--no-memory", "--evaluations", 25,
                                       "--json"))
        self.assertEqual("motley.validate-plans/1", report["schema"])
        self.assertLess(3, report["summary"]["jobs"])
        summary = report["summary"]
        self.assertEqual(summary["jobs"], summary["no_slower"] + summary["no_slower_not_fitting"])
        self.assertEqual(summary["not_fitting"], sum(job["short_gib"] > 0 for job in report["jobs"]))
        for job in report["jobs"]:
            self.assertLessEqual(job["bound_s"], job["planned_s"])

    @unless_sanitized
    def test_searches_that_end_once_their_plan_is_no_slower_say_so(self):
        command = ["validate", "--plans", "--until-no-slower", "zb", "--no-memory", "--evaluations", 60]
        report = json.loads(self.right(*command, "--json"))
        early = sum(job["ended_early"] for job in report["jobs"])
        self.assertLess(0, early)
        self.assertEqual(report["summary"]["jobs"],
                         report["summary"]["no_slower"] + report["summary"]["no_slower_not_fitting"])
        self.assertIn(f"{early} searches ended once their plan was no slower", self.right(*command))

    @unless_sanitized
    def test_a_published_size_of_buckets_is_found_again(self):
        table = (pathlib.Path(ROOT) / "tests/validation/published_runs.csv").read_text().splitlines()
        path = self.folder / "one.csv"
        path.write_text("\n".join([table[0], *(row for row in table if row.startswith("mlperf-0210,"))]) + "\n")
        report = json.loads(self.right("validate", "--plans", path, "--until-no-slower", "--no-memory", "--json"))
        self.assertEqual([True], [job["ratio"] <= 1 for job in report["jobs"]])

    def test_what_only_plans_have_is_refused_without_them(self):
        run = motley("validate", "zb", "--until-no-slower")
        self.assertEqual(2, run.returncode)
        self.assertIn("--until-no-slower requires --plans", run.stderr)

    @unless_sanitized
    def test_jobs_on_chips_without_nics_or_with_measured_layers_have_plans(self):
        report = json.loads(self.right("validate", "--plans", "sailorhet", "ascend", "--evaluations", 2, "--json"))
        self.assertEqual([], [job["refused"] for job in report["jobs"] if "refused" in job])
        self.assertEqual(17, len(report["jobs"]))

    def test_the_same_twice_and_without_memory(self):
        first, again = (self.right("validate", "zb", "--rows") for _ in range(2))
        self.assertEqual(first, again)
        quick = self.right("validate", "zb", "--rows", "--no-memory")
        self.assertEqual(first.split("set ")[0], quick.split("set ")[0])
        self.assertRegex(first, r"[\d.]+ of 12 +\d+\n")  # runs whose measured peaks were printed
        self.assertNotRegex(quick, r"[\d.]+ of 12 +\d+\n")

    @unless_sanitized
    def test_of_measured_layouts_the_planner_would_choose_a_fast_one(self):
        report = json.loads(self.right("validate", "--choices", "zb", "ievo", "--no-memory", "--json"))
        self.assertEqual("motley.validate-choices/1", report["schema"])
        summary = report["summary"]
        self.assertEqual(8, summary["jobs"])
        self.assertLess(summary["mean_regret_pct"], 2)
        self.assertGreater(summary["chance_regret_pct"], 5)
        self.assertGreaterEqual(summary["fastest_in_three_pct"], 90)
        for job in report["jobs"]:
            self.assertGreaterEqual(len(job["layouts"]), 4)
            best = min(layout["measured_s"] for layout in job["layouts"])
            self.assertAlmostEqual(best, job["layouts"][job["place_of_fastest"] - 1]["measured_s"])
            self.assertAlmostEqual(100 * (job["layouts"][0]["measured_s"] / best - 1), job["regret_pct"])
        for other in (["--claims"], ["--collectives"], ["--show", "zb-0001"]):
            self.assertEqual(USAGE, motley("validate", "--choices", *other).returncode)

    def test_steps_that_were_not_timed_are_no_choices(self):
        table = self.folder / "composed.csv"
        rows = "".join(f"{{0}}-{i},A100,8,8,GPT,1024,4096,24,16,16,51200,1024,32,{i},1,1,,8,1,1F1B,full,"
                       f"iteration_time,{i}\n" for i in (1, 2, 4))
        rows += "{0}-8,A100,8,8,GPT,1024,4096,24,16,16,51200,1024,32,1,2,1,,4,1,1F1B,full,iteration_time,9\n"
        head = ("id,accelerator,n_accelerators,per_node,model_name,hidden,ffn_hidden,layers,heads,kv_heads,vocab,"
                "seq_len,global_batch,micro_batch,tp,pp,vpp,dp,cp,schedule,recompute,metric,value\n")
        table.write_text(head + rows.format("vts"))
        self.assertIn("no job of these runs has 4 or more layouts", self.right("validate", "--choices", table))
        table.write_text(head + rows.format("vtm"))
        self.assertIn("jobs: 1, mean regret", self.right("validate", "--choices", table))

    def test_a_table_of_ones_own_with_a_run_that_says_too_little(self):
        table = self.folder / "mine.csv"
        table.write_text("id,accelerator,n_accelerators,model_name,hidden,layers,heads,metric,value\n"
                         "mine-1,A100,8,GPT,1024,24,16,iteration_time,1\n")
        answer = motley("validate", table)
        self.assertEqual(MISMATCH, answer.returncode)  # nothing of it was used
        text = answer.stdout
        self.assertIn("1  `seq_len` is not printed", text)

    def test_collectives_that_others_timed(self):
        report = json.loads(self.right("validate", "--collectives", "--json"))
        self.assertEqual("motley.validate-collectives/1", report["schema"])
        self.assertGreater(len(report["rows"]), 250)
        above = [each for each in report["sizes"] if each["source"] == "mean of sources" and each["size"] == "above"]
        self.assertTrue(above[0]["within"])
        outside = [each for each in report["forms"] if not each["within"]]
        self.assertLess(len(outside), len(report["forms"]) / 4)
        for each in outside:
            self.assertLess(abs(each["bias_pct"]), 12, each)

    def test_a_collective_of_ones_own(self):
        table = self.folder / "mine.csv"
        table.write_text("id,collective,cluster,nodes,chips,bytes,seconds,bus_rate,algorithm,form,calls,source\n"
                         "mine-1,all_gather,dgx-h100-pod,4,32,1GB,,380,ring,,queued,mine\n")
        self.assertEqual(USAGE, motley("validate", "--collectives", table).returncode)
        table.write_text(table.read_text().replace("1GB", "1000000000"))
        text = self.right("validate", "--collectives", table, "--rows")
        self.assertRegex(text, r"mine-1 +all_gather +ring +32")

    def test_claims_are_printed_with_their_errors_and_what_is_missing(self):
        report = json.loads(self.right("validate", "--claims", "--json"))
        self.assertEqual("motley.validate-claims/1", report["schema"])
        claims = {each["claim"]: each for each in report["claims"]}
        self.assertLessEqual({"O-4", "O-5", "O-6"}, set(claims))
        for row in claims["O-4"]["rows"]:
            if row["calibrated"]:
                # A NIC cannot reach more than its line, so one is not met to the last digit.
                self.assertLess(abs(row["error_pct"]), 1, row)
            else:
                self.assertTrue(row["missing"])
        self.assertTrue(claims["O-5"]["rows"][0]["holds"])
        self.assertEqual(USAGE, motley("validate", "--claims", "sc21").returncode)

    def test_what_is_made_of_a_run_can_be_seen(self):
        text = self.right("validate", "sc21", "--show", "sc21-0001")
        self.assertIn("layers: 24", text)
        self.assertIn("unfused_attention", text)
        # It is a scenario, whose step is the prediction.
        rows = self.right("validate", "sc21", "--rows")
        predicted = float(re.search(r"sc21-0001 .*?\d +[\d.]+ +([\d.]+) ", rows).group(1))
        step = json.loads(self.right("simulate", "-", "--json", text=text))["iteration_s"]
        self.assertAlmostEqual(predicted, step, delta=1e-3 * predicted)


if __name__ == "__main__":
    unittest.main()

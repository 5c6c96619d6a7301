#!/usr/bin/env python3
"""motley plan on the scenarios that ship: what it prints and writes, limits, interrupts, and policies side by side.

Arguments: the program, the source tree. tests/sim checks whether plans are the best, and bounds are bounds.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from refusal_pages import expected_refusal, message_of

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
QUICKSTART = "scenarios/quickstart.yaml"

# A sanitized build takes five times as long; what these tests run, others run with fewer or smaller jobs.
unless_sanitized = unittest.skipIf("MOTLEY_SANITIZED" in os.environ, "takes minutes with sanitizers")

OK, FAILED, USAGE, INFEASIBLE, MISMATCH, MISSING = range(6)


def motley(*arguments, cwd=ROOT, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=cwd,
                          stdin=subprocess.DEVNULL, timeout=500, **options)


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def right(self, *arguments, **options):
        answer = motley(*arguments, **options)
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr), arguments)
        self.assertNotIn("\x1b", answer.stdout)
        return answer.stdout

    def right_json(self, *arguments, **options):
        return json.loads(self.right(*arguments, "--json", **options))


class Plans(Commands):
    def test_a_planned_scenario_runs_as_the_plan_says(self):
        planned = self.folder / "planned.yaml"
        large = [] if "MOTLEY_SANITIZED" in os.environ else ["scenarios/plan-four-types-1024.yaml"]
        for scenario in [QUICKSTART, *large]:
            with self.subTest(scenario):
                plan = self.right_json("plan", scenario, "--evaluations", 9, "--out", planned)
                self.assertEqual("motley.plan/1", plan["schema"])
                report = self.right_json("simulate", planned)
                self.assertEqual(plan["strategy_hash"], report["strategy_hash"])
                self.assertEqual(plan["simulated_s"], report["iteration_s"])
                self.assertTrue(self.right("show", "strategy", planned).startswith(plan["strategy"]))
                self.assertLessEqual(plan["bound_s"], plan["simulated_s"])
                self.assertAlmostEqual(1 - plan["bound_s"] / plan["simulated_s"], plan["gap"])
                self.right("check", planned)

    def test_what_the_strategy_replaces_is_all_that_changes(self):
        planned = self.folder / "planned.yaml"
        text = (ROOT / QUICKSTART).read_text()
        self.right("plan", QUICKSTART, "--evaluations", 1, "--out", planned)
        before, _ = re.split(r"^strategy:", text, flags=re.MULTILINE)
        self.assertTrue(planned.read_text().startswith(before + "strategy:\n"))

    def test_a_plan_is_the_same_twice(self):
        def plan(*options):
            answer = self.right_json("plan", QUICKSTART, "--evaluations", 20, *options)
            self.assertGreater(answer.pop("search_s"), 0)
            return answer

        self.assertEqual(plan(), plan())
        self.assertEqual(plan()["strategy"], plan("--objective", "time")["strategy"])

    @unless_sanitized
    def test_groups_alone_are_what_a_plan_is_measured_by(self):
        plan = self.right_json("plan", "scenarios/mixed-fleet.yaml", "--evaluations", 8, "--baselines")
        self.assertEqual(["a100", "h100", "mi300x"], sorted(each["group"] for each in plan["baselines"]))
        together = sum(1 / each["simulated_s"] for each in plan["baselines"])
        self.assertAlmostEqual(1 / plan["simulated_s"] / together, plan["speedup_ratio"])
        self.assertAlmostEqual(100 * plan["speedup_ratio"], plan["upper_bound_pct"])
        alone = self.right_json("plan", QUICKSTART, "--evaluations", 1)
        self.assertEqual((None, None, []), (alone["upper_bound_pct"], alone["speedup_ratio"], alone["baselines"]))

    @unless_sanitized
    def test_policies_side_by_side_are_each_what_they_are_alone(self):
        scenario = "scenarios/quickstart.yaml"
        limits = [scenario, "--evaluations", 4]
        told = self.right_json("plan", *limits, "--policy", "all")
        self.assertEqual(("motley.policies/1", "quickstart", []), (told["schema"], told["scenario"], told["ablate"]))
        self.assertGreater(told["search_s"], 0)
        plans = {each["policy"]: each for each in told["plans"]}
        self.assertLess({"holmes", "hethub", "heteroauto", "megatron", "optimal"}, set(plans))
        fastest = min(each["simulated_s"] for each in plans.values() if each["simulated_s"])
        for policy, each in plans.items():
            with self.subTest(policy):
                self.assertNotIn("search_s", each)  # the same bytes twice
                if each["refused_because"]:
                    self.assertEqual((None, None), (each["simulated_s"], each["ratio_to_best"]))
                    continue
                self.assertAlmostEqual(each["simulated_s"] / fastest, each["ratio_to_best"])
        alone = self.right_json("plan", *limits, "--policy", "megatron")
        for key in ["strategy", "strategy_hash", "simulated_s", "bound_s"]:
            self.assertEqual(alone[key], plans["megatron"][key])
        text = self.right("plan", *limits, "--policy", "all")
        for policy in plans:
            self.assertRegex(text, f"(?m)^  {policy} +[0-9]")

    def test_policies_and_limits_may_stand_in_the_scenario(self):
        scenario = self.folder / "asks.yaml"
        text = (ROOT / QUICKSTART).read_text()
        scenario.write_text(re.sub(r"^strategy:.*?(?=^\S|\Z)", "plan: {policy: megatron, evaluations: 3}\n", text,
                                   flags=re.MULTILINE | re.DOTALL))
        plan = self.right_json("plan", scenario)
        self.assertEqual(("megatron", 3, "evaluations", None),
                         (plan["policy"], plan["simulated"], plan["ended"], plan["own_s"]))
        self.assertEqual("optimal", self.right_json("plan", scenario, "--policy", "optimal")["policy"])

    @unless_sanitized
    def test_an_interrupted_plan_says_what_it_has(self):
        run = subprocess.Popen([PROGRAM, "plan", "scenarios/plan-four-types-1024.yaml", "--json"], cwd=ROOT,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        children = pathlib.Path(f"/proc/{run.pid}/task/{run.pid}/children")
        while not children.read_text().split():  # simulations have begun
            self.assertIsNone(run.poll())
        run.send_signal(signal.SIGINT)
        answer, _ = run.communicate(timeout=300)
        self.assertEqual(130, run.returncode)
        plan = json.loads(answer)
        self.assertEqual("time", plan["ended"])
        self.assertLess(0, plan["bound_s"])
        self.assertLessEqual(plan["bound_s"], plan["simulated_s"])

    def test_a_plan_beside_other_files_is_not_written(self):
        here, there = self.folder / "here", self.folder / "there"
        cluster = "groups:\n  - {name: a, nodes: NODES, chips_per_node: 2, chip: host-core, " \
                  "inside: {fabric: loopback, bandwidth: 1 GB/s}, " \
                  "nics: [{kind: ethernet, count: 1, bandwidth: 1 GB/s}]}\n"
        for folder, nodes in [(here, "1"), (there, "2")]:
            folder.mkdir()
            (folder / "own.yaml").write_text(cluster.replace("NODES", nodes))
        (here / "scenario.yaml").write_text("model: tiny-gpt2\ncluster: own.yaml\nplan: {evaluations: 1}\n"
                                            "train: {global_batch: 4, sequence: 16, precision: fp32}\n")
        self.right("plan", here / "scenario.yaml", "--out", here / "planned.yaml")
        told = message_of(motley("plan", here / "scenario.yaml", "--out", there / "planned.yaml"))
        self.assertEqual(expected_refusal("other-folder: another cluster of that name"), told.replace(f"{there}/", ""))
        self.assertFalse((there / "planned.yaml").exists())

if __name__ == "__main__":
    # Ranks of one process hand over to each other all the time: see tests/support/catch_main.cpp.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    unittest.main()

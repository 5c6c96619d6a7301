#!/usr/bin/env python3
"""How good plans are after how long: `motley plan` with limits of time, beside the strategy that the same job ships
with, simulated by the same program in the same run.

Arguments: the program, the source tree; --smoke plans one small scenario, with a limit of evaluations.
"""

import json
import pathlib
import subprocess
import sys

# What is planned, the scenario that has a strategy for the same job, the limits of seconds, and who runs the plan.
CASES = [
    ("plan-four-types-1024", "h2-four-types-1024", (1, 10), None),
    ("plan-four-types-1024", "h2-four-types-1024", (1,), "flagscale"),
    ("mixed-fleet", "mixed-fleet", (1, 10), None),
    ("hethub-768", "hethub-768", (1, 10), None),
    ("plan-four-types-100k", "mixed-100k", (20, 60), None),
]
SMOKE = [("quickstart", "quickstart", (None,), None)]
# The same model kinds on 100 times as many chips: whole searches, each with one simulation.
SEARCHED = ["plan-four-types-1024", "plan-four-types-100k"]


def run(*arguments):
    answer = subprocess.run([str(each) for each in arguments], capture_output=True, text=True)
    if answer.returncode != 0:
        sys.exit(answer.stderr)
    return json.loads(answer.stdout)


def of_form(plan):
    """The bound of 1F1B with equal replicas, and the plan's gap to it; dashes where there was no time for one."""
    bound_s = plan["form_bound_s"]
    return f"{bound_s:10.2f}{1 - bound_s / plan['simulated_s']:8.1%}" if bound_s else f"{'-':>10}{'-':>8}"


def main():
    program, root = (pathlib.Path(each).resolve() for each in sys.argv[1:3])
    smoke = "--smoke" in sys.argv
    print(f"{'scenario':24}{'target':>11}"
          f"{'limit':>8}{'plan, s':>10}{'shipped':>10}{'ratio':>8}{'bound, s':>10}{'gap':>8}"
          f"{'1f1b, s':>10}{'gap':>8}{'simulated':>11}{'took, s':>9}")
    for planned, shipped, limits, target in SMOKE if smoke else CASES:
        own = root / "scenarios" / f"{shipped}.yaml"
        own_s = run(program, "simulate", own, "--no-changes", "--json")["iteration_s"]
        for limit in limits:
            limited = ["--evaluations", 20] if limit is None else ["--time-limit", f"{limit}s"]
            limited += ["--target", target] if target else []
            plan = run(program, "plan", root / "scenarios" / f"{planned}.yaml", "--json", *limited)
            assert plan["bound_s"] <= plan["simulated_s"], "a plan that is faster than its bound"
            print(f"{planned:24}{target or '-':>11}"
                  f"{'-' if limit is None else f'{limit} s':>8}{plan['simulated_s']:10.2f}{own_s:10.2f}"
                  f"{plan['simulated_s'] / own_s:8.2f}{plan['bound_s']:10.2f}{plan['gap']:8.1%}"
                  f"{of_form(plan)}{plan['simulated']:11d}"
                  f"{plan['search_s']:9.2f}", flush=True)
    if smoke:
        return
    took = [run(program, "plan", root / "scenarios" / f"{each}.yaml", "--evaluations", 1, "--json")["search_s"]
            for each in SEARCHED]
    print(f"searched whole, and simulated once: {took[0]:.2f} s and {took[1]:.2f} s, {took[1] / took[0]:.1f} times")


main()

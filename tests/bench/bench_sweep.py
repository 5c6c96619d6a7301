#!/usr/bin/env python3
"""How many scenarios a second a sweep simulates, beside the time of one alone in the same run: 1,000 scenarios of 1,024
chips, on all processors.

Arguments: the program, the source tree; --smoke sweeps twelve scenarios.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

SCENARIO = "h2-four-types-1024"
AXIS = "cluster.groups.0.nics.0.bandwidth"


def seconds(*arguments):
    begin = time.perf_counter()
    answer = subprocess.run([str(each) for each in arguments], capture_output=True, text=True, check=False)
    took = time.perf_counter() - begin
    if answer.returncode != 0:
        sys.exit(answer.stderr)
    return took, answer.stdout


def main():
    program, root = (pathlib.Path(each).resolve() for each in sys.argv[1:3])
    count = 12 if "--smoke" in sys.argv else 1000
    scenario = root / "scenarios" / f"{SCENARIO}.yaml"
    cores = len(os.sched_getaffinity(0))

    def alone():
        return statistics.median(seconds(program, "simulate", scenario, "--no-changes", "--json")[0] for _ in range(9))

    before = alone()
    took, table = seconds(program, "sweep", scenario, "--set", f"{AXIS}=200..{199 + count}Gb/s:+1", "--json")
    alone_s = (before + alone()) / 2
    rows = json.loads(table)["rows"]
    assert len(rows) == count and all("figures" in row for row in rows)
    rate = count / took
    print(f"{SCENARIO}: {count} scenarios in {took:.1f} s, {rate:.1f} a second on {cores} processors; one alone takes "
          f"{alone_s:.3f} s; {rate * alone_s / cores:.2f} of processors / time alone (asked: 0.9)")


main()

#!/usr/bin/env python3
"""The parts of tools/test: each has its time and budget, a failure ends nothing, a slow machine leaves the last out.

Arguments: the program, which is not started; the source tree.
"""

import subprocess
import sys
import unittest

sys.argv.pop(1)  # the program
ROOT = sys.argv.pop(1)

# A clock that goes on only where a part says so: take SECONDS [STATUS].
CLOCK = """
set -euo pipefail
. tools/parts.sh
clock=$logs/clock
echo 0 > "$clock"
seconds_now() { cat "$clock"; }
take() { echo $(($(cat "$clock") + $1)) > "$clock"; echo "took $1"; return "${2:-0}"; }
"""


def run(script, minutes=60):
    return subprocess.run(["bash", "-c", CLOCK + script + "\ntell_parts it"], cwd=ROOT, text=True,
                          capture_output=True, env={"PATH": "/usr/bin:/bin", "MOTLEY_TEST_MINUTES": str(minutes)},
                          check=False)


class Parts(unittest.TestCase):
    def test_each_part_has_its_time_and_budget(self):
        result = run("step one 100 take 90\nstep two 200 take 250")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("== one: ok, 90 s", result.stdout)
        self.assertRegex(result.stdout, r"\(tests/README.md\): two +250 s of +200 s")
        self.assertIn("it: all passed, 340 s", result.stdout)

    def test_a_failure_is_told_last_and_ends_nothing(self):
        result = run("step one 100 take 9 3\nstep two 100 take 5")
        self.assertEqual(result.returncode, 1)
        self.assertIn("== one: FAILED, 9 s", result.stdout)
        self.assertIn("== two: ok, 5 s", result.stdout)
        self.assertRegex(result.stdout, r"== what failed in one\ntook 9\nit: failed after 14 s: one\n$")

    def test_what_a_slow_machine_would_end_too_late_is_left_out(self):
        # At half the pace of the budgets, 30 min of budget end after 70 + 60 min, and 10 min after 70 + 20.
        script = "step build 2100 take 4200\nstep long 1800 take 3600\nstep short 600 take 1200"
        result = run(script, minutes=100)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"== long: LEFT OUT, as it would end after 100 min")
        self.assertRegex(result.stdout, r"\(tests/README.md\): long +left out of +1800 s")
        self.assertIn("== short: ok, 1200 s", result.stdout)
        self.assertIn("it: all passed, 5400 s", result.stdout)
        self.assertNotIn("LEFT OUT", run(script, minutes=150).stdout)

    def test_a_fast_machine_leaves_out_what_exceeds_its_budget_alone(self):
        # A pace below the budgets is no promise for the next part.
        result = run("step build 600 take 60\nstep next 600 take 60", minutes=10)
        self.assertIn("== next: LEFT OUT", result.stdout)

    def test_the_first_part_is_never_left_out(self):
        self.assertIn("== build: ok, 60 s", run("step build 600 take 60", minutes=1).stdout)


if __name__ == "__main__":
    unittest.main()

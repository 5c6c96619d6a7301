#!/usr/bin/env python3
"""What a person can type from the README alone: the commands under "Your own cluster, model and sweep" run as they
stand there.

Arguments: the program, the source tree.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
SECTION = "## Your own cluster, model and sweep"


def script():
    """The indented lines of the section, as one script of the shell."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index(SECTION):].split("\n## ")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    assert len(lines) > 10
    return "set -e\n" + "\n".join(lines) + "\n"


@unittest.skipIf("MOTLEY_SANITIZED" in os.environ, "plans for a while")
class Readme(unittest.TestCase):
    def test_the_commands_of_a_first_day_run_as_they_stand_there(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "bin").mkdir()
            (folder / "bin" / "motley").symlink_to(PROGRAM)
            model = json.loads((ROOT / "scenarios/models/llama-3-8b.json").read_text())
            (folder / "config.json").write_text(json.dumps(model))
            run = subprocess.run(["bash", "-c", script()], cwd=folder, capture_output=True, text=True, timeout=300,
                                 check=False, stdin=subprocess.DEVNULL,
                                 env={**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": name})
            self.assertEqual(0, run.returncode, run.stderr)
            self.assertNotIn("error", run.stderr)
            # The mixed fleet has an answer in the first round, which says what was assumed, and a plan in the second.
            self.assertEqual(2, len(re.findall(r"^ +iteration +\S+ m?s$", run.stdout, re.M)), run.stdout)
            self.assertRegex(run.stdout, r"the nodes of `mi300x` are the usual ones")
            self.assertRegex(run.stdout, r"does not say how `mi300x` is joined")
            for written in ("planned.yaml", "mine.yaml", "nics.svg"):
                self.assertGreater((folder / written).stat().st_size, 300, written)
            self.assertRegex(run.stdout, r"(?s)100 ?Gb/s.*200 ?Gb/s.*400 ?Gb/s")


if __name__ == "__main__":
    unittest.main(verbosity=2)

#!/usr/bin/env python3
"""The folders of tests/refusals that only the command line can trigger: those with a how.txt.

Arguments: the program, the source tree. MOTLEY_REWRITE=1 writes the messages of how.txt anew.
"""

import os
import pathlib
import shlex
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
FOLDERS = pathlib.Path(sys.argv.pop(1)).resolve() / "tests" / "refusals"


def said(folder, arguments):
    answer = subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, cwd=folder, stdin=subprocess.DEVNULL, timeout=120)
    return answer.stderr.replace("motley: error: ", "", 1) + f"exit {answer.returncode}\n"


class Refusals(unittest.TestCase):
    maxDiff = None

    def test_commands_that_are_refused_say_why_and_exit_as_documented(self):
        asked = 0
        for how in sorted(FOLDERS.glob("*/how.txt")):
            key, _, value = how.read_text().strip().partition(": ")
            if key != "command":
                continue
            asked += 1
            expected = how.parent / "expected.txt"
            with self.subTest(how.parent.name):
                heard = said(how.parent, shlex.split(value)[1:])
                if os.environ.get("MOTLEY_REWRITE"):
                    expected.write_text(heard)
                self.assertEqual(expected.read_text(), heard)
        self.assertGreater(asked, 0)


if __name__ == "__main__":
    unittest.main()

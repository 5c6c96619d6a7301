#!/usr/bin/env python3
"""The inputs of tests/inputs, which once crashed Motley or gave infinities: each works now, or is refused.

Arguments: the program, the source tree. The README.md of tests/inputs describes the folders.
"""

import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

MOST_BYTES = 1 << 30


def limit_memory():
    if not os.environ.get("MOTLEY_SANITIZED"):  # its shadow memory is terabytes of address space
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def change(folder, line):
    name, form, text = re.fullmatch(r"change (\S+): (.+) to (.+)", line).groups()
    path = folder / name
    before = path.read_text(encoding="utf-8")
    after = re.sub(form, lambda _: text, before)
    assert after != before, line
    path.write_text(after, encoding="utf-8")


class Inputs(unittest.TestCase):
    def run_line(self, folder, line):
        run = subprocess.run([PROGRAM, *shlex.split(line)[1:]], capture_output=True, text=True, cwd=folder,
                             stdin=subprocess.DEVNULL, timeout=120, preexec_fn=limit_memory)
        # A name such as "tt--inf" is no infinity.
        self.assertNotRegex(run.stdout, r"(?<![\w-])[+-]?(inf|nan)\b", line)
        return run

    def check(self, source):
        *lines, code, part = (source / "expected.txt").read_text(encoding="utf-8").splitlines()
        with tempfile.TemporaryDirectory() as copy:
            folder = pathlib.Path(copy) / "input"
            shutil.copytree(source, folder)
            for i, line in enumerate(lines):
                if line.startswith("change "):
                    change(folder, line)
                    continue
                run = self.run_line(folder, line)
                expected = int(code.removeprefix("exit ")) if i + 1 == len(lines) else 0
                self.assertEqual(expected, run.returncode, run.stdout + run.stderr)
        self.assertIn(part, run.stdout + run.stderr)

    def test_inputs_that_once_crashed_work_or_are_refused(self):
        folders = sorted(path.parent for path in (ROOT / "tests" / "inputs").glob("*/expected.txt"))
        self.assertTrue(folders)
        for folder in folders:
            with self.subTest(folder.name):
                self.check(folder)


if __name__ == "__main__":
    unittest.main()

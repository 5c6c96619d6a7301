#!/usr/bin/env python3
"""The command line as users and scripts see it: help, exit codes, streams, bytes.

Arguments: the program, the source tree. It does not check whether the numbers are right.
"""

import json
import os
import pathlib
import pty
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

OK, FAILED, USAGE, INFEASIBLE, MISMATCH, MISSING = range(6)


def motley(*arguments, **options):
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=300, **options)


def commands(*above):
    """Every command that runs something, as lists of words: [["doctor"], ["show", "model"], ...]."""
    text = motley(*above, "--help").stdout
    if "Subcommands:" not in text:
        return [list(above)]
    lines = text.split("Subcommands:")[1].split("\n\n")[0].strip("\n").split("\n")
    names = [line.split()[0] for line in lines if not line.startswith("      ")]
    return [each for name in names for each in commands(*above, name)]


class Help(unittest.TestCase):
    def test_help_lists_the_commands_and_the_exit_codes(self):
        answer = motley("--help")
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr))
        self.assertIn("Exit codes:", answer.stdout)
        self.assertIn(["doctor"], commands())

    def test_every_command_has_help_with_an_example_and_takes_json(self):
        for command in commands():
            answer = motley(*command, "--help")
            self.assertEqual((OK, ""), (answer.returncode, answer.stderr), command)
            self.assertIn("Example:\n  motley " + " ".join(command), answer.stdout)
            self.assertIn("Exit codes:", answer.stdout, command)
            if command != ["launch"]:  # its result is that of the command that it starts
                self.assertIn("--json", answer.stdout, command)

    def test_the_readme_lists_the_same_exit_codes(self):
        readme = (ROOT / "README.md").read_text()
        for code in ["0", "1", "2", "3", "4", "5", "130"]:
            self.assertRegex(readme, rf"\| `?{code}`? \|")

    def test_version_is_one_line(self):
        self.assertRegex(motley("--version").stdout, r"^\d+\.\d+\.\d+\n$")


class Mistakes(unittest.TestCase):
    def refused(self, code, hint, *arguments):
        answer = motley(*arguments)
        self.assertEqual(code, answer.returncode, answer.stderr)
        self.assertEqual("", answer.stdout)
        self.assertTrue(answer.stderr.startswith("motley: error: "), answer.stderr)
        self.assertIn(hint, answer.stderr)

    def test_no_command_is_refused(self):
        self.refused(USAGE, "motley --help")

    def test_a_misspelt_command_names_the_nearest(self):
        self.refused(USAGE, "did you mean `doctor`?", "docter")

    def test_a_misspelt_option_names_the_nearest(self):
        self.refused(USAGE, "did you mean `--json`?", "doctor", "--jsom")

    def test_a_misspelt_command_under_another_names_the_nearest(self):
        self.refused(USAGE, "did you mean `program`?", "show", "programme", "x")

    def test_a_misspelt_option_of_the_program_names_the_nearest(self):
        self.refused(USAGE, "did you mean `--version`?", "--versoin")

    def test_a_part_that_does_not_exist_is_refused(self):
        self.refused(USAGE, "did you mean `CUDA`?", "doctor", "--need", "CUDDA")


class Doctor(unittest.TestCase):
    def parts(self):
        parts = json.loads(motley("doctor", "--json").stdout)["parts"]
        return {part["name"]: part for part in parts}

    def test_lists_every_optional_part_with_what_it_would_enable(self):
        parts = self.parts()
        for name in ["SimGrid", "oneDNN", "CUDA", "cuBLAS", "cuDNN", "NCCL", "HIP", "libibverbs",
                     "librdmacm"]:
            self.assertIn(parts[name]["state"], {"absent", "compiled", "ran"})
            self.assertTrue(parts[name]["enables"], name)
            if parts[name]["state"] != "absent":
                self.assertTrue(parts[name]["version"], name)
            else:
                self.assertTrue(parts[name]["detail"], name)

    def test_need_exits_with_5_unless_the_part_ran(self):
        for name, part in self.parts().items():
            expected = OK if part["state"] == "ran" else MISSING
            self.assertEqual(expected, motley("doctor", "--need", name).returncode, name)


class WholeRun(unittest.TestCase):
    def run_of(self, *options):
        answer = motley("simulate", "scenarios/quickstart.yaml", "--json", *options)
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr))
        report = json.loads(answer.stdout)
        return report, report["spending"]["run"]

    def test_tokens_and_goodput_say_what_a_run_takes_and_change_nothing_else(self):
        plain, none = self.run_of()
        self.assertIsNone(none)
        asked, run = self.run_of("--tokens", "2T", "--goodput", "0.5")
        self.assertEqual((2e12, 0.5), (run["tokens"], run["goodput"]))
        self.assertEqual(-(-2 * 10**12 // (128 * 4096)), run["steps"])
        self.assertAlmostEqual(run["steps"] * plain["iteration_s"] / 0.5 / 86400, run["days"], places=6)
        self.assertAlmostEqual(run["steps"] * plain["spending"]["usd_per_step"] / 0.5, run["usd"], places=3)
        asked["spending"]["run"] = None
        self.assertEqual(plain, asked)

    def test_nonsense_is_refused_and_names_the_option(self):
        for option, value in [("--tokens", "15 trillion"), ("--tokens", ""), ("--goodput", "95"), ("--goodput", "0")]:
            answer = motley("simulate", "scenarios/quickstart.yaml", option, value)
            self.assertEqual(USAGE, answer.returncode, value)
            self.assertIn(f"motley: error: {option}: ", answer.stderr)
            self.assertEqual("", answer.stdout)


class Streams(unittest.TestCase):
    def test_a_pipe_gets_no_escape_codes(self):
        for arguments in [("doctor",), ("docter",)]:
            answer = motley(*arguments, env={**os.environ, "TERM": "xterm-256color"})
            self.assertNotIn("\x1b", answer.stdout + answer.stderr)

    def errors_on_a_terminal(self, **environment):
        try:
            master, slave = pty.openpty()
        except OSError as why:
            self.skipTest(f"no terminal can be had here: {why}")
        subprocess.run([PROGRAM, "docter"], stdout=subprocess.DEVNULL, stderr=slave, cwd=ROOT,
                       env={**os.environ, **environment}, timeout=60, check=False)
        os.close(slave)
        text = os.read(master, 4096).decode()
        os.close(master)
        return text

    def test_a_terminal_gets_colour_unless_it_asked_for_none(self):
        os.environ.pop("NO_COLOR", None)
        self.assertIn("\x1b", self.errors_on_a_terminal(TERM="xterm"))
        self.assertNotIn("\x1b", self.errors_on_a_terminal(TERM="dumb"))
        self.assertNotIn("\x1b", self.errors_on_a_terminal(TERM="xterm", NO_COLOR="1"))

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            code = subprocess.run([PROGRAM, "doctor"], stdout=full, stderr=subprocess.DEVNULL,
                                  timeout=60, check=False).returncode
        self.assertEqual(FAILED, code)


if __name__ == "__main__":
    unittest.main()

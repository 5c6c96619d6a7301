#!/usr/bin/env python3
"""The command line as users and scripts see it: help, exit codes, streams, bytes.

Arguments: the program, the source tree. It does not check whether the numbers are right.
"""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
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

    def test_what_people_type_first_prints_the_help(self):
        help_text = motley("--help").stdout
        for words in [(), ("help",), ("-h",)]:
            answer = motley(*words)
            self.assertEqual((OK, help_text, ""), (answer.returncode, answer.stdout, answer.stderr), words)

    def test_help_of_a_command_is_that_of_its_flag(self):
        for command in commands():
            self.assertEqual(motley(*command, "--help").stdout, motley("help", *command).stdout, command)

    def test_help_lists_every_command_and_its_words_as_data(self):
        def paths(command, above=()):
            inner = [path for each in command["commands"] for path in paths(each, (*above, each["name"]))]
            return inner or [list(above)]

        tree = json.loads(motley("help", "--json").stdout)
        self.assertEqual("motley.help/1", tree["schema"])
        self.assertEqual(commands(), paths(tree["command"]))
        shell = json.loads(motley("help", "completion", "--json").stdout)["command"]["options"][1]
        self.assertEqual(("shell", ["bash", "zsh", "fish"]), (shell["positional"], shell["choices"]))

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
        for flag in ["--version", "-V"]:
            self.assertRegex(motley(flag).stdout, r"^\d+\.\d+\.\d+\n$")

    def test_the_newest_changes_are_those_of_this_version(self):
        version = motley("--version").stdout.split()[-1]
        heads = re.findall(r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", (ROOT / "tools/CHANGELOG.md").read_text(), re.M)
        self.assertEqual(version, heads[0])


class Doctor(unittest.TestCase):
    def test_each_part_has_the_number_of_its_version_or_was_not_found(self):
        for part in json.loads(motley("doctor", "--json").stdout)["parts"]:
            with self.subTest(part["name"]):
                self.assertRegex(part["version"], r"^([0-9]+\.[0-9][\w.+-]*)?$")
                if part["state"] == "ran":
                    self.assertNotEqual("", part["version"])


class Mistakes(unittest.TestCase):
    def refused(self, code, hint, *arguments):
        answer = motley(*arguments)
        self.assertEqual(code, answer.returncode, answer.stderr)
        self.assertEqual("", answer.stdout)
        self.assertTrue(answer.stderr.startswith("motley: error: "), answer.stderr)
        self.assertIn(hint, answer.stderr)

    def test_a_misspelt_command_names_the_nearest(self):
        self.refused(USAGE, "did you mean `doctor`?", "docter")

    def test_help_of_a_misspelt_command_names_the_nearest(self):
        self.refused(USAGE, "did you mean `simulate`?", "help", "simulte")

    def test_a_misspelt_option_names_the_nearest(self):
        self.refused(USAGE, "did you mean `--json`?", "doctor", "--jsom")

    def test_a_misspelt_command_under_another_names_the_nearest(self):
        self.refused(USAGE, "did you mean `program`?", "show", "programme", "x")

    def test_a_misspelt_option_of_the_program_names_the_nearest(self):
        self.refused(USAGE, "did you mean `--version`?", "--versoin")

    def test_a_part_that_does_not_exist_is_refused(self):
        self.refused(USAGE, "did you mean `CUDA`?", "doctor", "--need", "CUDDA")


class Answers(unittest.TestCase):
    """One JSON document on stdout, whatever happens. tests/tools/test_refusals.py asks for that of every page."""

    def answered(self, answer, kind, code):
        document = json.loads(answer.stdout)
        self.assertEqual(("motley.refusal/1", kind, code),
                         (document["schema"], document["kind"], document["exit_code"]), answer.stderr)
        self.assertEqual(code, answer.returncode)
        return document

    def test_text_answers_leave_stdout_empty(self):
        for words in [("docter",), ("check", "none.yaml"), ("doctor", "--need", "SimGird")]:
            self.assertEqual("", motley(*words).stdout)

    def test_a_mistake_in_each_command_is_answered(self):
        for command in commands():
            document = self.answered(motley(*command, "--json", "--no-such-option"), "bad-command-line", USAGE)
            self.assertIsNone(document["place"])
            self.assertTrue(document["message"], command)

    def test_words_after_two_dashes_are_those_of_another_command(self):
        self.assertEqual("", motley("launch", "-n", "0", "--", "motley", "doctor", "--json").stdout)

    def test_ranks_that_all_refuse_answer_once(self):
        text = (ROOT / "scenarios" / "quickstart-train.yaml").read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "bf16.yaml")
            path.write_text(text.replace("fp32", "bf16"), encoding="utf-8")
            train = ["train", path, "--json"]
            self.answered(motley(*train), "host-precision", INFEASIBLE)
            self.answered(motley("launch", "-n", "2", "--", PROGRAM, *train), "host-precision", INFEASIBLE)
            self.answered(motley("compare", path, "--json"), "host-precision", INFEASIBLE)

    def test_a_result_is_the_only_document_though_the_command_fails(self):
        answer = motley("compare", "scenarios/quickstart-train.yaml", "--within", "0", "--json")
        self.assertEqual((MISMATCH, "motley.compare/1"), (answer.returncode, json.loads(answer.stdout)["schema"]))
        self.assertIn("% apart, more than 0 %", answer.stderr)

    def test_an_interrupt_is_answered(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "pipe")
            os.mkfifo(pipe)
            for words, schema in [(["--json"], "motley.refusal/1"), ([], None)]:
                command = subprocess.Popen([PROGRAM, "check", pipe, *words], stdout=subprocess.PIPE, text=True)
                with open(pipe, "w", encoding="utf-8"):  # opens when the command does, which then waits for words
                    command.send_signal(signal.SIGINT)
                    stdout = command.communicate(timeout=60)[0]
                self.assertEqual(130, command.returncode)
                if schema:
                    document = json.loads(stdout)
                    self.assertEqual((schema, "interrupted"), (document["schema"], document["kind"]))
                else:
                    self.assertEqual("", stdout)


class Doctor(unittest.TestCase):
    def parts(self):
        parts = json.loads(motley("doctor", "--json").stdout)["parts"]
        return {part["name"]: part for part in parts}

    def test_lists_every_optional_part_with_what_it_would_enable(self):
        parts = self.parts()
        for name in ["SimGrid", "zlib", "D3", "protobuf", "oneDNN", "CUDA", "cuBLAS", "cuDNN", "NCCL", "HIP",
                     "libibverbs", "librdmacm"]:
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

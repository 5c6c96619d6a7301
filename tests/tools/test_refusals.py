#!/usr/bin/env python3
"""The cases on the pages of tests/refusals that only the command line can trigger: those with a `command:`.

Arguments: the program, the source tree. MOTLEY_REWRITE=1 writes the messages of these cases again.
"""

import json
import os
import pathlib
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
SANITIZED = "MOTLEY_SANITIZED" in os.environ
ENOUGH_S = 480 if SANITIZED else 120  # sanitizers take ten times as long

BLOCK = r"```(\S+)( escaped)?\n((?:(?!```\n).*\n)*)```\n"
CASE = re.compile(
    r"## (?P<title>.+)\ncommand: motley (?P<arguments>.+)\n(?P<blocks>(?:" + BLOCK + r")*)"
    r"----\n(?P<message>(?:(?!exit \d+\n|## ).+\n)+exit \d+\n)")


def cases(page):
    """The matches of CASE in a page; a case with a command of another form is an error."""
    text = page.read_text(encoding="utf-8")
    for start in re.finditer(r"^## .+\ncommand: ", text, re.M):
        case = CASE.match(text, start.start())
        if case is None:
            raise ValueError(f"{where(page, start)}: malformed")
        yield case


def where(page, match):
    line = match.string.count("\n", 0, match.start()) + 1
    return f"{page.relative_to(ROOT)}:{line}: {match[0].splitlines()[0][3:]}"


def unescaped(text):
    one = re.compile(rb"\\(?:x([0-9a-f]{2})|\\)")
    return one.sub(lambda escape: bytes.fromhex(escape[1].decode()) if escape[1] else b"\\", text.encode())


def limit_memory():
    """No input that is refused takes more than 1 GiB."""
    if not os.environ.get("MOTLEY_SANITIZED"):  # its shadow memory is terabytes of address space
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))


def run_case(case, *further):
    """What motley prints in a folder with the case's files and the source's `scenarios`. `further` words come last, but
    before `--`."""
    words = shlex.split(case["arguments"])
    end = words.index("--") if "--" in words else len(words)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "scenarios").symlink_to(ROOT / "scenarios")
        for name, escaped, text in re.findall(BLOCK, case["blocks"]):
            (folder / name).write_bytes(unescaped(text) if escaped else text.encode())
        return subprocess.run([PROGRAM, *words[:end], *further, *words[end:]], capture_output=True, text=True,
                              cwd=folder, stdin=subprocess.DEVNULL, timeout=ENOUGH_S, preexec_fn=limit_memory)


def message_of(run):
    """What it says, in the form of the pages."""
    return re.sub(r"^motley: error: ", "", run.stderr, flags=re.M) + f"exit {run.returncode}\n"


def text_of(refusal):
    """The message on the page, made of a refusal as JSON."""
    text = ""
    for each in [refusal, *refusal["others"]]:
        place = each["place"]
        if place:
            text += f"{place['file']}:" + (f"{place['line']}:{place['column']}:" if place["line"] else "") + " "
        text += each["message"] + "\n" + "".join(f"  hint: {hint}\n" for hint in (each["hint"] or "").splitlines())
    return text + f"exit {refusal['exit_code']}\n"


def takes_json(case):
    """Whether the command may be asked with --json, too."""
    return "--json" not in shlex.split(case["arguments"]) and "--print-binding" not in case["arguments"]


class Refusals(unittest.TestCase):
    maxDiff = None

    @unittest.skipIf(SANITIZED, "takes minutes with sanitizers, and the next test asks many of the cases")
    def test_commands_that_are_refused_say_why_and_exit_as_documented(self):
        asked = 0
        for page in sorted((ROOT / "tests" / "refusals").glob("*.txt")):
            text = page.read_text(encoding="utf-8")
            for case in reversed(list(cases(page))):  # last case first, so that a new message moves no other case
                asked += 1
                # The next test asks all of those that take --json, and compares stderr and the exit code as well.
                if takes_json(case) and asked % 4 and not os.environ.get("MOTLEY_REWRITE"):
                    continue
                with self.subTest(where(page, case)):
                    message = message_of(run_case(case))
                    if os.environ.get("MOTLEY_REWRITE"):
                        text = text[: case.start("message")] + message + text[case.end("message") :]
                    else:
                        self.assertEqual(case["message"], message)
            if text != page.read_text(encoding="utf-8"):
                page.write_text(text, encoding="utf-8")
        self.assertGreater(asked, 0)

    def test_with_json_stdout_has_the_refusal_as_one_document_and_stderr_the_same_text(self):
        for page in sorted((ROOT / "tests" / "refusals").glob("*.txt")):
            for number, case in enumerate(cases(page)):
                if not takes_json(case) or (SANITIZED and number % 3):
                    continue
                with self.subTest(where(page, case)):
                    run = run_case(case, "--json")
                    self.assertEqual(case["message"], message_of(run))
                    refusal = json.loads(run.stdout)
                    self.assertEqual(["schema", "kind", "exit_code", "place", "message", "hint", "others"],
                                     list(refusal))
                    self.assertEqual("motley.refusal/1", refusal["schema"])
                    self.assertEqual(case["title"].split(":")[0], refusal["kind"])
                    if "\\x" not in case["message"]:  # control characters are escapes in the text only
                        self.assertEqual(case["message"], text_of(refusal))

    def test_an_escaped_block_holds_any_byte(self):
        self.assertEqual(b"a\x00\xf6\\x41", unescaped(r"a\x00\xf6\\x41"))


if __name__ == "__main__":
    unittest.main()

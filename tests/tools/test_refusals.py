#!/usr/bin/env python3
"""The cases on the pages of tests/refusals that only the command line can trigger, those with a `command:`; and whether
every message in the sources has a case at all.

Arguments: the program, the source tree. MOTLEY_REWRITE=1 writes the messages of the commands again.
"""

import collections
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

from refusal_pages import BLOCK, cases, message_of, pages, where
from refusal_sites import Sites

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
SANITIZED = "MOTLEY_SANITIZED" in os.environ
EVERY_CASE = "MOTLEY_EVERY_DRAW" in os.environ and not SANITIZED  # with --json; else a third of them
ENOUGH_S = 480 if SANITIZED else 120  # sanitizers take ten times as long

NOTES = tempfile.NamedTemporaryFile(prefix="motley-refusal-sites-")  # what the runs below note
ENVIRONMENT = os.environ | {"MOTLEY_REFUSAL_SITES": NOTES.name}
RAN = set()  # the texts of cases


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
    RAN.add(case[0])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "scenarios").symlink_to(ROOT / "scenarios")
        for name, escaped, text in re.findall(BLOCK, case["blocks"]):
            (folder / name).write_bytes(unescaped(text) if escaped else text.encode())
        quiet = {"capture_output": True, "text": True, "cwd": folder, "stdin": subprocess.DEVNULL,
                 "timeout": ENOUGH_S, "preexec_fn": limit_memory}
        for line in re.findall(r"before: motley (.+)\n", case["before"]):
            subprocess.run([PROGRAM, *shlex.split(line)], check=True, **quiet)
        program = PROGRAM.parent / case["program"]
        return subprocess.run([program, *words[:end], *further, *words[end:]], env=ENVIRONMENT, **quiet)


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
    """Whether the command may be asked with --json, too, and then prints nothing but the refusal."""
    words = shlex.split(case["arguments"])
    return case["program"] == "motley" and not {"--json", "--print-binding", "--within"} & set(words)


def is_built(path):
    """Whether this build has the program of a case or of a test. tools/fit needs Ceres, which a build may lack."""
    has_fit = (PROGRAM.parent / "fit_published").exists()
    return has_fit or not path.startswith(("tests/fit/", "tools/fit/", "fit_published"))


class Refusals(unittest.TestCase):
    maxDiff = None

    @unittest.skipIf(SANITIZED, "takes minutes with sanitizers, and the next test asks many of the cases")
    def test_commands_that_are_refused_say_why_and_exit_as_documented(self):
        asked = 0
        for page in pages():
            text = page.read_text(encoding="utf-8")
            for case in reversed(list(cases(page))):  # last case first, so that a new message moves no other case
                if not is_built(case["program"]):
                    continue
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
        for page in pages():
            for number, case in enumerate(cases(page)):
                if not takes_json(case) or (number % 3 and not EVERY_CASE):
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


def test_cases_in_cpp(source, title):
    """The names of the test cases of a file that have this title in them."""
    parts = re.split(r'^TEST_CASE\(\s*"((?:\\.|[^"\\])*)"', source, flags=re.M)
    return {name for name, body in zip(parts[1::2], parts[2::2]) if f'"{title}"' in body}


def test_methods(source, title):
    """The methods of a Python test that have this title in them, as unittest takes them."""
    parts = re.split(r"^class (\w+)\(.*\n|^    def (test_\w+)\(.*\n", source, flags=re.M)
    classes, methods = "", set()
    for class_name, method, body in zip(parts[1::3], parts[2::3], parts[3::3]):
        classes = class_name or classes
        if method and f'"{title}"' in body:
            methods.add(f"{classes}.{method}")
    return methods


def run_tests_that_pages_name():
    """Runs the tests of the pages' `test:` cases, and all inputs. Returns what went wrong, by test."""
    in_cpp, in_python, wrong = collections.defaultdict(set), collections.defaultdict(set), []
    in_cpp["refusals"].add("every input on the pages is refused with its message")
    for page in pages():
        for case in cases(page, "test"):
            if not is_built(case["test"]):
                continue
            source = (ROOT / case["test"]).read_text(encoding="utf-8")
            is_cpp = case["test"].endswith(".cpp")
            tests = test_cases_in_cpp(source, case["title"]) if is_cpp else test_methods(source, case["title"])
            (in_cpp[case["test"].split("/")[1]] if is_cpp else in_python[case["test"]]).update(tests)
            if not tests:
                wrong.append(f"{where(page, case)}: no test of {case['test']} has this title")
    # Each in a process of its own, as CTest runs them.
    commands = [[PROGRAM.parent / f"test_{folder}", name.replace(",", "\\,")]
                for folder, names in in_cpp.items() for name in sorted(names)]
    commands += [[sys.executable, ROOT / path, PROGRAM, ROOT, *sorted(names)] for path, names in in_python.items()]
    for command in commands:
        run = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                             timeout=600)
        if run.returncode != 0:
            wrong.append(f"{shlex.join(map(str, command))}\n{run.stdout}{run.stderr}")
    return wrong


@unittest.skipIf(SANITIZED, "takes all cases, of which sanitizers run some")
class Sources(unittest.TestCase):
    """Whether each place that writes a message of a refusal is reached by a case: README.md of tests/refusals."""

    maxDiff = None

    def test_every_message_has_a_case_that_compares_it(self):
        for page in pages():
            for case in cases(page):
                if case[0] not in RAN and is_built(case["program"]):
                    run_case(case)
        wrong = run_tests_that_pages_name()
        sites = Sites(ROOT)
        wrong += sites.faults
        asked, seen = set(), set()
        for line in pathlib.Path(NOTES.name).read_text(encoding="utf-8").splitlines():
            if line.startswith("= "):
                asked.add(line[2:])
                continue
            path, number = line.split(" ")[0].rsplit(":", 1)
            site = sites.at(path, int(number))
            self.assertIsNotNone(site, f"{line}: refusal_sites.py does not know this place")
            seen.add(site)
        for page in pages():
            for case in cases(page, "test"):
                if case["title"] not in asked and is_built(case["test"]):
                    wrong.append(f"{where(page, case)}: no test compares its message with expected_refusal()")
        unseen = [site for site in sites.sites if site not in seen and is_built(site.path)]
        wrong += [f"{site}\n  no case of tests/refusals is refused here: write one" for site in unseen]
        self.assertGreater(len(seen), 300)
        self.assertFalse(wrong, "\n".join(["", *wrong]))

    def test_the_sites_of_a_source_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "models" / "base").mkdir(parents=True)
            (root / "models" / "base" / "csv.hpp").write_text(HEADER)
            (root / "models" / "base" / "csv.cpp").write_text(SOURCE)
            sites = Sites(root)
        self.assertEqual([(3, 4, "bad-a"), (10, 10, "bad-b"), (11, 12, "bad-b"), (15, 15, "bad-c"), (16, 16, "bad-d"),
                          (20, 20, "bad-e")],
                         [(site.first_line, site.last_line, site.kind) for site in sites.sites])
        self.assertEqual(["models/base/csv.cpp:20: the message is `why`"],
                         [fault.split(",")[0] for fault in sites.faults])
        self.assertEqual(sites.sites[2], sites.at("/elsewhere/models/base/csv.cpp", 12))
        self.assertIsNone(sites.at("/elsewhere/models/base/csv.cpp", 13))


HEADER = """// Refusal(Exit::usage, "bad-comment", {}, "no code")
[[noreturn]] void refuse_shared(const std::string& why, RefusalSite site = RefusalSite::here());
"""
SOURCE = """#include "models/base/csv.hpp"
void a() {
  throw Refusal(Exit::usage, "bad-a", {},
                "a comma, and a )");
}
void refuse_shared(const std::string& why, RefusalSite site) {
  throw Refusal(Exit::usage, "bad-b", {}, why, "", site);
}
void b() {
  refuse_shared("one");
  refuse_shared(
      "two");
}
std::optional<StrategyComplaint> c() {
  if (x) return StrategyComplaint{"bad-c", "stages", "text", ""};
  return {"bad-d", "stages", "text", ""};
}
void d(const Location& where, const std::string& why) {
  // Its callers write what is told.
  throw Refusal(Exit::usage, "bad-e", where, why);
}
"""


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""What commands answer, word for word: the cases of one page of tests/answers. README.md there says how they look.

Arguments: the program, beside which other programs of the pages stand, the source tree, the page. With
MOTLEY_REWRITE=1 the answers are written anew.
"""

import concurrent.futures
import difflib
import hashlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(sys.argv[2]).resolve()
PAGE = ROOT / "tests" / "answers" / sys.argv[3]

CASE = re.compile(r"## (?P<title>.+)\n(?P<head>(?:(?:before|command|show): .+\n)+)"
                  r"(?P<blocks>(?:```\S+\n(?:(?!```\n).*\n)*```\n)*)----\n(?P<answer>(?:(?!## ).*\n)*)")
BLOCK = re.compile(r"```(\S+)\n((?:(?!```\n).*\n)*)```\n")
FIGURES = 9  # of a number that count: the last ones differ between processors
MOST_LINES, HEAD_LINES = 90, 30


def rounded(match):
    text = match[0]
    digits = re.sub(r"e.*", "", text).replace(".", "").lstrip("0")
    return f"{float(text):.{FIGURES}g}" if len(digits) > FIGURES and ("." in text or "e" in text) else text


def steady(text, folder):
    """The text without what differs from run to run: paths, times of the search, last figures of numbers."""
    text = text.replace(str(folder), "FOLDER").replace(str(ROOT), "ROOT")
    text = re.sub(r'("search_s": )[\d.e+-]+', r"\1N", text)
    text = re.sub(r"(^|, )in [\d.]+ (?:min|s|ms|us)$", r"\1in no time", text, flags=re.M)
    return re.sub(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])", rounded, text)


def shortened(text):
    """All of a short answer; of a long one its first lines, and a sum of all of them."""
    lines = text.splitlines(keepends=True)
    if len(lines) <= MOST_LINES and len(text) < 100 * MOST_LINES:
        return text
    most = [line if len(line) < 200 else line[:200].rstrip("\n") + " ...\n" for line in lines[:HEAD_LINES]]
    return "".join(most) + f"... {len(lines)} lines in all, SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:16]}\n"


def answer_of(case, shared):
    with tempfile.TemporaryDirectory(prefix="motley-answers-") as name:
        folder = pathlib.Path(name)
        for file, content in shared + BLOCK.findall(case["blocks"]):
            (folder / file).write_text(content, encoding="utf-8")
        environment = {**os.environ, "HOME": name, "MOTLEY_TEST_ON_ONE_PROCESSOR": "1"}
        answer = ""
        for kind, value in re.findall(r"(before|command|show): (.+)", case["head"]):
            if kind == "show":
                file = folder / value
                content = file.read_text(encoding="utf-8") if file.exists() else "is not there\n"
                answer += f"== {value}\n" + shortened(steady(content, folder))
                continue
            words = shlex.split(value.replace("ROOT", str(ROOT)))
            program = PROGRAM.parent / words[0]
            run = subprocess.run([program, *words[1:]], cwd=folder, env=environment, text=True, capture_output=True,
                                 stdin=subprocess.DEVNULL, check=False)
            told = run.stdout + "".join(f"stderr: {line}\n" for line in run.stderr.splitlines())
            if kind == "command":
                answer += shortened(steady(told, folder)) + f"exit {run.returncode}\n"
            elif run.returncode != 0:
                answer += f"before: {value}\n{told}exit {run.returncode}\n"
    return "".join(line.rstrip() + "\n" for line in answer.splitlines())


def main():
    text = PAGE.read_text(encoding="utf-8")
    cases = list(CASE.finditer(text))
    if len(cases) != len(re.findall(r"^## ", text, re.M)):
        sys.exit(f"{PAGE.name}: {text.count(chr(10) + '## ')} cases, of which {len(cases)} have the form of README.md")
    shared = BLOCK.findall(text[:cases[0].start()])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda case: answer_of(case, shared), cases))
    if os.environ.get("MOTLEY_REWRITE"):
        for case, answer in reversed(list(zip(cases, answers))):
            text = text[:case.start("answer")] + answer + "\n" + text[case.end("answer"):]
        PAGE.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        return 0
    failed = 0
    for case, answer in zip(cases, answers):
        expected = case["answer"].rstrip("\n") + "\n"
        if answer != expected:
            failed += 1
            line = text.count("\n", 0, case.start()) + 1
            print(f"{PAGE.relative_to(ROOT)}:{line}: {case['title']}: another answer")
            lines = expected.splitlines(keepends=True), answer.splitlines(keepends=True)
            sys.stdout.writelines(difflib.unified_diff(*lines, "page", "now"))
    print(f"{len(cases)} answers, {failed} others")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The pages of tests/refusals for tests in Python: their cases, and the message of a case that a test triggers."""

import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "refusals"

BLOCK = r"```(\S+)( escaped)?\n((?:(?!```\n).*\n)*)```\n"
CASE = re.compile(
    r"## (?P<title>.+)\n(?P<before>(?:before: motley .+\n)*)"
    r"(?:command: (?P<program>motley|fit_published) (?P<arguments>.+)|test: (?P<test>.+))\n"
    r"(?P<blocks>(?:" + BLOCK + r")*)----\n(?P<message>(?:(?!exit \d+\n|## ).+\n)+exit \d+\n)")


def pages():
    return sorted(FOLDER.glob("*.txt"))


def where(page, match):
    line = match.string.count("\n", 0, match.start()) + 1
    return f"{page.relative_to(ROOT)}:{line}: {match[0].splitlines()[0][3:]}"


def cases(page, kind="command"):
    """The matches of CASE in a page that have a `command:`, or a `test:`; one of another form is an error."""
    text = page.read_text(encoding="utf-8")
    for start in re.finditer(rf"^## .+\n(?:before: .+\n)*{kind}: ", text, re.M):
        case = CASE.match(text, start.start())
        if case is None:
            raise ValueError(f"{where(page, start)}: malformed")
        yield case


def expected_refusal(title):
    """The message of the `test:` case with this title, which notes that a test has asked for it."""
    if sites := os.environ.get("MOTLEY_REFUSAL_SITES"):
        with open(sites, "a", encoding="utf-8") as file:
            file.write(f"= {title}\n")
    messages = [case["message"] for page in pages() for case in cases(page, "test") if case["title"] == title]
    if len(messages) != 1:
        raise ValueError(f"{len(messages)} cases of tests/refusals are called `{title}`")
    return messages[0]


def message_of(run):
    """What a finished motley says, in the form of the pages."""
    return re.sub(r"^(?:motley|fit-published): error: ", "", run.stderr, flags=re.M) + f"exit {run.returncode}\n"


def without_figures(message):
    """What is the same in messages with measured figures, or with versions of libraries and of code."""
    return re.sub(r"(?<=code )[0-9a-f]+|(?<=disturbed; ).*|[+-]?\b\d[\d.]*", "N", message)

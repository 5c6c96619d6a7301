"""Finds the program and runs it. Knows nothing of what its commands mean."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_PATIENCE_S = 10.0  # for the program to end its workers after an interrupt


@dataclass(frozen=True)
class Place:
    """Where a refused value stands. Lines and columns count from 1; None: the whole file is meant."""

    file: str
    line: int | None
    column: int | None

    def __str__(self) -> str:
        return ":".join([self.file, *(str(number) for number in (self.line, self.column) if number is not None)])


class Refusal(Exception):
    """The program refused its input, or could not do what was asked: schema motley.refusal/1.

    `kind` is the kind of the refusal ("unknown-key", "out-of-memory"), `exit_code` the program's (2 bad input, 3
    impossible, 4 a threshold failed, 5 hardware missing), `place` where the value stands or None, and `hint` what to
    do, or "". `others` are further refusals of the same input, if the program says more than one at once.
    """

    def __init__(self, kind: str, exit_code: int, place: Place | None, message: str, hint: str,
                 others: tuple[Refusal, ...] = ()) -> None:
        super().__init__(kind, exit_code, place, message, hint, others)
        self.kind = kind
        self.exit_code = exit_code
        self.place = place
        self.message = message
        self.hint = hint
        self.others = others

    def __str__(self) -> str:
        own = "".join([f"{self.place}: " if self.place else "", self.message,
                       f"\n  hint: {self.hint}" if self.hint else ""])
        return "\n".join([own, *(str(other) for other in self.others)])


class ProgramError(RuntimeError):
    """The program is not there, is another version, or ended without an answer."""


def find_program() -> str:
    """Finds the program: the environment's MOTLEY_PROGRAM, then PATH, then beside this package as it is installed
    (PREFIX/bin) or in the source tree (build/release). Raises ProgramError if it is in none of these places."""
    named = os.environ.get("MOTLEY_PROGRAM")
    if named:
        if not os.access(named, os.X_OK):
            raise ProgramError(f"MOTLEY_PROGRAM is `{named}`, which is no program")
        return named
    on_path = shutil.which("motley")
    if on_path:
        return on_path
    here = pathlib.Path(__file__).resolve().parent
    for folder in here.parents:
        for beside in (folder / "bin" / "motley", folder / "build" / "release" / "motley"):
            if beside.is_file() and os.access(beside, os.X_OK):
                return str(beside)
    raise ProgramError("the program `motley` is not found: put it on PATH, or name it in MOTLEY_PROGRAM")


def _refusal(answer: dict[str, Any], exit_code: int) -> Refusal:
    place = answer["place"]
    return Refusal(answer["kind"], exit_code, Place(place["file"], place["line"], place["column"]) if place else None,
                   answer["message"], answer["hint"] or "",
                   tuple(_refusal(other, exit_code) for other in answer.get("others", [])))


def _end(process: subprocess.Popen[str]) -> None:
    """Asks the program and its workers, a process group of their own, to end, and kills them if they do not."""
    def send(number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    send(signal.SIGINT)
    try:
        process.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        send(signal.SIGKILL)
        process.communicate()


def run(words: Sequence[str], *, schema: str, text: str | None = None, timeout: float | None = None) -> dict[str, Any]:
    """Runs the program with these words and `--json`, and returns its answer.

    `schema` is the answer's ("motley.simulate/1"), and `text` what the program reads from its standard input. Raises
    Refusal, ProgramError, or subprocess.TimeoutExpired after `timeout` seconds; that and Ctrl-C end the program first.
    """
    command = [find_program(), *words, "--json"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL if text is None else subprocess.PIPE, text=True,
                          encoding="utf-8", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          process_group=0) as process:
        try:
            out, err = process.communicate(text, timeout=timeout)
        except BaseException:
            _end(process)
            raise
    try:
        answer = json.loads(out)
    except ValueError:
        raise ProgramError(f"{' '.join(command)} ended with exit code {process.returncode} and no JSON: "
                           f"{err.strip() or 'it printed nothing'}") from None
    if answer.get("schema") == "motley.refusal/1":
        raise _refusal(answer, answer["exit_code"])
    if answer.get("schema") != schema:
        raise ProgramError(f"{command[0]} answers with schema {answer.get('schema')}, this package reads {schema}")
    return dict(answer)

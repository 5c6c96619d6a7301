"""One function for each command that answers in JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, cast

from motley import types
from motley._program import run

Scenario = Union[str, "os.PathLike[str]", Mapping[str, Any]]
"""The name of a scenario that ships, a path, YAML as text, or a mapping of a scenario's keys."""

Setting = Union[str, int, float, bool, None, Sequence[Any], Mapping[str, Any]]
"""A value for a key of a scenario: text with a unit ("400 Gb/s"), a number, a list; None takes the key out."""


def _words_of(scenario: Scenario) -> tuple[str, str | None]:
    """The scenario's word on the command line, and what the program reads from its standard input.

    Text is YAML if it has more than one line, or a key with a value, or begins with a brace; any other text is a name
    or a path. A mapping is passed as JSON, which is YAML.
    """
    if isinstance(scenario, Mapping):
        return "-", json.dumps(scenario, default=_plain)
    if isinstance(scenario, str):
        is_yaml = "\n" in scenario or ": " in scenario or scenario.lstrip().startswith("{")
        return ("-", scenario) if is_yaml else (scenario, None)
    return os.fspath(scenario), None


def _plain(value: object) -> Any:
    """Paths and mappings of other kinds, as JSON has them."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"a scenario holds a {type(value).__name__}, which is no text, number, list or mapping")


def _text_of(value: Setting) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=_plain)


def _settings(settings: Mapping[str, Setting] | None) -> list[str]:
    return [word for key, value in (settings or {}).items() for word in ("--set", f"{key}={_text_of(value)}")]


def _options(**options: object) -> list[str]:
    """Options that are given: `--time-limit 10s`; True is a flag, None and False are left out."""
    words: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


def _answer(command: str, scenario: Scenario, words: list[str], timeout: float | None) -> dict[str, Any]:
    word, text = _words_of(scenario)
    return run([command, word, *words], schema=f"motley.{command}/1", text=text, timeout=timeout)


def simulate(scenario: Scenario, set: Mapping[str, Setting] | None = None, *, tokens: str | None = None,
             goodput: float | None = None, draws: int | None = None, changes: bool = True, strict: bool = False,
             trace: str | os.PathLike[str] | None = None, memory: str | None = None,
             timeout: float | None = None) -> types.Simulation:
    """Predicts one step: its time, where it goes, memory, price and energy.

    `set` changes keys of the scenario ({"strategy.tp": 8}). `tokens` ("15T") and `goodput` ask for a whole run.
    `changes=False` leaves out the simulations that `advice` comes from, which is faster. `trace` is a file for the
    trace, `memory` the most that the simulation may need ("8GB"). Raises Refusal, ProgramError or
    subprocess.TimeoutExpired.
    """
    words = _settings(set) + _options(tokens=tokens, goodput=goodput, draws=draws, no_changes=not changes,
                                      strict=strict, trace=None if trace is None else os.fspath(trace), memory=memory)
    return cast(types.Simulation, _answer("simulate", scenario, words, timeout))


def check(scenario: Scenario, set: Mapping[str, Setting] | None = None, *,
          timeout: float | None = None) -> types.Check:
    """Proves that the job ends and fits in memory, without running it. Raises Refusal if it does not."""
    return cast(types.Check, _answer("check", scenario, _settings(set), timeout))


def explain(scenario: Scenario, set: Mapping[str, Setting] | None = None, *, better: float | None = None,
            parts: bool = True, changes: bool = True, memory: str | None = None,
            timeout: float | None = None) -> types.Explanation:
    """Says what a step spends its time on, and what better parts and other strategies gain.

    `better` is the factor of the better parts (1.1); `parts` and `changes` say whether they are simulated.
    """
    words = _settings(set) + _options(better=better, no_parts=not parts, no_changes=not changes, memory=memory)
    return cast(types.Explanation, _answer("explain", scenario, words, timeout))


def plan(scenario: Scenario, set: Mapping[str, Setting] | None = None, *,
         objective: Literal["time", "price", "energy", "carbon"] | None = None, policy: str | None = None,
         time_limit: str | None = None, evaluations: int | None = None, tokens: str | None = None,
         deadline: str | None = None, budget: str | None = None, target: str | None = None, baselines: bool = False,
         out: str | os.PathLike[str] | None = None, timeout: float | None = None) -> types.Plan:
    """Finds a strategy, and says how far from the best it can be.

    `time_limit` ("10s") ends the search with the best until then. `out` is a file for the scenario with that strategy,
    which `simulate` takes. The other options are those of `motley plan`.
    """
    if policy == "all":
        raise ValueError("policy `all` answers with a list: call plan() with each policy")
    words = _settings(set) + _options(objective=objective, policy=policy, time_limit=time_limit,
                                      evaluations=evaluations, tokens=tokens, deadline=deadline, budget=budget,
                                      target=target, baselines=baselines, out=None if out is None else os.fspath(out))
    return cast(types.Plan, _answer("plan", scenario, words, timeout))


def _axis(values: str | Sequence[Setting]) -> str:
    """The values of an axis as `motley sweep` lists them: text is passed on ("1..8"), commas in a value are quoted."""
    if isinstance(values, str):
        return values

    def one(value: Setting) -> str:
        text = _text_of(value)
        return json.dumps(text) if isinstance(value, str) and ("," in text or ".." in text) else text

    return ",".join(one(value) for value in values)


def sweep(scenario: Scenario, axes: Mapping[str, str | Sequence[Setting]], *,
          set: Mapping[str, Setting] | None = None, processes: int | None = None,
          front: Sequence[Literal["time", "price", "energy", "memory"]] | None = None, memory: str | None = None,
          timeout: float | None = None) -> list[types.SweepRow]:
    """Simulates every combination of some values, on all processors or on `processes`.

    `axes` has a list of values for each key, or text such as "1..8" or "100..800Gb/s:x2"; `set` has keys of one value.
    Rows come in the order of the combinations, the last axis first; `set` of a row names its values. A combination that
    cannot run is a row with `refused`. With `front` each row says whether no other beats it in all of these.
    """
    fixed = [word for key, value in (set or {}).items() for word in ("--set", f"{key}={_axis([value])}")]
    varied = [word for key, values in axes.items() for word in ("--set", f"{key}={_axis(values)}")]
    words = [*fixed, *varied, *_options(processes=processes, front=",".join(front) if front else None, memory=memory)]
    table = _answer("sweep", scenario, words, timeout)
    keys = [axis["key"] for axis in table["axes"]]
    return [cast(types.SweepRow, {**row, "set": dict(zip(keys, row["values"]))}) for row in table["rows"]]

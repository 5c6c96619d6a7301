"""Predict, plan and explain training runs from Python: a thin, typed layer over the program `motley`.

    import motley

    result = motley.simulate("quickstart", set={"strategy.tp": 8, "strategy.dp": 2})
    print(result["iteration_s"], result["mfu"])

A scenario is the name of one that ships, a path, YAML as text, or a dict of the same keys. Results are the dicts that
`--json` prints; their types are in `motley.types`. What the program refuses is raised as `motley.Refusal`, with its
place, value and hint.

Each call starts the program once, because a process is the right boundary here: SimGrid holds its engine in global
state that cannot be reset, so two simulations in one process would share a clock; searches and sweeps fork workers,
which a process with threads of its own must not; and a process can be interrupted, timed out and limited in memory
without harm to the caller. It costs about 10 ms a call. Calls release Python's lock, so threads run them in parallel;
for many values of a few keys, `sweep` does the same with less.

`_commands.py` has a function for each command, `_program.py` runs the program, and `types.py` has the types of answers.
"""

from motley._commands import Scenario, Setting, check, explain, plan, simulate, sweep
from motley._program import Place, ProgramError, Refusal, find_program, run
from motley import types

__all__ = ["Place", "ProgramError", "Refusal", "Scenario", "Setting", "check", "explain", "find_program", "plan", "run",
           "simulate", "sweep", "types"]

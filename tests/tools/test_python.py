#!/usr/bin/env python3
"""The package motley for Python: its answers are the program's JSON, its types are what that JSON has.

Arguments: the program, the source tree. mypy is optional.
"""

import importlib.util
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import types as python_types
import typing
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
PACKAGE = ROOT / "tools" / "python"
os.environ["MOTLEY_PROGRAM"] = PROGRAM
sys.dont_write_bytecode = True
sys.path.insert(0, str(PACKAGE))

import motley  # noqa: E402  (the path is known only now)
from motley import types  # noqa: E402

SMALL = {"model": "tiny-llama", "cluster": "host-2", "train": {"global_batch": 4, "sequence": 64, "precision": "fp32"},
         "strategy": {"dp": 2}}


def printed(*words, stdin=None):
    done = subprocess.run([PROGRAM, *words, "--json"], capture_output=True, text=True, check=False, timeout=300,
                          stdin=subprocess.DEVNULL if stdin is None else None, input=stdin)
    return json.loads(done.stdout)


def complaints(value, kind, place="answer"):
    """What of a JSON value is not as a type says, as a list of sentences."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if typing.is_typeddict(kind):
        if not isinstance(value, dict):
            return [f"{place} is no dict"]
        hints = typing.get_type_hints(kind)
        wrong = [f"{place} lacks {key}" for key in kind.__required_keys__ - value.keys()]
        wrong += [f"{place} has {key} beside its type" for key in value.keys() - hints.keys()]
        for key in value.keys() & hints.keys():
            wrong += complaints(value[key], hints[key], f"{place}.{key}")
        return wrong
    if origin in (typing.Union, python_types.UnionType):
        return [] if any(not complaints(value, each) for each in inner) else [f"{place} is {value!r}, not {kind}"]
    if origin is list:
        if not isinstance(value, list):
            return [f"{place} is no list"]
        return [wrong for i, each in enumerate(value) for wrong in complaints(each, inner[0], f"{place}[{i}]")]
    if origin is dict:
        return [] if isinstance(value, dict) else [f"{place} is no dict"]
    if kind is float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    elif kind is type(None):
        fits = value is None
    else:
        fits = type(value) is kind
    return [] if fits else [f"{place} is {value!r}, not {kind}"]


def living(group):
    """The processes of a group that have not ended."""
    processes = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_group = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of_group) == group and state not in "ZX":
            processes.append(stat.parent.name)
    return processes


class Package(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def test_answers_are_what_the_program_prints(self):
        self.assertEqual(motley.simulate("quickstart"), printed("simulate", "quickstart"))
        self.assertEqual(motley.check("quickstart"), printed("check", "quickstart"))
        self.assertEqual(motley.explain("quickstart-train", better=1.2),
                         printed("explain", "quickstart-train", "--better", "1.2"))
        ours = motley.plan("quickstart-train", evaluations=5)
        expected = printed("plan", "quickstart-train", "--evaluations", "5")
        ours.pop("search_s"), expected.pop("search_s")
        self.assertEqual(ours, expected)

    def test_a_scenario_is_a_name_a_path_text_or_a_dict(self):
        text = (ROOT / "scenarios" / "quickstart.yaml").read_text(encoding="utf-8")
        path = self.folder / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        named = motley.simulate("quickstart", changes=False)
        for scenario in (path, str(path), text):
            answer = motley.simulate(scenario, changes=False)
            self.assertEqual({**answer, "scenario": ""}, {**named, "scenario": ""})
        answer = motley.simulate(SMALL)
        self.assertEqual(answer, printed("simulate", "-", stdin=json.dumps(SMALL)))
        self.assertEqual(motley.simulate("{model: tiny-llama, cluster: host-2, strategy: {dp: 2}, "
                                         "train: {global_batch: 4, sequence: 64, precision: fp32}}"), answer)
        self.assertEqual(motley.simulate(python_types.MappingProxyType(SMALL)), answer)
        with self.assertRaisesRegex(TypeError, "holds a set"):
            motley.simulate({**SMALL, "train": {"global_batch": {4}}})

    def test_settings_are_numbers_text_lists_and_nothing(self):
        def with_settings(settings):
            return motley.simulate("quickstart", settings, changes=False)["iteration_s"]

        def expected(*words):
            return printed("simulate", "quickstart", "--no-changes", *words)["iteration_s"]

        plain = expected()
        self.assertEqual(with_settings({"strategy.tp": 8, "strategy.dp": 2}),
                         expected("--set", "strategy.tp=8", "--set", "strategy.dp=2"))
        nics = with_settings({"cluster.groups.*.nics.*.bandwidth": "400 Gb/s"})
        self.assertEqual(nics, expected("--set", "cluster.groups.*.nics.*.bandwidth=400 Gb/s"))
        self.assertNotEqual(nics, plain)
        self.assertEqual(with_settings({"strategy.recompute": ["attention"]}),
                         expected("--set", "strategy.recompute=[attention]"))
        self.assertEqual(with_settings({"strategy.recompute": None}), expected("--set", "strategy.recompute="))

    def test_refusals_are_raised_with_kind_place_and_hint(self):
        with self.assertRaises(motley.Refusal) as caught:
            motley.simulate("quickstart", {"strategy.tpp": 8})
        refusal = caught.exception
        expected = printed("simulate", "quickstart", "--set", "strategy.tpp=8")
        self.assertEqual([refusal.kind, refusal.exit_code, refusal.message, refusal.hint],
                         [expected[key] for key in ("kind", "exit_code", "message", "hint")])
        self.assertEqual(vars(refusal.place), expected["place"])
        self.assertTrue(str(refusal).startswith("--set strategy.tpp=8:1:10: "))
        self.assertIn("\n  hint: did you mean `tp`?", str(refusal))
        copy = pickle.loads(pickle.dumps(refusal))
        self.assertEqual((copy.kind, copy.place, str(copy)), (refusal.kind, refusal.place, str(refusal)))
        with self.assertRaises(motley.Refusal) as caught:
            motley.check({**SMALL, "model": "kimi-k2"})
        self.assertEqual(caught.exception.exit_code, 3)
        for ask in (motley.check, motley.explain, motley.plan):
            with self.assertRaises(motley.Refusal):
                ask("no-such-scenario")
        with self.assertRaises(motley.Refusal):
            motley.sweep("quickstart", {"strategy.tp": "1.."})

    def test_a_refusal_may_mean_a_whole_file_and_have_others_beside_it(self):
        other = {"kind": "unknown-key", "place": {"file": "a.yaml", "line": 2, "column": 3}, "message": "second",
                 "hint": "other"}
        document = {"schema": "motley.refusal/1", "kind": "too-large", "exit_code": 2, "message": "first", "hint": None,
                    "place": {"file": "a.yaml", "line": None, "column": None}, "others": [other]}
        self.use_fake(f"echo '{json.dumps(document)}'; exit 2")
        with self.assertRaises(motley.Refusal) as caught:
            motley.simulate("quickstart")
        self.assertEqual(str(caught.exception), "a.yaml: first\na.yaml:2:3: second\n  hint: other")
        self.assertEqual([each.exit_code for each in caught.exception.others], [2])

    def test_rows_of_a_sweep_are_those_of_the_program_and_of_simulate(self):
        axes = {"strategy.tp": [2, 3, 4], "train.micro_batch": "1,2"}
        table = printed("sweep", "quickstart", "--set", "strategy.recompute=full", "--set", "strategy.tp=2,3,4",
                        "--set", "train.micro_batch=1,2", "--front", "time,memory")
        for processes in (1, 2, None):
            rows = motley.sweep("quickstart", axes, set={"strategy.recompute": "full"}, processes=processes,
                                front=["time", "memory"])
            self.assertEqual([{key: row[key] for key in row if key != "set"} for row in rows], table["rows"])
        with ThreadPoolExecutor(2) as pool:
            alone = list(pool.map(lambda row: self.step_of(row["set"]), rows))
        self.assertEqual(alone, [row["figures"]["step_s"] if "figures" in row else row["refused"]["kind"]
                                 for row in rows])
        lists = motley.sweep("quickstart", {"strategy.recompute": [["norms", "attention"], "none"]})
        self.assertEqual([row["set"]["strategy.recompute"] for row in lists], ['["norms", "attention"]', "none"])

    @staticmethod
    def step_of(settings):
        try:
            return motley.simulate("quickstart", settings, changes=False)["iteration_s"]
        except motley.Refusal as refusal:
            return refusal.kind

    def test_types_are_what_the_json_has(self):
        site = {"site": {"pue": 1.2, "electricity": "0.08 USD/kWh", "carbon": "380 g/kWh"}}
        answers = [
            (motley.simulate("quickstart"), types.Simulation),
            (motley.simulate("quickstart", tokens="2T", goodput=0.95, changes=False), types.Simulation),
            (motley.simulate("mixed-fleet", changes=False), types.Simulation),
            (motley.simulate("holmes-hybrid", changes=False), types.Simulation),
            (motley.simulate({**SMALL, **site}), types.Simulation),
            (motley.check("mixed-fleet"), types.Check),
            (motley.explain("quickstart-train"), types.Explanation),
            (motley.explain("holmes-hybrid", changes=False), types.Explanation),
            (motley.plan("quickstart-train", evaluations=5, baselines=True), types.Plan),
        ]
        answers += [(row, types.SweepRow)
                    for row in motley.sweep("quickstart", {"strategy.tp": [3, 4]}, front=["time"])]
        for answer, kind in answers:
            self.assertEqual(complaints(answer, kind), [])
        # The comparison itself sees a key too many, one too few, and a value of another type.
        answer = answers[0][0]
        self.assertEqual(complaints({**answer, "more": 1}, types.Simulation), ["answer has more beside its type"])
        self.assertEqual(complaints({**answer, "chips": "32"}, types.Simulation),
                         ["answer.chips is '32', not <class 'int'>"])
        self.assertEqual(complaints({key: answer[key] for key in answer if key != "mfu"}, types.Simulation),
                         ["answer lacks mfu"])

    def test_the_program_ends_where_its_caller_gives_up(self):
        started = []
        real_popen = subprocess.Popen

        class Noted(real_popen):
            def __init__(self, *words, **options):
                super().__init__(*words, **options)
                started.append(self)

        class Interrupted(Noted):
            asked = False

            def communicate(self, *words, **options):
                if not self.asked:
                    self.asked = True
                    raise KeyboardInterrupt  # as Ctrl-C does
                return super().communicate(*words, **options)

        # One that ends when it is asked to, and one that does not, with a worker that holds its output open.
        for text in ("exec sleep 1000", "trap '' INT\nsleep 1000 &\nwait"):
            self.use_fake(text)
            with mock.patch("motley._program._PATIENCE_S", 0.3):
                with mock.patch("subprocess.Popen", Noted), self.assertRaises(subprocess.TimeoutExpired):
                    motley.simulate("quickstart", timeout=0.1)
                with mock.patch("subprocess.Popen", Interrupted), self.assertRaises(KeyboardInterrupt):
                    motley.simulate("quickstart")
        self.assertEqual(len(started), 4)
        for process in started:
            self.assertIsNotNone(process.poll())
            self.assertEqual(living(process.pid), [])

    def use_fake(self, text):
        """Makes a shell script the program for the rest of this test."""
        fake = self.folder / "motley"
        fake.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        fake.chmod(0o755)
        patch = mock.patch.dict(os.environ, {"MOTLEY_PROGRAM": str(fake)})
        patch.start()
        self.addCleanup(patch.stop)

    def test_the_program_is_found_where_it_may_stand(self):
        with mock.patch.dict(os.environ, {"MOTLEY_PROGRAM": "/nowhere/motley"}), \
                self.assertRaisesRegex(motley.ProgramError, "no program"):
            motley.find_program()
        prefix = self.folder / "prefix"
        installed = prefix / "lib" / "python3" / "dist-packages" / "motley"
        shutil.copytree(PACKAGE / "motley", installed, ignore=shutil.ignore_patterns("__pycache__"))
        ask = "import motley; print(motley.find_program())"

        def program_seen(**variables):
            environment = {"PATH": str(self.folder / "bin"), "PYTHONPATH": str(installed.parent), **variables}
            return subprocess.run([sys.executable, "-B", "-c", ask], capture_output=True, text=True, env=environment,
                                  check=False)

        self.assertIn("put it on PATH", program_seen().stderr)
        for folder in (prefix / "bin", self.folder / "bin"):  # PATH comes before the package's own prefix
            folder.mkdir()
            (folder / "motley").symlink_to(PROGRAM)
            self.assertEqual(program_seen().stdout.strip(), str(folder / "motley"))
        self.assertEqual(program_seen(MOTLEY_PROGRAM=PROGRAM).stdout.strip(), PROGRAM)

    def test_another_program_is_no_answer(self):
        for text, message in (("echo no JSON", "no JSON: it printed nothing"),
                              ("echo no JSON; echo broken >&2; exit 1", "exit code 1 and no JSON: broken"),
                              ("""echo '{"schema": "motley.simulate/9"}'""", "answers with schema motley.simulate/9")):
            self.use_fake(text)
            with self.assertRaisesRegex(motley.ProgramError, message):
                motley.simulate("quickstart")

    def test_every_example_runs(self):
        for example in sorted((PACKAGE / "examples").glob("*.py")):
            done = subprocess.run([sys.executable, "-B", example], capture_output=True, text=True, check=False,
                                  cwd=self.folder, env={**os.environ, "PYTHONPATH": str(PACKAGE)}, timeout=300)
            self.assertEqual((done.returncode, done.stderr), (0, ""), example.name)
            self.assertIn("did you mean `tensor_parallel`?", done.stdout)
            self.assertNotIn("Traceback", done.stdout)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not here; tools/test --all installs it")
    def test_types_hold(self):
        done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", self.folder, PACKAGE / "motley",
                               PACKAGE / "examples"], capture_output=True, text=True, check=False, cwd=PACKAGE,
                              env={**os.environ, "MYPYPATH": str(PACKAGE)})
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""JSON Schema of files, beside what their readers take: every file that ships, and many that were changed at random.

Arguments: the program, the source tree. Needs python3-jsonschema and python3-yaml; without them it is skipped.
"""

import copy
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing}; tools/test --all installs it")
    sys.exit(77)

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, FAILED, USAGE, INFEASIBLE = range(4)


class Loader(yaml.SafeLoader):
    """YAML 1.2, as Motley reads it: `on` is a word, 1e-3 is a number, 2026-11-01 is text."""


Loader.yaml_implicit_resolvers = {}
for tag, pattern, first in (
        ("null", r"^(~|null|Null|NULL|)$", ["~", "n", "N", ""]),
        ("bool", r"^(true|false)$", list("tf")),
        ("int", r"^-?(0|[1-9][0-9]*)$", list("-0123456789")),
        ("float", r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$", list("-0123456789"))):
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), first)
Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(node.value))


def load(text):
    return yaml.load(text, Loader)


def motley(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=ROOT,
                          stdin=subprocess.DEVNULL, timeout=300, check=False)


def places(node, path=()):
    """The path of every value, and the value."""
    yield path, node
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in children:
        yield from places(value, path + (key,))


def at(node, path):
    for key in path:
        node = node[key]
    return node


class Schema(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.validators = {}
        for kind in ("scenario", "cluster", "chip", "software"):
            schema = json.loads(motley("schema", kind).stdout)
            jsonschema.Draft7Validator.check_schema(schema)
            cls.validators[kind] = jsonschema.Draft7Validator(schema)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def shipped(self, kind):
        folder = {"scenario": "scenarios", "cluster": "platforms", "chip": "platforms/chips",
                  "software": "platforms/software"}[kind]
        files = sorted((ROOT / folder).glob("*.yaml"))
        self.assertGreater(len(files), 5)
        return files

    def test_every_file_that_ships_is_valid(self):
        for kind, validator in self.validators.items():
            for file in self.shipped(kind):
                errors = [f"{'/'.join(map(str, error.path))}: {error.message[:200]}"
                          for error in validator.iter_errors(load(file.read_text()))]
                self.assertEqual([], errors, file.name)

    def test_no_key_is_without_its_form(self):
        def without_form(node, path):
            if isinstance(node, dict):
                for key, value in node.items():
                    if key == "properties":
                        for name, form in value.items():
                            if form is True:
                                yield f"{path}/{name}"
                            yield from without_form(form, f"{path}/{name}")
                    else:
                        yield from without_form(value, path)
            elif isinstance(node, list):
                for value in node:
                    yield from without_form(value, path)
        for kind, validator in self.validators.items():
            with self.subTest(kind):
                self.assertEqual([], sorted(set(without_form(validator.schema, kind))))

    def test_keys_say_what_they_are(self):
        text = json.dumps(self.validators["scenario"].schema)
        self.assertIn("sequences in a step, over all replicas", text)

    def judged(self, kind, document):
        """The kind of the reader's refusal; None: it takes the file, as far as its form goes."""
        file = self.folder / "changed.yaml"
        if kind == "chip":
            chip = self.folder / "changed-chip.yaml"
            chip.write_text(json.dumps(document))
            document = {"groups": [{"name": "a", "nodes": 1, "chip": str(chip), "chips_per_node": 1,
                                    "inside": {"fabric": "loopback", "bandwidth": "1 GB/s"}}]}
        file.write_text(json.dumps(document))
        if kind == "scenario":
            answer = motley("plan", file, "--evaluations", "0", "--json")
        else:
            answer = motley("show", "cluster", file, "--json")
        first = answer.stderr.split("\n")[0]
        # A plan that judges nothing is refused once its file has been read.
        return None if answer.returncode == OK or "--evaluations" in first else first

    def change(self, dice, document):
        """One change of the form: a misspelt key, a missing one, another type, no unit, a word that nobody knows,
        a number beyond its bounds."""
        changed = copy.deepcopy(document)
        paths = [path for path, _ in places(changed) if path]
        path = dice.choice(paths)
        holder, key = at(changed, path[:-1]), path[-1]
        way = dice.choice(["misspell", "remove", "map", "list", "word", "bare", "beyond"])
        value = holder[key]
        if way == "misspell" and isinstance(holder, dict):
            holder[str(key) + "x"] = holder.pop(key)
        elif way == "remove" and isinstance(holder, dict):
            del holder[key]
        elif way == "map":
            holder[key] = {"x": 1}
        elif way == "list":
            holder[key] = [["x"]]
        elif way == "word" and isinstance(value, (int, float, bool)):
            holder[key] = "banana"
        elif way == "bare" and isinstance(value, str) and re.match(r"^[0-9.]+ ?[A-Za-z]", value):
            holder[key] = float(re.match(r"^[0-9.]+", value).group())
        elif way == "beyond" and isinstance(value, (int, float)) and not isinstance(value, bool):
            holder[key] = dice.choice([-1, 0, 1.5, 9, 5000, 10**9])
        else:
            return None, None
        return changed, f"{way} {'/'.join(map(str, path))}"

    def test_changed_files_are_judged_alike(self):
        most = 12 if "MOTLEY_SANITIZED" in os.environ else 70  # of each kind
        dice = random.Random(20261127)
        counts = {"taken": 0, "refused": 0}
        for kind in ("scenario", "cluster", "chip"):
            files = [file for file in self.shipped(kind) if "100k" not in file.name and "16384" not in file.name]
            tried = 0
            while tried < most:
                file = dice.choice(files)
                document = load(file.read_text())
                changed, how = self.change(dice, document)
                if changed is None:
                    continue
                tried += 1
                refusal = self.judged(kind, changed)
                valid = self.validators[kind].is_valid(changed)
                with self.subTest(f"{file.name}: {how}: {refusal}"):
                    if refusal is None:
                        self.assertTrue(valid)
                        counts["taken"] += 1
                    elif any(words in refusal for words in FORM_WORDS) and not any(
                            words in refusal for words in NEEDED_NOW_AND_THEN):
                        self.assertFalse(valid)
                        counts["refused"] += 1
        self.assertGreater(counts["refused"], most, counts)
        self.assertGreater(counts["taken"], most // 10, counts)


# What refusals of a file's form say. All others are of what it means, which a schema does not know.
FORM_WORDS = ["has no key", "needs a value for", "expected ", "has no unit", "is out of bounds"]

# Keys that are needed because of another key, which a schema of one map does not tell.
NEEDED_NOW_AND_THEN = [f"needs a value for `{key}`"
                       for key in ("bandwidth", "link", "socket_link", "inside", "chips_per_node")]


if __name__ == "__main__":
    unittest.main(verbosity=2)

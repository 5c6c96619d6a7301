#!/usr/bin/env python3
"""Taste that a test can hold: the order of the folders, lengths, headers, words, dead files.

Reads the files of the source tree (argument 1) and knows nothing of C++ beyond its lines, so a rule
that needs a parser is not here: clang-tidy has those. Run by CTest as "tidy: ...".
"""

import collections
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

# A folder may include what stands on its right (tests may include everything).
MAY_INCLUDE = {
    "models": {"models"},
    "hw": {"hw", "models"},
    "sim": {"sim", "models"},
    "tools": {"tools", "sim", "hw", "models"},
    "tests": {"tests", "tools", "sim", "hw", "models"},
}
# Third-party headers and the only folders that may include them.
LIVES_IN = {
    r"simgrid/|xbt/": {"sim", "tests"},
    r"cuda|hip/|nccl|cudnn|infiniband/|rdma/|sys/socket|netinet/": {"hw", "tests"},
    r"yaml-cpp/": {"models"},
    r"CLI/|spdlog/": {"tools"},
    r"ceres/|Eigen/": {"tools", "tests"},
}
# models/ has no clock and no threads.
NOT_IN_MODELS = r"<(thread|mutex|condition_variable|chrono|future|ctime|random_device)>"

LINE_LENGTH = 120  # clang-format keeps code below its ColumnLimit; comments may be this long
CODE_LENGTH = 600  # lines of a file
FUNCTION_LENGTH = 70  # lines of a function, signature and braces included

SOURCE_FOLDERS = ("models", "sim", "hw", "tools", "tests")
CODE = {".cpp", ".hpp", ".cu", ".py"}
DATA = {".yaml", ".json", ".md", ".txt", ".cmake"}


def files():
    for folder in SOURCE_FOLDERS + ("platforms", "scenarios", ".ci"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path
    for path in sorted(ROOT.iterdir()):
        if path.is_file():
            yield path


def is_script(path):
    return path.suffix == "" and path.read_bytes()[:2] == b"#!"


def text_files():
    for path in files():
        if "refusals" in path.relative_to(ROOT).parts[:2] and path.suffix != ".md":
            continue  # bad on purpose, not even UTF-8
        if path.suffix in CODE | DATA | {".sh"} or is_script(path):
            yield path, path.read_text(encoding="utf-8")


def code_files():
    for path, text in text_files():
        if path.suffix in CODE:
            yield path, text


def name(path):
    return str(path.relative_to(ROOT))


def includes(text):
    return re.findall(r'^\s*#include\s+["<]([^">]+)[">]', text, re.M)


def functions(text):
    """(first line, count of lines) of what begins at the left margin, as clang-format lays it."""
    lines = text.split("\n")
    start = None
    header = ""
    for i, line in enumerate(lines):
        if start is None:
            if re.match(r"[A-Za-z_\[~:]", line) and not line.startswith(("namespace", "using")):
                start, header = i, line
        elif line[:1] not in (" ", "}", ")", "#", "") and not lines[i - 1].endswith(("{", ",")):
            start, header = i, line
        if start is not None and line.rstrip().endswith(";") and not line.startswith((" ", "}")):
            start = None
        if start is not None and line.startswith("}"):
            is_type = re.match(r"(template.*>\s*)?(struct|class|enum|union|extern)\b", header)
            if not is_type and not line.startswith("};"):
                yield start + 1, i - start + 1
            start = None


def looped_over(text):
    """What stands behind the colon of each range-for whose head is one line."""
    for head in re.finditer(r"for \([^;()]*? : ", text):
        depth, end = 1, head.end()
        while depth > 0 and end < len(text) and text[end] not in ";\n":
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if depth == 0:
            yield text[head.end() : end - 1]


class Tidy(unittest.TestCase):
    def none(self, found):
        self.assertEqual([], list(found), "\n" + "\n".join(map(str, found)))

    def test_a_folder_includes_only_the_folders_below_it(self):
        found = []
        for path, text in code_files():
            folder = path.relative_to(ROOT).parts[0]
            for include in includes(text):
                first = include.split("/")[0]
                if "/" in include and first in MAY_INCLUDE and first not in MAY_INCLUDE[folder]:
                    found.append(f"{name(path)} includes {include}")
        self.none(found)

    def test_a_library_is_included_only_where_it_lives(self):
        found = []
        for path, text in code_files():
            folder = path.relative_to(ROOT).parts[0]
            for include in includes(text):
                for pattern, homes in LIVES_IN.items():
                    if re.match(pattern, include) and folder not in homes:
                        found.append(f"{name(path)} includes <{include}>")
        self.none(found)

    def test_models_have_no_clock_and_no_threads(self):
        found = [
            f"{name(path)} includes {match}"
            for path, text in code_files()
            if name(path).startswith("models/")
            for match in re.findall(r"#include " + NOT_IN_MODELS, text)
        ]
        self.none(found)

    def test_headers_are_included_by_their_path_from_the_root(self):
        found = []
        for path, text in code_files():
            for include in re.findall(r'^\s*#include\s+"([^"]+)"', text, re.M):
                if not (ROOT / include).is_file():
                    found.append(f"{name(path)} includes {include}")
        self.none(found)

    def test_no_range_for_goes_through_a_part_of_what_a_call_returned(self):
        # `for (x : f().part[0])`: before C++23 what f() returned is gone when the loop begins.
        found = [
            f"{name(path)}: for (... : {source})"
            for path, text in code_files()
            if path.suffix != ".py"
            for source in looped_over(text)
            if re.match(r"(?!std::move)[\w:]+\((?!.*->).*\)\.\w+.*[\[(]", source)
        ]
        self.none(found)

    def test_no_line_is_longer_than_120_characters(self):
        found = []
        for path, text in text_files():
            if path.suffix in CODE | {".sh"} or is_script(path):
                for i, line in enumerate(text.split("\n"), 1):
                    if len(line) > LINE_LENGTH and "http" not in line:
                        found.append(f"{name(path)}:{i} has {len(line)}")
        self.none(found)

    def test_no_file_is_longer_than_600_lines(self):
        found = [
            f"{name(path)} has {text.count(chr(10))}"
            for path, text in code_files()
            if text.count("\n") > CODE_LENGTH
        ]
        self.none(found)

    def test_no_function_is_longer_than_70_lines(self):
        found = [
            f"{name(path)}:{line} has {count}"
            for path, text in code_files()
            if path.suffix in {".cpp", ".cu"} and not name(path).startswith("tests/")
            for line, count in functions(text)
            if count > FUNCTION_LENGTH
        ]
        self.none(found)

    def test_the_function_counter_counts(self):
        long = "int f(int a,\n      int b) {\n" + "  g();\n" * 80 + "}\n"
        self.assertEqual([(1, 83)], list(functions(long)))
        self.assertEqual([], list(functions("struct A {\n" + "  int a;\n" * 80 + "};\n")))
        short = "const int a = 1;\n\nint f() {\n  return 1;\n}\n"
        self.assertEqual([(3, 3)], list(functions(short)))
        table = "const std::vector<int> t = {\n" + "    1,\n" * 80 + "};\n"
        self.assertEqual([], list(functions(table)))

    def test_every_file_begins_by_saying_what_it_is(self):
        found = []
        for path, text in code_files():
            twin = path.with_suffix(".hpp")
            if path.suffix == ".cpp" and twin.is_file():
                continue  # said in the header
            first = next((line for line in text.split("\n") if line and line[:2] != "#!"), "")
            if not first.startswith(("//", '"""')):
                found.append(name(path))
        for path, text in text_files():
            if is_script(path) and path.suffix == "" and not text.split("\n")[1].startswith("# "):
                found.append(name(path))
        self.none(found)

    def test_no_promise_is_left_in_a_comment(self):
        words = ["TO" + "DO", "FIX" + "ME", "XX" + "X:", "HA" + "CK", "not " + "implemented",
                 "place" + "holder", "for now" + ",", "lorem " + "ipsum"]
        found = [
            f"{name(path)}:{i} says {word}"
            for path, text in text_files()
            for i, line in enumerate(text.split("\n"), 1)
            for word in words
            if word in line
        ]
        self.none(found)

    def test_no_file_names_a_path_of_the_machine_it_was_written_on(self):
        pattern = re.compile(r"""(?<![\w.$}/])/(home|work|root|Users|mnt)/\w""")
        found = [
            f"{name(path)}:{i} {line.strip()[:80]}"
            for path, text in text_files()
            for i, line in enumerate(text.split("\n"), 1)
            if pattern.search(line)
        ]
        self.none(found)

    def test_no_file_is_dead(self):
        """Every header is included, every script, module and Python file is named somewhere."""
        said = collections.Counter()
        texts = dict(text_files())
        for path, text in texts.items():
            for include in includes(text):
                said[include] += 1
        found = [
            name(path)
            for path in texts
            if path.suffix == ".hpp" and said[name(path)] == 0
        ]
        for path in texts:
            if path.suffix in {".py", ".sh", ".cmake"} or is_script(path):
                if name(path) == ".ci/run":
                    continue
                stem = path.stem if path.suffix == ".cmake" else path.name
                # tests/CMakeLists.txt names test_x.py by x.
                stem = re.sub(r"^test_(\w+)\.py$", r"\1", stem)
                word = re.compile(r"(?<![\w-])" + re.escape(stem) + r"(?![\w-])")
                if not any(word.search(t) for p, t in texts.items() if p != path):
                    found.append(name(path))
        self.none(found)

    def test_no_text_has_trailing_space_or_tabs_or_lacks_its_last_newline(self):
        found = []
        for path, text in text_files():
            if path.suffix == ".txt" or "refusals" in path.parts:
                continue  # data as it came
            if text and not text.endswith("\n"):
                found.append(f"{name(path)} lacks its last newline")
            for i, line in enumerate(text.split("\n"), 1):
                if line != line.rstrip() or "\t" in line:
                    found.append(f"{name(path)}:{i}")
        self.none(found)

    def test_python_runs_with_the_standard_library_alone_but_for_torch(self):
        allowed = set(sys.stdlib_module_names) | {"torch"}
        found = []
        for path, text in code_files():
            if path.suffix == ".py":
                for module in re.findall(r"^\s*(?:import|from) (\w+)", text, re.M):
                    if module not in allowed and not (path.parent / f"{module}.py").is_file():
                        found.append(f"{name(path)} imports {module}")
        self.none(found)


if __name__ == "__main__":
    unittest.main()

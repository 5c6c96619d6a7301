#!/usr/bin/env python3
"""Rules of taste that a test can check: the order of the folders, lengths, headers, words, dead files.

It reads the files of the source tree (argument 1) line by line and does not parse C++ (cpp_lines.py says what it
sees there); rules that need a parser are left to clang-tidy. CTest runs it as "tidy".
"""

import collections
import functools
import itertools
import pathlib
import re
import sys
import unittest

from cpp_lines import definitions, draws_in_arguments, functions, types, types_by_name, unexplained_sentinels

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

# The folders whose files each folder may include.
MAY_INCLUDE = {
    "models": {"models"},
    "hw": {"hw", "models"},
    "sim": {"sim", "models"},
    "tools": {"tools", "sim", "hw", "models"},
    "tests": {"tests", "tools", "sim", "hw", "models"},
}
# Headers of other projects, and the only folders that may include them.
LIVES_IN = {
    r"simgrid/|xbt/": {"sim", "tests"},
    r"cuda|hip/|nccl|cudnn|infiniband/|rdma/|sys/socket|netinet/": {"hw", "tests"},
    r"yaml-cpp/": {"models"},
    r"CLI/|spdlog/": {"tools"},
    r"ceres/|Eigen/": {"tools", "tests"},
}
# models/ has no clock and no threads.
NOT_IN_MODELS = r"<(thread|mutex|condition_variable|chrono|future|ctime|random_device)>"

LINE_LENGTH = 120  # comments may be this long; clang-format keeps code below its ColumnLimit
CODE_LENGTH = 600  # lines of a file
FUNCTION_LENGTH = 70  # lines of a function, signature and braces included
TYPE_LENGTH = 250  # lines of a class or struct

SOURCE_FOLDERS = ("models", "sim", "hw", "tools", "tests")
TOP_FOLDERS = SOURCE_FOLDERS + ("platforms", "scenarios")
CODE = {".cpp", ".hpp", ".cu", ".py"}
DATA = {".yaml", ".json", ".md", ".txt", ".cmake"}


@functools.cache
def files():
    return list(walk())


def walk():
    for folder in TOP_FOLDERS + (".ci",):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path
    for path in sorted(ROOT.iterdir()):
        if path.is_file():
            yield path


def is_script(path):
    return path.suffix == "" and path.read_bytes()[:2] == b"#!"


@functools.cache
def text_files():
    return [
        (path, path.read_text(encoding="utf-8"))
        for path in files()
        if path.suffix in CODE | DATA | {".sh"} or is_script(path)
    ]


def code_files():
    for path, text in text_files():
        if path.suffix in CODE:
            yield path, text


def name(path):
    return str(path.relative_to(ROOT))


def includes(text):
    return re.findall(r'^\s*#include\s+["<]([^">]+)[">]', text, re.M)


# A word that begins like a path of this tree and is not a part of a longer path or of an address.
PATH = re.compile(r"(?<![\w./<>${}:-])(?:%s)/[\w./*<>{},+-]*" % "|".join(TOP_FOLDERS))


def comments(path, text):
    """(line, text) of the text for people: comments in code and scripts, every line in data and documents."""
    if path.suffix in {".cpp", ".hpp", ".cu"}:
        mark = re.compile(r"(?<!:)//(.*)")
    elif path.suffix in {".py", ".sh", ".cmake"} or path.name == "CMakeLists.txt" or is_script(path):
        mark = re.compile(r"#(.*)")
    else:
        mark = re.compile(r"(.*)")
    header = path.suffix == ".py" and re.match(r'(#!.*\n)?"""(.|\n)*?"""', text)
    last_of_header = header.group().count("\n") + 1 if header else 0
    for i, line in enumerate(text.split("\n"), 1):
        match = mark.search(line)
        if match or i <= last_of_header:
            yield i, line if i <= last_of_header else match.group(1)


def paths_named(comment):
    return [word.rstrip(".,-") for word in PATH.findall(comment)]


def is_there(path):
    """Whether the tree has a path, or any file of its form (*.cpp, <name>.yaml, {cpp,hpp}, NAME.yaml)."""
    if (ROOT / path).exists():
        return True
    form = re.sub(r"<[^<>/]*>|\{[^{}/]*\}|\b[A-Z][A-Z_]+\b", "*", path)
    return "*" in form and any(ROOT.glob(form))


# Names that do not say what a variable holds.
EMPTY_NAMES = r"(?:of|made|found|said)_?"
NO_TYPE = {"return", "throw", "else", "case", "delete", "new", "in", "not", "and", "or", "is", "if", "assert", "yield",
           "await", "lambda", "co_return", "co_yield"}


def empty_names(path, text):
    """(line, name) of each declaration of such names: after a type in C++; an assignment, loop, argument in Python."""
    is_python = path.suffix == ".py" or is_script(path)
    strings = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    for i, line in enumerate(text.split("\n"), 1):
        code = re.sub(strings, '""', line)
        code = re.sub(r"#.*" if is_python else r"//.*", "", code)
        if is_python:
            pattern = rf"(?:^|[\s(,])({EMPTY_NAMES})(?:,[\w ,]*)? = |\bfor [\w, ]*\b({EMPTY_NAMES})\b[\w, ]* in\b" \
                      rf"|\bdef ({EMPTY_NAMES})\(|\bdef \w+\(.*\b({EMPTY_NAMES})\b|\bas ({EMPTY_NAMES})\b"
        else:
            pattern = rf"(?<![.>])\b(?!(?:{'|'.join(NO_TYPE)})\b)[\w>]+[&*]*\s+({EMPTY_NAMES})\s*" \
                      rf"(?:[;,:)(\[{{]|=(?!=)|$)" \
                      rf"|, ({EMPTY_NAMES}) = |\bauto&*\s*\[(?:[\w ,]*\b)?({EMPTY_NAMES})\b"
        for match in re.finditer(pattern, code):
            yield i, next(filter(None, match.groups()))


def rooms():
    """{room: (whether folders inside it are part of it, the rooms it links)}, from motley_room in CMakeLists.txt."""
    calls = {}
    for call in re.findall(r"motley_room\(([^)]*)\)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")):
        folder, *words = call.split()
        below = words[words.index("BELOW") + 1 :] if "BELOW" in words else []
        below = itertools.takewhile(lambda word: word not in {"PUBLIC", "PRIVATE"}, below)
        calls[folder] = "INNER" in words, list(below)
    return calls


def room_of(path):
    """The room of a source file: the nearest folder above it that is a room. None: it is in no room."""
    above = map(str, path.relative_to(ROOT).parents)
    return next((folder for folder in above if folder in ROOMS), None)


def rooms_below(room):
    """The rooms that a room links, directly or through others."""
    below = set(ROOMS[room][1])
    return below.union(*(rooms_below(other) for other in below if other in ROOMS))


ROOMS = rooms()


def looped_over(text):
    """The expression after the colon of each range-for whose head is one line."""
    for head in re.finditer(r"for \([^;()]*? : ", text):
        depth, end = 1, head.end()
        while depth > 0 and end < len(text) and text[end] not in ";\n":
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if depth == 0:
            yield text[head.end() : end - 1]

PAGES = {"refusals", "answers"}  # folders of tests/ whose pages quote what programs print


class Tidy(unittest.TestCase):
    def none(self, violations):
        violations = list(violations)
        self.assertEqual([], violations, "\n" + "\n".join(map(str, violations)))

    def test_a_folder_includes_only_the_folders_below_it(self):
        violations = []
        for path, text in code_files():
            folder = path.relative_to(ROOT).parts[0]
            for include in includes(text):
                first = include.split("/")[0]
                if "/" in include and first in MAY_INCLUDE and first not in MAY_INCLUDE[folder]:
                    violations.append(f"{name(path)} includes {include}")
        self.none(violations)

    def test_a_room_is_declared_after_the_rooms_that_it_links(self):
        order = list(ROOMS)
        violations = [
            f"CMakeLists.txt: {room} BELOW {other}"
            for room, (_, below) in ROOMS.items()
            for other in below
            if other not in order[: order.index(room)]
        ]
        self.none(violations)

    def test_a_room_includes_only_itself_and_the_rooms_that_it_links(self):
        allowed = {room: {room, None} | rooms_below(room) for room in ROOMS}
        violations = [
            f"{name(path)} includes {include}"
            for path, text in code_files()
            if room_of(path) is not None
            for include in includes(text)
            if room_of(ROOT / include) not in allowed[room_of(path)]
        ]
        self.none(violations)

    def test_every_folder_of_sources_inside_a_folder_is_a_room(self):
        violations = set()
        for path, _ in code_files():
            folder = name(path.parent)
            if path.suffix in {".cpp", ".hpp"} and "/" in folder and not folder.startswith("tests/"):
                room = room_of(path)
                if room is None or (room != folder and not ROOMS[room][0]):
                    violations.add(folder)
        self.none(sorted(violations))

    def test_the_readme_has_one_row_for_each_room_above_the_rooms_that_it_links(self):
        rows = re.findall(r"^\| `([\w/]+)/` \| .+ \|$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
        violations = [f"{row}/ is no folder" for row in rows if not (ROOT / row).is_dir()]
        for room, (_, below) in ROOMS.items():
            if rows.count(room) != 1:
                violations.append(f"{room}/ has {rows.count(room)} rows")
            for other in set(below).intersection(rows):
                if room in rows and rows.index(room) > rows.index(other):
                    violations.append(f"{room}/ stands under {other}/")
        self.none(violations)

    def test_a_library_is_included_only_where_it_lives(self):
        violations = []
        for path, text in code_files():
            folder = path.relative_to(ROOT).parts[0]
            for include in includes(text):
                for pattern, homes in LIVES_IN.items():
                    if re.match(pattern, include) and folder not in homes:
                        violations.append(f"{name(path)} includes <{include}>")
        self.none(violations)

    def test_models_have_no_clock_and_no_threads(self):
        violations = [
            f"{name(path)} includes {match}"
            for path, text in code_files()
            if name(path).startswith("models/")
            for match in re.findall(r"#include " + NOT_IN_MODELS, text)
        ]
        self.none(violations)

    def test_headers_are_included_by_their_path_from_the_root(self):
        violations = []
        for path, text in code_files():
            for include in re.findall(r'^\s*#include\s+"([^"]+)"', text, re.M):
                if not (ROOT / include).is_file():
                    violations.append(f"{name(path)} includes {include}")
        self.none(violations)

    def test_no_range_for_goes_through_a_part_of_what_a_call_returned(self):
        # `for (x : f().part[0])`: before C++23 the value that f() returned no longer exists when the loop begins.
        violations = [
            f"{name(path)}: for (... : {source})"
            for path, text in code_files()
            if path.suffix != ".py"
            for source in looped_over(text)
            if re.match(r"(?!std::move)[\w:]+\((?!.*->).*\)\.\w+.*[\[(]", source)
        ]
        self.none(violations)

    def test_no_line_is_longer_than_120_characters(self):
        violations = []
        for path, text in text_files():
            if path.suffix in CODE | {".sh"} or is_script(path):
                for i, line in enumerate(text.split("\n"), 1):
                    if len(line) > LINE_LENGTH and "http" not in line:
                        violations.append(f"{name(path)}:{i} has {len(line)}")
        self.none(violations)

    def test_no_file_is_longer_than_600_lines(self):
        violations = [
            f"{name(path)} has {text.count(chr(10))}"
            for path, text in code_files()
            if text.count("\n") > CODE_LENGTH
        ]
        self.none(violations)

    def too_long(self, limit, definitions_of):
        self.none(
            f"{name(path)}:{line} has {count}"
            for path, text in code_files()
            if path.suffix in {".cpp", ".hpp", ".cu"} and not name(path).startswith("tests/")
            for line, count in definitions_of(text)
            if count > limit
        )

    def test_no_function_is_longer_than_70_lines(self):
        self.too_long(FUNCTION_LENGTH, functions)

    def test_no_class_is_longer_than_250_lines(self):
        self.too_long(TYPE_LENGTH, types)

    def test_the_function_counter_counts(self):
        long = "int f(int a,\n      int b) {\n" + "  g();\n" * 80 + "}\n"
        self.assertEqual([(1, 83)], list(functions(long)))
        self.assertEqual([], list(functions("struct A {\n" + "  int a;\n" * 80 + "};\n")))
        short = "const int a = 1;\n\nint f() {\n  return 1;\n}\n"
        self.assertEqual([(3, 3)], list(functions(short)))
        table = "const std::vector<int> t = {\n" + "    1,\n" * 80 + "};\n"
        self.assertEqual([], list(functions(table)))

    def test_the_function_counter_looks_into_classes(self):
        text = (
            "// A comment that ends with a comma,\n"
            "class A : public B {\n"
            " public:\n"
            "  A(int a,\n    int b)\n      : a_(a) {\n" + "    g();\n" * 80 + "  }\n"
            "  int f() const { return a_; }  // of one line,\n"
            "  bool h(\n      int a);\n"
            "\n"
            " private:\n"
            "  struct Inner {\n    int k() {\n" + "      g();\n" * 90 + "    }\n  };\n"
            "  int a_ = 0;\n"
            "};\n"
            "\n"
            "int f() { return 1; }\n"
            "}  // namespace\n"
        )
        self.assertEqual([(4, 84), (88, 1), (94, 92), (190, 1)], functions(text))
        self.assertEqual([(2, 187), (93, 94)], types(text))

    def test_no_type_is_defined_in_two_files(self):
        # Two types of one name in one program are undefined behaviour, and neither compiler nor linker reports them.
        files_by_type = collections.defaultdict(list)
        for path, text in code_files():
            if path.suffix in {".cpp", ".hpp", ".cu"}:
                for each in types_by_name(text):
                    files_by_type[each].append(name(path))
        self.none(f"{each}: {', '.join(paths)}" for each, paths in files_by_type.items() if len(paths) > 1)

    def test_types_are_known_by_their_namespaces(self):
        text = (
            "class Declared;\nnamespace a::b {\nstruct One {};\nnamespace {\nclass Hidden {\n};\n}  // namespace\n"
            "enum class Two : int { x };\ntemplate <typename T>\nclass Three\n    : public One {\n"
            "  struct Inner {};\n};\nstruct One f() {\n}\n}  // namespace a::b\n"
            "template <>\nstruct std::hash<a::b::One> {\n};\n"
        )
        self.assertEqual(["a::b::One", "a::b::Two", "a::b::Three", "std::hash<a::b::One>"], list(types_by_name(text)))

    def test_no_header_has_a_minus_one_that_no_comment_explains(self):
        self.none(
            f"{name(path)}:{line} {text.splitlines()[line - 1].strip()}"
            for path, text in code_files()
            if path.suffix == ".hpp"
            for line in unexplained_sentinels(text)
        )

    def test_a_minus_one_is_explained_beside_it_or_above(self):
        text = (
            "int a = -1;  // -1: none\n// -1 where a row is padding.\nint b = -1;\nint c = -1, d = -1;\n"
            "int e = 0;  // R-1 steps\nint f = -1;\nvoid g(int h = -1);  // by rank\nint i;  // by rank; -1\n"
        )
        self.assertEqual([6, 7, 8], list(unexplained_sentinels(text)))

    def test_names_say_what_a_variable_holds(self):
        self.none(
            f"{name(path)}:{line} {word}"
            for path, text in text_files()
            if path.suffix in CODE or is_script(path)
            for line, word in empty_names(path, text)
        )

    def test_empty_names_are_seen_where_they_are_declared(self):
        code = (
            "const auto made = f();\nif (T* found = g(); found != x) return found;\nvoid h(const T& of, int a = 0);\n"
            "for (const auto& said : all)\n  int found_;\nconst auto [at, made] = m.insert(x);\n// auto found = 1;\n"
            "table.found = 1;\nint a = 0, made = 1;\nreturn found;\n"
        )
        cpp = [line for line, _ in empty_names(pathlib.Path("a.cpp"), code)]
        self.assertEqual([1, 2, 3, 4, 5, 6, 9], cpp)
        code = "found = 1\nfor made in f(found):\ndef said(x):\ndef f(a, of):\nreturn found\nx = found\na, made = g()\n"
        python = [line for line, _ in empty_names(pathlib.Path("a.py"), code)]
        self.assertEqual([1, 2, 3, 4, 7], python)

    def test_no_two_arguments_of_a_call_draw(self):
        # The compiler chooses which argument draws first: what is drawn belongs into variables before the call.
        self.none(
            f"{name(path)}:{line}"
            for path, text in code_files()
            if path.suffix in {".cpp", ".hpp"}
            for line in draws_in_arguments(text)
        )

    def test_draws_are_seen_in_arguments(self):
        code = (
            "f(1,\n  dice.one_of({1, 2}),\n  g(dice.once_in(2)));\na;\nf(random(), random() % 6);\n"
            "f(dice.one_of({1, 2}), 3), g(dice.once_in(2));\nShape shape{dice.once_in(2), dice.once_in(2)};\n"
            "f(\"random(), random()\", 1);  // f(random(), random())\n"
        )
        self.assertEqual([1, 5], list(draws_in_arguments(code)))

    def test_every_file_begins_by_saying_what_it_is(self):
        violations = []
        for path, text in code_files():
            twin = path.with_suffix(".hpp")
            if path.suffix == ".cpp" and twin.is_file():
                continue  # the header has the description
            first = next((line for line in text.split("\n") if line and line[:2] != "#!"), "")
            if not first.startswith(("//", '"""')):
                violations.append(name(path))
        for path, text in text_files():
            if is_script(path) and path.suffix == "" and not text.split("\n")[1].startswith("# "):
                violations.append(name(path))
        self.none(violations)

    def test_no_promise_is_left_in_a_comment(self):
        words = ["TO" + "DO", "FIX" + "ME", "XX" + "X:", "HA" + "CK", "not " + "implemented",
                 "place" + "holder", "for now" + ",", "lorem " + "ipsum"]
        violations = [
            f"{name(path)}:{i} says {word}"
            for path, text in text_files()
            for i, line in enumerate(text.split("\n"), 1)
            for word in words
            if word in line
        ]
        self.none(violations)

    def test_no_file_names_a_path_of_the_machine_it_was_written_on(self):
        pattern = re.compile(r"""(?<![\w.$}/])/(home|work|root|Users|mnt)/\w""")
        violations = [
            f"{name(path)}:{i} {line.strip()[:80]}"
            for path, text in text_files()
            for i, line in enumerate(text.split("\n"), 1)
            if pattern.search(line)
        ]
        self.none(violations)

    def test_every_path_that_a_comment_or_a_document_names_is_there(self):
        violations = [
            f"{name(path)}:{i} names {word}"
            for path, text in text_files()
            if path.suffix != ".txt" or not PAGES & set(path.parts)  # these pages quote what programs print
            for i, comment in comments(path, text)
            for word in paths_named(comment)
            if not is_there(word)
        ]
        self.none(violations)

    def test_the_path_finder_finds(self):
        code = pathlib.Path("a.cpp")
        self.assertEqual([(2, " see x")], list(comments(code, 'f("models/a");\nint a;  // see x\n')))
        self.assertEqual([], list(comments(code, "auto a = \"https://x/tests/a\";\n")))
        self.assertEqual([(1, '"""b'), (2, 'c"""'), (4, " d")],
                         list(comments(pathlib.Path("a.py"), '"""b\nc"""\ne = 1\n# d\n')))
        self.assertEqual([(1, "a: b  # c")], list(comments(pathlib.Path("a.yaml"), "a: b  # c")))
        self.assertEqual(["models/base", "hw/kernels/*.cpp", "tests/tidy/tidy.py"],
                         paths_named("(models/base, `hw/kernels/*.cpp`): as tests/tidy/tidy.py."))
        self.assertEqual([], paths_named("github:a/models/b ../models/c https://d/tests/e.py ${X}/sim/f"))
        self.assertTrue(all(map(is_there, ("models/base", "tests/tidy/tidy.py", "models/base/csv.*",
                                           "platforms/chips/NAME.yaml", "tests/<folder>/*.cpp",
                                           "models/base/csv.{hpp,cpp}"))))
        self.assertFalse(any(map(is_there, ("models/nowhere", "tests/tidy/tidy.cpp", "models/base/*.cu",
                                            "models/NAME.yaml", "scenarios/{name}.json"))))

    def test_no_file_is_dead(self):
        """Every header is included, or a script has it included; every script, module and Python file is named."""
        inclusions = collections.Counter()
        texts = dict(text_files())
        for path, text in texts.items():
            for include in includes(text):
                inclusions[include] += 1
        scripts = "".join(text for path, text in texts.items() if is_script(path))
        violations = [
            name(path)
            for path in texts
            if path.suffix == ".hpp" and inclusions[name(path)] == 0 and name(path) not in scripts
        ]
        for path in texts:
            if path.suffix in {".py", ".sh", ".cmake"} or is_script(path):
                if name(path) == ".ci/run":
                    continue
                stem = path.stem if path.suffix == ".cmake" else path.name
                # tests/CMakeLists.txt names test_x.py by x.
                stem = re.sub(r"^test_(\w+)\.py$", r"\1", stem)
                word = re.compile(r"(?<![\w-])" + re.escape(stem) + r"(?![\w-])")
                if not any(stem in t and word.search(t) for p, t in texts.items() if p != path):
                    violations.append(name(path))
        self.none(violations)

    def test_no_text_has_trailing_space_or_tabs_or_lacks_its_last_newline(self):
        violations = []
        for path, text in text_files():
            if path.suffix == ".txt" and not PAGES & set(path.parts):
                continue  # data from elsewhere, kept as it is
            if text and not text.endswith("\n"):
                violations.append(f"{name(path)} lacks its last newline")
            for i, line in enumerate(text.split("\n"), 1):
                if line != line.rstrip() or "\t" in line:
                    violations.append(f"{name(path)}:{i}")
        self.none(violations)

    def test_python_runs_with_the_standard_library_alone_but_for_what_packages_bring(self):
        allowed = set(sys.stdlib_module_names) | {"torch", "yaml", "jsonschema", "clang", "motley"}
        violations = []
        for path, text in code_files():
            if path.suffix == ".py":
                for module in re.findall(r"^\s*(?:import|from) (\w+)", text, re.M):
                    if module not in allowed and not (path.parent / f"{module}.py").is_file():
                        violations.append(f"{name(path)} imports {module}")
        self.none(violations)


if __name__ == "__main__":
    unittest.main()

"""What tidy.py reads out of C++ by its lines, as clang-format lays them out: definitions, sentinels, random draws."""

import re


def without_comment(line):
    return re.sub(r"(^|\s+)//.*$", "", line)


def definitions(lines, first=1):
    """(header, first line, count of lines) of functions and types, also inside types, as clang-format lays them out."""
    start = None
    for i, line in enumerate(lines):
        begins = re.match(r"[A-Za-z_\[~:]", line) and not line.startswith(("namespace", "using", 'extern "C" {'))
        if begins and (start is None or not lines[i - 1].endswith(("{", ","))):
            start = i
        if start is not None and line.endswith(";") and not line.startswith((" ", "}")):
            start = None  # a declaration of one line
        if start == i and line.endswith("}"):
            yield line, first + i, 1
            start = None
        if start is not None and line.startswith("}"):
            if is_type(lines[start]):
                body = [inner[2:] if inner.startswith("  ") else "" for inner in lines[start + 1 : i]]
                yield from definitions(body, first + start + 1)
            if is_type(lines[start]) or not line.startswith("};"):
                yield lines[start], first + start, i - start + 1
            start = None


def is_type(header):
    return re.match(r"(template.*>\s*)?(struct|class|enum|union)\b", header)


def functions(text):
    """(first line, count of lines) of each function, also of those inside the bodies of types."""
    lines = [without_comment(line) for line in text.split("\n")]
    return sorted((line, count) for header, line, count in definitions(lines) if not is_type(header))


def types(text):
    """(first line, count of lines) of each struct, class, enum and union."""
    lines = [without_comment(line) for line in text.split("\n")]
    return sorted((line, count) for header, line, count in definitions(lines) if is_type(header))


def types_by_name(text):
    """Every class, struct, union and enum that this file defines at the left margin, with its named namespace. Types
    in an unnamed namespace belong only to their file and are left out."""
    namespaces = []
    for definition in re.finditer(
        r"^(?:(?P<closes>\}  // namespace)|namespace (?P<opens>[\w:]* ?)\{"
        r"|(?:template <[^\n]*\n)?(?:class|struct|union|enum(?: class)?) (?P<type>[\w:]+(?:<[^;{]*?>)?)[^;{()=]*\{)",
        text, re.M,
    ):
        if definition["closes"]:
            namespaces.pop()
        elif definition["opens"] is not None:
            namespaces.append(definition["opens"].strip())
        elif "" not in namespaces:
            yield "::".join([*namespaces, definition["type"]])


def unexplained_sentinels(text):
    """Numbers of the lines of a header that have a default of -1 or mention -1, where no comment says what it means.

    The comment ("-1: none") is at the end of the line, above it, or above the lines with such defaults before it.
    """
    lines = text.split("\n")
    explained = re.compile(r"//.*(?<![\w)\]^])-1(:| \w)")
    for i, line in enumerate(lines):
        code, _, comment = line.partition("//")
        default = re.search(r"= -1\s*[;,)}]", code)
        if default and not explained.search(line):
            above = i - 1
            while re.search(r"= -1\s*[;,)}]", lines[above]) and not explained.search(lines[above]):
                above -= 1
            if not explained.search(lines[above]):
                yield i + 1
        elif not default and re.search(r"(?<![\w)\]^])-1\s*$", comment):
            yield i + 1


def draws_in_arguments(text):
    """Numbers of the lines where two arguments of one call draw random numbers: which one draws first is left to the
    compiler. Braces draw from left to right with every compiler."""
    draw = re.compile(r"\b(?:dice\.\w+|random)\(")
    code = re.sub(r"\"(?:\\.|[^\"\\\n])*\"", '""', "\n".join(map(without_comment, text.split("\n"))))
    calls = []  # that are open before a character: where each begins, the place of its argument, and those that draw
    draws = {match.start() for match in draw.finditer(code)}
    for i, character in enumerate(code if draws else ""):
        if i in draws:
            for call in calls:
                call[2].add(call[1])
        if character in "([{":
            calls.append([i, 0, set()])
        elif character in ")]}" and calls:
            begin, _, drawing = calls.pop()
            if len(drawing) > 1 and re.match(r"[\w>]\(", code[max(begin - 1, 0) : begin + 1]):
                yield code.count("\n", 0, begin) + 1
        elif character == "," and calls:
            calls[-1][1] += 1

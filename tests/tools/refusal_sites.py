"""The places in the sources where the message of a refusal is written, found in their text.

A site is a call of `Refusal(...)`, of `StrategyComplaint{...}`, or of a function that takes a RefusalSite, which it
passes on to one of them. A call that passes a site on is none of its own: the message was written elsewhere.
"""

import bisect
import dataclasses
import pathlib
import re

FOLDERS = ("models", "sim", "hw", "tools")
NO_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S)
# The name of a function or of a lambda, before parameters of which one is a RefusalSite.
HELPER = re.compile(r"\b(\w+)\s*(?:= \[[^\]]*\]\s*)?\((?=[^()]*(?:\([^()]*\)[^()]*)*\bRefusalSite site\b)")
PASSED_ON = re.compile(r"(?:^|\.|->)site(?:\(\))?$|^RefusalSite\{\}$")
STRING_PARAMETER = r"(?:std::string|string_view|char(?: const)?\*?)[ &*]+{}\s*[,)]"


@dataclasses.dataclass(frozen=True)
class Site:
    path: str  # from the root of the source
    first_line: int
    last_line: int
    kind: str  # as far as the sources say it
    call: str  # its text on one line

    def __str__(self):
        return f"{self.path}:{self.first_line}: {self.kind or 'a refusal'}: {self.call}"


class Source:
    """One file, in which strings and comments are no code."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.code = NO_CODE.sub(self.without_text, text)
        self.line_ends = [each.start() for each in re.finditer("\n", text)]
        self.helpers = {each[1] for each in HELPER.finditer(self.code)} - {"Refusal"}

    @staticmethod
    def without_text(match):
        """As long as before: spaces for a comment, underscores between the quotes of a string."""
        hidden = re.sub(r"[^\n]", " " if match[0].startswith("/") else "_", match[0])
        return hidden if match[0].startswith("/") else f'"{hidden[1:-1]}"'

    def line(self, at):
        return bisect.bisect_left(self.line_ends, at) + 1

    def arguments(self, opens):
        """Where the arguments behind the bracket at `opens` begin and end; the last one ends where the call does."""
        depth, begin, places = 0, opens + 1, []
        for at in range(opens, len(self.code)):
            depth += (self.code[at] in "([{") - (self.code[at] in ")]}")
            if depth == 0 or (depth == 1 and self.code[at] == ","):
                places.append((begin, at))
                begin = at + 1
            if depth == 0:
                break
        return places

    def calls(self, helpers):
        """Calls that make a refusal: where each begins, its name and its arguments."""
        names = "|".join(["Refusal", "StrategyComplaint", *sorted(helpers)])
        for match in re.finditer(rf'\b(?:({names})(?: \w+)?\s*[({{]|return {{(?="_+"))', self.code):
            arguments = self.arguments(match.end() - 1)
            texts = [self.code[begin:end].strip() for begin, end in arguments]
            is_declared = "RefusalSite site" in self.code[match.end() : arguments[-1][1]]
            least = {"Refusal": 4, "StrategyComplaint": 3, None: 3}.get(match[1], 1)
            if match[1] is None and "-" not in string_in(self.text[match.start() : match.end() + 80]):
                continue  # a list of other words
            if len(texts) >= least and texts[0] and not is_declared:
                yield match.start(), match[1], arguments


def string_in(text):
    kind = re.search(r'"([a-z0-9]+(?:-[a-z0-9]+)*)"', text)
    return kind[1] if kind else ""


class Sites:
    """All sites of a source tree, and what makes them hard to tell apart."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.sources = [Source(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
                        for folder in FOLDERS for path in sorted((self.root / folder).rglob("*"))
                        if path.suffix in (".cpp", ".hpp", ".cu", ".cuh") and path.stem != "refusal"]
        self.sites, self.faults = [], []
        by_path = {each.path: each for each in self.sources}
        for source in self.sources:
            self.add(source, set().union(*(by_path[path].helpers for path in self.seen_by(source, by_path))))

    @staticmethod
    def seen_by(source, by_path):
        """The paths of a file and of all that it includes."""
        seen, left = set(), [source.path]
        while left:
            path = left.pop()
            if path in by_path and path not in seen:
                seen.add(path)
                left += re.findall(r'#include "([^"]+)"', by_path[path].text)
        return seen

    def add(self, source, helpers):
        kinds, own = {}, []
        for begin, name, arguments in source.calls(helpers):
            end = arguments[-1][1]
            if PASSED_ON.search(source.code[arguments[-1][0] : end].strip()):
                above = [each[1] for each in HELPER.finditer(source.code, 0, begin)]
                if above and name == "Refusal":
                    kinds[above[-1]] = string_in(source.text[slice(*arguments[1])])
                continue
            own.append((begin, name, end))
            self.check_message(source, name, arguments)
        for begin, name, end in own:
            call = " ".join(source.text[begin : end + 1].split())
            kind = string_in(call) if name in ("Refusal", "StrategyComplaint", None) else kinds.get(name, "")
            site = Site(source.path, source.line(begin), source.line(end), kind, call)
            last = self.sites[-1] if self.sites else None
            if last and last.path == site.path and last.last_line >= site.first_line:
                self.faults.append(f"{site}\n  stands on a line of another: they cannot be told apart")
            self.sites.append(site)

    def check_message(self, source, name, arguments):
        """A message that is a function's argument was written elsewhere: the function has to be told where."""
        if name != "Refusal":
            return
        begin, end = arguments[3]
        message, before = source.code[begin:end], source.code[:begin]
        alone = re.fullmatch(r"\s*(?:std::move\()?(\w+)\)?\s*", message)
        words = ([alone[1]] if alone else []) + re.findall(r"(?<![\w.>])(?:why|message)\b(?!\()", message)
        for word in words:
            places = [each.start() for each in re.finditer(rf"(?<![\w.>]){word}\b", before)]
            parameter = [each.start() for each in re.finditer(STRING_PARAMETER.format(word), before)]
            if parameter and parameter[-1] == max(parameter):
                self.faults.append(f"{source.path}:{source.line(begin)}: the message is `{word}`, a caller's: take "
                                   "`RefusalSite site = RefusalSite::here()` as the last parameter, and pass it on")
                return

    def at(self, path, line):
        """The site that was noted with this file, as the compiler names it, and this line; None: there is none."""
        for site in self.sites:
            if site.first_line <= line <= site.last_line and f"/{path}".endswith(f"/{site.path}"):
                return site
        return None

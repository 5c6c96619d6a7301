"""Where a C++ file can be changed, and into what: found in Clang's syntax tree, written as changes of its text.

A site is a place and its changes. A change keeps both programs in one text: `a < b` becomes
`(motley::mutant_is_made(17) ? (a <= b) : (a < b))`. Only what runs can be changed so: bodies of functions, without
what a compiler must know (template arguments, `constexpr`, `case`), and without macros.
"""

import dataclasses
import re

from clang import cindex
from clang.cindex import CursorKind, TypeKind

OTHER_OPERATORS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "+": "-", "-": "+", "*": "/", "/": "*", "%": "+",
    "&&": "||", "||": "&&", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=",
}
NUMBERS = {
    TypeKind.BOOL, TypeKind.CHAR_U, TypeKind.UCHAR, TypeKind.CHAR_S, TypeKind.SCHAR, TypeKind.SHORT, TypeKind.USHORT,
    TypeKind.INT, TypeKind.UINT, TypeKind.LONG, TypeKind.ULONG, TypeKind.LONGLONG, TypeKind.ULONGLONG, TypeKind.FLOAT,
    TypeKind.DOUBLE, TypeKind.LONGDOUBLE,
}
BODIES = {
    CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.DESTRUCTOR,
    CursorKind.CONVERSION_FUNCTION, CursorKind.FUNCTION_TEMPLATE,
}


@dataclasses.dataclass(frozen=True)
class Change:
    """One change of a file's bytes from `begin` to `end`; `@` in `text` is its number."""
    begin: int
    end: int
    line: int
    what: str  # "`<` becomes `<=`"
    text: str


class Finder:
    """Finds the changes of one file."""

    def __init__(self, path, arguments):
        self.path = str(path)
        self.source = path.read_bytes()
        self.changes = []
        unit = cindex.Index.create().parse(
            self.path, args=arguments, options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        if any(each.severity >= cindex.Diagnostic.Fatal for each in unit.diagnostics):
            return
        tops = [each for each in unit.cursor.get_children() if self.is_here(each)]
        self.macros = [(each.extent.start.offset, each.extent.end.offset) for each in tops
                       if each.kind == CursorKind.MACRO_INSTANTIATION]
        for top in tops:
            self.find_bodies(top)

    def is_here(self, cursor):
        return cursor.location.file is not None and cursor.location.file.name == self.path

    def text(self, begin, end):
        return self.source[begin:end].decode("utf-8", "replace")

    def text_of(self, cursor):
        return self.text(cursor.extent.start.offset, cursor.extent.end.offset)

    def find_bodies(self, cursor):
        if cursor.kind in BODIES:
            body = next((each for each in cursor.get_children() if each.kind == CursorKind.COMPOUND_STMT), None)
            if body is None:
                return
            head = self.text(cursor.extent.start.offset, body.extent.start.offset)
            if not re.search(r"\b(constexpr|consteval)\b", head):
                self.find(body)
            return
        if not cursor.kind.is_expression():
            for each in cursor.get_children():
                self.find_bodies(each)

    def find(self, cursor, in_braces=False):
        """Adds the changes below a statement or an expression."""
        kind = cursor.kind
        children = list(cursor.get_children())
        if kind == CursorKind.STATIC_ASSERT or kind.is_reference():
            return
        if kind == CursorKind.VAR_DECL:
            if re.search(r"\bconstexpr\b", self.text_of(cursor)) or not children:
                return
            if cursor.type.get_canonical().kind == TypeKind.CONSTANTARRAY:
                return
            fixed = cursor.type.is_const_qualified() and not list(children[-1].get_children())
            return self.find(children[-1], in_braces or fixed)  # the other children are of its type
        if kind == CursorKind.IF_STMT and re.match(r"if\s+constexpr", self.text_of(cursor)):
            children = children[1:]
        if kind == CursorKind.CASE_STMT:
            children = children[1:]
        if kind == CursorKind.INIT_LIST_EXPR:
            in_braces = True
        if kind == CursorKind.COMPOUND_STMT:
            for each in children:
                self.omit(each)
        if kind in (CursorKind.IF_STMT, CursorKind.WHILE_STMT) and children:
            self.negate(cursor, children[0])
        if kind in (CursorKind.BINARY_OPERATOR, CursorKind.COMPOUND_ASSIGNMENT_OPERATOR) and len(children) == 2:
            self.change_operator(cursor, *children)
        if not in_braces:
            self.change_literal(cursor)
        for each in children:
            self.find(each, in_braces)

    def add(self, cursor, what, text):
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        whole = self.text(begin, end)
        if "//" in whole or "[&" in whole or "[=" in whole or "](" in whole:  # comments; lambdas, whose types differ
            return
        if any(begin < macro_end and macro_begin < end for macro_begin, macro_end in self.macros):
            return
        self.changes.append(Change(begin, end, cursor.extent.start.line, what, " ".join(text.split())))

    def omit(self, statement):
        whole = self.text_of(statement)
        call = statement.kind == CursorKind.CALL_EXPR
        assignment = statement.kind == CursorKind.BINARY_OPERATOR and re.search(r"[^=<>!]=[^=]", whole)
        if call or assignment:
            self.add(statement, f"`{' '.join(whole.split())};` is left out",
                     f"motley::mutant_is_made(@) ? static_cast<void>(0) : static_cast<void>({whole})")

    def negate(self, statement, condition):
        between = self.text(statement.extent.start.offset, condition.extent.start.offset)
        if condition.kind.is_expression() and re.fullmatch(r"(if|while)\s*\(", between):
            whole = self.text_of(condition)
            self.add(condition, f"`{' '.join(whole.split())}` becomes its opposite",
                     f"motley::mutant_is_made(@) != static_cast<bool>({whole})")

    def change_operator(self, cursor, left, right):
        operator = self.text(left.extent.end.offset, right.extent.start.offset).strip()
        other = OTHER_OPERATORS.get(operator)
        kinds = [each.type.get_canonical().kind for each in (left, right)]
        comparable = NUMBERS | ({TypeKind.ENUM} if operator in ("==", "!=") else set())
        if other is None or any(each not in comparable for each in kinds):
            return
        a, b = self.text_of(left), self.text_of(right)
        self.add(cursor, f"`{' '.join(self.text_of(cursor).split())}`: `{operator}` becomes `{other}`",
                 f"(motley::mutant_is_made(@) ? ({a} {other} {b}) : ({a} {operator} {b}))")

    def change_literal(self, cursor):
        if cursor.kind not in (CursorKind.INTEGER_LITERAL, CursorKind.FLOATING_LITERAL,
                               CursorKind.CXX_BOOL_LITERAL_EXPR):
            return
        whole = self.text_of(cursor)
        before = self.text(cursor.extent.start.offset - 1, cursor.extent.start.offset)
        after = self.text(cursor.extent.end.offset, cursor.extent.end.offset + 1)
        if before in "<[" or after == ">":  # an argument of a template; the place in an array, which must be legal
            return
        if cursor.kind == CursorKind.CXX_BOOL_LITERAL_EXPR:
            other = {"true": "false", "false": "true"}.get(whole)
        elif re.fullmatch(r"[0-9'.]+(e[+-]?[0-9]+)?[uUlLfF]*", whole):
            other = f"({whole} + 1)" if cursor.kind == CursorKind.INTEGER_LITERAL else f"(2 * {whole} + 1)"
        else:
            other = None
        if other:
            self.add(cursor, f"`{whole}` becomes `{other}`", f"(motley::mutant_is_made(@) ? {other} : {whole})")


def changes_of(path, arguments):
    """The changes of a file that can be made one by one, in the order of its text."""
    return sorted(set(Finder(path, arguments).changes), key=lambda each: (each.begin, each.end, each.what))

"""Reads just enough C++ for the rules: which text is code, and from which line to which line each function reaches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tree import line_of

_NOT_CODE = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
      | "(?:\\.|[^"\\\n])*"
      | (?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'   # a quote after a digit separates digits
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_PREFIXES = re.compile(
    r"^(?:(?:public|private|protected)\s*:|(?:typedef|static|inline|constexpr)\b|alignas\([^)]*\)|\s)+"
)
_ACCESS = re.compile(r"^\s*(?:(?:public|private|protected)\s*:\s*)?")
_SCOPE = re.compile(r"^(?:namespace|class|struct|union|enum|extern)\b")
_AFTER_PARAMETERS = re.compile(r"\)\s*(?:const|noexcept|override|final|&|->[^(]*|\s)*$")
_NAME = re.compile(r"(operator\s*[^\s(]+|operator\s*\(\s*\)|[~\w:]+)\s*\(")
_TEST = re.compile(r"\b(?:TYPED_)?TEST(?:_[FP])?\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)")


@dataclass(frozen=True)
class Function:
    name: str
    first_line: int
    last_line: int

    @property
    def line_count(self) -> int:
        return self.last_line - self.first_line + 1


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


@cache
def without_comments(text: str) -> str:
    """The text with comments blanked; literals stay, so that included names can be read."""
    return _NOT_CODE.sub(lambda match: _blank(match) if match[0].startswith("/") else match[0], text)


@cache
def code_only(text: str) -> str:
    """The text with comments, literals and preprocessor lines blanked, every line where it was."""
    return _DIRECTIVE.sub(_blank, _NOT_CODE.sub(_blank, text))


@cache
def functions(text: str) -> tuple[Function, ...]:
    """The outermost function bodies; a lambda or a local class counts as lines of the function around it."""
    code = code_only(text)
    found = []
    header_begin = 0  # where the declaration that may own the next brace begins
    depth = 0  # of braces inside a body or an initialiser, 0 in namespaces and classes
    for offset, character in enumerate(code):
        if character == "{":
            if depth > 0 or not _opens_scope(code[header_begin:offset]):
                depth += 1
            else:
                header_begin = offset + 1
        elif character == "}":
            if depth > 1:
                depth -= 1
                continue
            # A member initialiser `a_{1},` or `a_{1} {` belongs to a header that goes on.
            if depth == 1 and code[offset + 1 :].lstrip()[:1] in (",", "{"):
                depth = 0
                continue
            if depth == 1 and (function := _function(code, header_begin, offset)):
                found.append(function)
            depth = 0
            header_begin = offset + 1
        elif character == ";" and depth == 0:
            header_begin = offset + 1
    return tuple(found)


def _opens_scope(header: str) -> bool:
    declaration = _PREFIXES.sub("", _without_template(header.strip()))
    return bool(_SCOPE.match(declaration)) and not _AFTER_PARAMETERS.search(declaration)


def _without_template(header: str) -> str:
    """`template <class T> struct A` -> `struct A`."""
    while match := re.match(r"template\s*<", header):
        angles, parentheses, end = 1, 0, match.end()
        while angles and end < len(header):
            parentheses += {"(": 1, ")": -1}.get(header[end], 0)
            angles += {"<": 1, ">": -1}.get(header[end], 0) if parentheses == 0 else 0
            end += 1
        header = header[end:].lstrip()
    return header


def _function(code: str, begin: int, end: int) -> Function | None:
    """The function that reaches from `begin` to its closing brace at `end`; None for an initialiser."""
    header = code[begin : code.index("{", begin)]
    if "(" not in header or header.rstrip().endswith("="):
        return None
    begin += len(match[0]) if (match := _ACCESS.match(header)) else 0
    test = _TEST.search(header)
    name = _NAME.search(_without_template(header.strip()))
    title = f"{test[1]}.{test[2]}" if test else name[1] if name else "?"
    return Function(title, line_of(code, begin), line_of(code, end))

"""The messages that users may see, as the sources hold them, and the entries of the page that explains them.

A message is a skeleton: the literal words, with `…` in the place of each value. The sources hold parts of sentences,
too, where a function puts a sentence together. So a message and an entry of the page match if the longest part of
one occurs in the other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tree import Source

GAP = "…"
FEWEST_WORDS = 5
FEWEST_WORDS_OF_ERRORS = 3
SHORTEST_PART = 10  # characters; a shorter one would match by chance

_WORD = re.compile(r"[A-Za-z_]{2,}")
_PHRASE = re.compile(r"[a-z][\w']*[,:;]? [\w'-]+[,:;]? [\w'-]+")  # of a sentence; a list of names has none
_ERROR = re.compile(r"(?:Error|Failed)$")
# Calls whose texts are no messages about a problem: help, results of doctor that are OK, patterns.
_OTHER_CALLS = {"option", "command", "group", "ok", "compile", "ArgumentParser", "add_argument", "ModuleType"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_STATEMENT = re.compile(r'(?:"(?:[^"\\\n]|\\.)*"|[^;{}"])+')
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*")', re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")


def python_messages(files: Iterable[Source], every: bool = False) -> Iterator[tuple[str, str]]:
    """(path:line, skeleton) of each sentence, and of each text of an error; with `every`, of each text."""
    for source in files:
        tree = ast.parse(source.text)
        others = _no_messages(tree)
        errors = {id(each) for call in _calls(tree) if _ERROR.search(_name(call)) for each in ast.walk(call)}
        for node in ast.walk(tree):
            text = _skeleton(node) if id(node) not in others else None
            fewest = FEWEST_WORDS_OF_ERRORS if id(node) in errors else FEWEST_WORDS
            if text and (every or (len(_WORD.findall(text)) >= fewest and _PHRASE.search(text))):
                yield f"{source.path}:{getattr(node, 'lineno', 0)}", _plain(text)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _no_messages(tree: ast.AST) -> set[int]:
    """The nodes of docstrings, of parts of other texts, and of texts that are no messages."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr):
            found.add(id(node.body[0].value))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            found |= {id(part) for part in node.values}
        elif isinstance(node, ast.Call) and _name(node) in _OTHER_CALLS:
            found |= {id(each) for each in ast.walk(node)}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            found |= {id(each) for decorator in node.decorator_list for each in ast.walk(decorator)}
    return found


def _skeleton(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\w*\}", GAP, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)
    return None


def cpp_messages(files: Iterable[Source], every: bool = False) -> Iterator[tuple[str, str]]:
    """(path, skeleton) of the sentence that each statement has; with `every`, of its texts, whatever they are."""
    for source in files:
        text = _COMMENT.sub(lambda match: match[1] or re.sub(r"[^\n]", " ", match[0]), source.text)
        text = re.sub(r'(?<!\\)"\s*\n\s*"', "", text)  # one text in several lines
        for match in _STATEMENT.finditer(text):
            if re.search("static_assert|#include|asm", match[0]):
                continue
            words = GAP.join(re.sub(r"\\n|%\w+", " ", part) for part in _TEXT.findall(match[0]))
            if every or (len(_WORD.findall(words)) >= FEWEST_WORDS and _PHRASE.search(words)):
                yield source.path, _plain(words.replace('\\"', '"'))


def _plain(text: str) -> str:
    """The text on one line, without the marks of code, which a page cannot show within code."""
    return " ".join(text.replace("`", "").split())


def entries(page: str) -> dict[str, str]:
    """Message -> cause and cure, of the rows of the page's tables; a cell may have several messages."""
    found: dict[str, str] = {}
    for line in page.splitlines():
        cells = [each.strip() for each in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and cells[0].startswith("`"):
            for match in _CODE.finditer(cells[0]):
                found[_plain(match[1].replace("\\|", "|"))] = " ".join(cells[1:]) if all(cells[1:]) else ""
    return found


def parts(text: str) -> list[str]:
    """The texts between the gaps, without the quotes and the punctuation at its ends."""
    return [part.strip(" '\"():;,.") for part in text.split(GAP)]


def unexplained(messages: Iterable[tuple[str, str]], explained: Iterable[str]) -> list[str]:
    """The messages that match no entry: none has the message's longest part, and the message has no entry's."""
    longest = {entry: max(parts(entry), key=len) for entry in explained}
    found = []
    for place, message in messages:
        own = max(parts(message), key=len)
        if not any(
            (len(own) >= SHORTEST_PART and own in entry) or (len(part) >= SHORTEST_PART and part in message)
            for entry, part in longest.items()
        ):
            found.append(f"{place}: {message}")
    return found


def outdated(explained: Iterable[str], texts: Iterable[tuple[str, str]]) -> list[str]:
    """The entries with a part that no text of the sources has."""
    written = "\n".join(text for _, text in texts)
    return [
        f"{part!r} of {entry!r}"
        for entry in explained
        for part in parts(entry)
        if len(part) >= SHORTEST_PART and part not in written
    ]

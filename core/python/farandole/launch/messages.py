"""Quotes user input in the launcher's messages, and names the command and its options there.

A host name or a key of a file may contain anything. Quoted, it can neither end the line nor control the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_LONGEST = 60
_command = "farandole"
_renamed: dict[str, str] = {}


def speak_as(command: str, renamed: Mapping[str, str]) -> None:
    """Sentences about the command line come from this command; `renamed`: our words -> those that its users know."""
    global _command
    _command = command
    _renamed.update(renamed)


def spoken(sentence: str) -> str:
    """The sentence in the words of the command that the user typed."""
    for ours, theirs in _renamed.items():
        sentence = re.sub(rf"(?<![\w-]){re.escape(ours)}(?![\w-])", theirs, sentence)
    return sentence


def answer(sentence: str) -> str:
    """Print one line in the name of the command that the user typed."""
    return f"{_command}: {one_line(spoken(sentence))}"


def shown(text: object) -> str:
    """Return the text in quotes, as ASCII, and cut if it is long."""
    text = str(text)
    return ascii(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")


def printable(text: str) -> str:
    """The text with an escape for each character that a terminal would obey or not show."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def one_line(message: str) -> str:
    """A message as one line: what is printed after `farandole: `."""
    return printable(" ".join(message.split()))


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """`; did you mean NAME?`, of the known word that is nearest, after `prefix`; "" where none is near."""
    import difflib  # 5 ms that only a mistake pays

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as aligned columns."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)

"""The page on troubleshooting explains every message of the sources, and none that is not there any more."""

import re
from functools import cache

import pytest
from conftest import Plant
from messages import cpp_messages, entries, outdated, python_messages, unexplained
from tree import ROOT, Source, sources

PAGE = "docs/guide/troubleshooting.md"
PYTHON = ("core/python/farandole/*.py", "plugins/*/src/*.py")
CPP = (
    "core/src/*.cc",
    "core/src/*.h",
    "core/bindings/*.cc",
    "core/gloo/*.cc",
    "plugins/*/csrc/*.cc",
    "plugins/*/csrc/*.h",
)
NOT_FOR_USERS = ("core/python/farandole/testing/", "core/python/farandole/benchmark/", "plugins/_template/")

# Texts that are no messages about a problem -> the reason.
OTHERS = {
    r">>> |^(?:import|from) \w+": "code",
    r"^--?\w": "lists of options",
    r"^… that leaves the gradients of some layers": "a docstring",
    r"^allreduce allreduce_coalesced|^\{uint8, ": "lists of names",
    r"^Number of ranks; |^print what works|^read options from a YAML file": "help",
    r"^init and sums are right|events of … ranks\. Open it|the learning rate is warmed up|says more$": "good news",
    r"^\(run from its source tree\)$": "the version",
    r"host key is known\||Permission denied\||timed out\||^No module named": "patterns for the words of ssh",
    r"^: cannot open shared object file": "a pattern for the words of the system",
    r"failpoint": "failpoints, which only builds for tests have",
    r"^<\w+>|^default-src|^efficiency: |^slowest rank, and|^Operations that overlap": "parts of the report",
    r"^Operations that (the|have) |^(Age|Share|Bytes|Median|Memory|1 while|Time|Packets) .*\.$": "help of metrics",
    r"^For … of the operations|comes last: give it|take turns in coming last|^(large|small) oper": "its words",
    r"^Python in worker has|SPARK-\d+\\\]": "patterns for the words of Spark",
    r"nobody is to read it": "a text that cannot be seen, and says so",
}


@pytest.fixture(scope="module")
def page() -> dict[str, str]:
    return entries((ROOT / PAGE).read_text(encoding="utf-8"))


def _python() -> list[Source]:
    return [source for source in sources(ROOT, *PYTHON) if not source.path.startswith(NOT_FOR_USERS)]


@cache
def _messages() -> list[tuple[str, str]]:
    return [*python_messages(_python()), *cpp_messages(sources(ROOT, *CPP))]


def test_each_message_is_explained(page: dict[str, str]) -> None:
    assert len(_messages()) > 700, "the sources have more messages than these"
    seen = [(place, text) for place, text in _messages() if not any(re.search(pattern, text) for pattern in OTHERS)]
    assert unexplained(seen, page) == []


def test_the_page_has_no_message_that_is_gone(page: dict[str, str]) -> None:
    texts = [*python_messages(_python(), every=True), *cpp_messages(sources(ROOT, *CPP), every=True)]
    assert outdated(page, texts) == []


def test_each_message_has_a_cause_and_a_cure(page: dict[str, str]) -> None:
    assert [message for message, rest in page.items() if not rest] == []


@pytest.mark.parametrize("pattern", OTHERS)
def test_each_exception_is_needed(pattern: str) -> None:
    assert [text for _, text in _messages() if re.search(pattern, text)] != []


# ---- The rules can fail ----------------------------------------------------------------------------------------------


def test_messages_of_python_are_found(plant: Plant) -> None:
    text = '''"""A docstring with many words in it."""
def f(x):
    raise ValueError(f"the {x} is wrong: " "choose one")
    return error("Say no.", f"a sentence that {x} makes of several parts")
    click.option("--x", help="a help text with many words")
'''
    assert [message for _, message in python_messages(plant({"a.py": text}))] == [
        "the … is wrong: choose one",
        "a sentence that … makes of several parts",
    ]


def test_messages_of_cpp_are_found(plant: Plant) -> None:
    text = """#include "a b c d e f.h"
static_assert(x, "this one is for people who compile");
// "a comment with many words in it"
Status F() {
  if (x) return Invalid("rank " + Text(rank) + " has no tensor; give "
                        "it one");
  return Invalid("bad\\n");
}
"""
    assert list(cpp_messages(plant({"a.cc": text}))) == [("a.cc", "rank … has no tensor; give it one")]


def test_a_message_without_an_entry_and_an_entry_without_a_message_are_found() -> None:
    page = "| message | cause | cure |\n|---|---|---|\n| `rank … has no tensor`<br>`… is gone for ever` | a | b |\n"
    explained = entries(page)
    assert explained == {"rank … has no tensor": "a b", "… is gone for ever": "a b"}
    messages = [("a.py:1", "rank … has no tensor; give it one"), ("a.py:2", "a new message about …")]
    assert unexplained(messages, explained) == ["a.py:2: a new message about …"]
    assert outdated(explained, messages) == ["'is gone for ever' of '… is gone for ever'"]
    assert entries("| `a b` | a | |\n") == {"a b": ""}

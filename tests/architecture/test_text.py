from fnmatch import fnmatch
from pathlib import Path

from exceptions import LONG_FILES, LONG_FUNCTIONS
from text_rules import (
    MAX_FILE_LINES,
    MAX_FUNCTION_LINES,
    link_violations,
    long_files,
    long_functions,
    mark_violations,
    size_violations,
    slug,
    stale_names,
    wide_lines,
)
from tree import ROOT, Plant, cpp_sources, python_sources, sources, tracked_paths


def test_files_are_short() -> None:
    assert size_violations(long_files(cpp_sources() + python_sources()), LONG_FILES, MAX_FILE_LINES) == []


def test_lines_of_cpp_are_no_wider_than_allowed() -> None:
    assert wide_lines(cpp_sources()) == []


def test_functions_are_short() -> None:
    assert size_violations(long_functions(cpp_sources() + python_sources()), LONG_FUNCTIONS, MAX_FUNCTION_LINES) == []


def test_no_work_is_marked_unfinished() -> None:
    assert mark_violations(sources(ROOT, "*")) == []


def test_links_between_documents_lead_somewhere() -> None:
    assert link_violations(sources(ROOT, "*.md"), ROOT) == []


def test_the_guide_lists_its_pages() -> None:
    listed = (ROOT / "docs/guide/README.md").read_text()
    pages = [Path(path).name for path in tracked_paths(ROOT) if fnmatch(path, "docs/guide/*.md")]
    assert [page for page in pages if f"({page})" not in listed] == ["README.md"]


def test_files_that_are_named_are_there() -> None:
    named_in = sources(ROOT, "core/src/*", "core/tests/cpp/*", "docs/design/*", "docs/extending/*")
    assert stale_names(named_in, tracked_paths(ROOT)) == []


# ---- The rules can fail ----------------------------------------------------------------------------------------------


def test_a_long_file_is_found(plant: Plant) -> None:
    files = plant({"a.py": "1\n" * 501, "b.cc": "\n" * 500})
    assert long_files(files) == {"a.py": 501}


def test_a_wide_line_is_found(plant: Plant) -> None:
    files = plant({"a.h": "// " + "ü" * 117 + "\n// " + "ü" * 118 + "\n"})
    assert wide_lines(files) == ["a.h:2: 121 characters, 120 are allowed"]


def test_a_long_function_is_found(plant: Plant) -> None:
    body = "    x = 1\n" * 80
    files = plant(
        {
            "a.py": f"@decorated\ndef long():\n{body}\nclass A:\n    async def short(self):\n        pass\n",
            "b.cc": "void Long() {\n" + "  f();\n" * 79 + "}\nvoid Short() {\n" + "  f();\n" * 78 + "}\n",
        }
    )
    assert long_functions(files) == {"a.py::long": 81, "b.cc::Long": 81}


def test_exceptions_need_a_reason_and_a_need() -> None:
    assert size_violations({"a": 90}, {"a": "a table"}, 80) == []
    assert len(size_violations({"a": 90}, {}, 80)) == 1
    assert len(size_violations({"a": 90}, {"a": " "}, 80)) == 1
    assert len(size_violations({}, {"a": "a table"}, 80)) == 1


def test_a_mark_of_unfinished_work_is_found(plant: Plant) -> None:
    mark = "TO" + "DO"
    assert mark_violations(plant({"a.cc": f"// {mark}: later\n", "b.py": f"# {mark}S mkstemp('{'X' * 6}')\n"})) == [
        f"a.cc:1: {mark}"
    ]


def test_a_dead_link_is_found(plant: Plant, tmp_path: Path) -> None:
    files = plant(
        {
            "docs/a.md": "# One\n[b](b.md) [up](../c.py) [c](#one) [d](b.md#two-words) [e](https://example.org/x)\n",
            "docs/b.md": "## Two *words*\n```\n[f](nowhere.md)\n```\n[g](h.md) [i](#i) [j](../../k.md) [l](a.md#m)\n",
            "c.py": "",
        }
    )
    assert [violation[:12] for violation in link_violations(files, tmp_path)] == ["docs/b.md:5:"] * 4


def test_the_name_of_a_file_that_has_moved_is_found(plant: Plant) -> None:
    files = plant({"a.cc": '#include "gone.h"\n// See here.h, far/off.h and gone.h.\n'})
    assert stale_names(files, ["core/src/here.h"]) == ["a.cc:2: there is no gone.h"]


def test_headings_become_anchors() -> None:
    assert slug("The `hvd` API: what is *new*?") == "the-hvd-api-what-is-new"

"""The numbered words stand in types.def; the C header and Python repeat them, since neither can read it."""

import ast
import re

import pytest
from tree import ROOT

_TABLE = "core/src/common/types.def"
_HEADERS = ("core/include/farandole/farandole.h", "core/tests/first_release/farandole.h")
_RANDOM_CASES = "tests/collectives/meaning/operations.py"
_ADAPTER, _WORDS = "core/python/farandole/_api/adapter.py", "core/python/farandole/_api/ops.py"

Row = tuple[str, ...]


def rows(macro: str) -> list[Row]:
    """The arguments of each row, comments and quotes apart; (enumerator, number, name, ...)."""
    text = (ROOT / _TABLE).read_text()
    found = re.findall(rf"^{macro}\((.*)\)", text, re.MULTILINE)
    return [tuple(cell.strip().strip("\"'") for cell in row.split(",")) for row in found]


def names(macro: str) -> dict[str, int]:
    return {row[2].upper(): int(row[1]) for row in rows(macro)}


def in_header(path: str, heading: str) -> dict[str, int]:
    """The constants between this comment and the next that begins a paragraph."""
    text = (ROOT / path).read_text()
    section = re.search(rf"/\* {heading}\. \*/\n(.*?)\n\n", text, re.DOTALL)
    assert section is not None, f"{path} has no section {heading!r}"
    return {name: int(number) for name, number in re.findall(r"^#define FRD_(\w+) (\d+)", section[1], re.MULTILINE)}


def members(path: str, of: str) -> dict[str, object]:
    """The members of an enumeration; read, not imported, since the core may not be built here."""
    tree = ast.parse((ROOT / path).read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == of)
    return {ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in body if isinstance(node, ast.Assign)}


@pytest.mark.parametrize("macro", ["FRD_DTYPE", "FRD_REDUCE_OP", "FRD_OP_KIND"])
def test_numbers_count_up_in_the_order_of_the_rows(macro: str) -> None:
    assert [int(row[1]) for row in rows(macro)] == list(range(len(rows(macro)))) != []


@pytest.mark.parametrize("header", _HEADERS)
def test_the_c_header_has_the_numbers(header: str) -> None:
    assert in_header(header, "Operations") == names("FRD_OP_KIND")
    assert in_header(header, "Element types") == names("FRD_DTYPE")
    assert in_header(header, "Reductions") == names("FRD_REDUCE_OP")


def test_python_has_the_numbers() -> None:
    assert members(_WORDS, "Kind") == names("FRD_OP_KIND")
    assert members(_WORDS, "ReduceOp") == names("FRD_REDUCE_OP")


def test_python_has_the_rows_of_element_types() -> None:
    expected = {name.upper(): (int(number), kind, int(size)) for _, number, name, kind, size, _ in rows("FRD_DTYPE")}
    assert members(_ADAPTER, "DType") == expected


def test_random_cases_are_drawn_of_every_collective() -> None:
    tree = ast.parse((ROOT / _RANDOM_CASES).read_text())
    tables = (node.value for node in tree.body if isinstance(node, ast.Assign) and "OPERATIONS" in ast.dump(node))
    drawn = {ast.literal_eval(key) for table in tables if isinstance(table, ast.Dict) for key in table.keys if key}
    carrying = {name for _, _, name, traits, *_ in rows("FRD_OP_KIND") if "kCarriesTensors" in traits}
    assert carrying - drawn == set(), f"{_RANDOM_CASES} has no row of it"


def test_messages_know_the_names() -> None:
    """Otherwise they would say "gather at train.py:20" for `hvd.gather`, whose name they give already."""
    text = (ROOT / "core/python/farandole/_runtime/call_sites.py").read_text()
    (pattern,) = re.findall(r"_OPERATION = re\.compile\(\s*((?:r\".*\"\s*)+)\)", text)
    operation = re.compile(ast.literal_eval(f"({pattern})"))
    assert all(operation.fullmatch(row[2]) for row in rows("FRD_OP_KIND"))

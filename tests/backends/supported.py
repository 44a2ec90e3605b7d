"""The table operations x element types x back ends of docs/guide/back-ends.md, made from what the back ends declare.

nox -s python -- tests/backends/test_supported.py      fails where the page says something else
PYTHONPATH=core/python python tests/backends/supported.py      writes it there
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from farandole._native import core
from farandole._ops import Kind, ReduceOp
from farandole.plugin import DType

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "back-ends.md"
BEGIN, END = "<!-- declared: begin -->\n", "<!-- declared: end -->\n"

_GROUPS = {
    "floats": {DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64},
    "integers": {DType.UINT8, DType.INT8, DType.UINT16, DType.INT16, DType.INT32, DType.INT64},
}


@dataclass(frozen=True)
class Row:
    """An operation as a back end is asked for it."""

    title: str
    kind: Kind
    reduce: ReduceOp = ReduceOp.SUM
    factor: float = 1.0  # of the sum: what makes it an average, prescale and postscale


def _rows() -> list[Row]:
    rows = []
    for kind in (Kind.ALLREDUCE, Kind.REDUCESCATTER):
        word = kind.name.lower()
        rows.append(Row(f"{word}: sum", kind))
        rows.append(Row(f"{word}: average, or a sum with factors", kind, factor=0.5))
        rows.append(Row(f"{word}: min, max", kind, ReduceOp.MIN))
        rows.append(Row(f"{word}: product", kind, ReduceOp.PRODUCT))
        rows.append(Row(f"{word}: Adasum", kind, ReduceOp.ADASUM))
    others = (Kind.ALLGATHER, Kind.BROADCAST, Kind.ALLTOALL)
    return rows + [Row(kind.name.lower(), kind) for kind in others]


def _words(dtypes: set[DType]) -> str:
    """The element types in few words: "all", "floats, bool", "all but uint16"."""
    if not dtypes:
        return "-"
    missing = set(DType) - dtypes
    if not missing:
        return "all"
    if len(missing) <= 3:
        return "all but " + ", ".join(_names(missing))
    groups = [name for name, members in _GROUPS.items() if members <= dtypes]
    rest = dtypes.difference(*(_GROUPS[name] for name in groups))
    return ", ".join([*groups, *_names(rest)])


def _names(dtypes: set[DType]) -> list[str]:
    return [dtype.name.lower() for dtype in sorted(dtypes)]


def performed(back_end: str, row: Row, on_device: bool) -> set[DType]:
    """The element types of which the back end declares the operation; on a device: without host memory."""
    return {dtype for dtype in DType if core.performs(back_end, row.kind, dtype, row.reduce, on_device, row.factor)}


def _table(back_ends: list[str], on_device: bool) -> str:
    lines = [f"| operation | {' | '.join(back_ends)} |", "|---" * (len(back_ends) + 1) + "|"]
    for row in _rows():
        cells = [_words(performed(back_end, row, on_device)) for back_end in back_ends]
        lines.append(f"| {row.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def declared() -> str:
    """Both tables, in Markdown."""
    takers = [name for name in core.back_ends if any(performed(name, row, on_device=True) for row in _rows())]
    return (
        f"In host memory:\n\n{_table([name for name in core.back_ends if name not in takers], False)}\n"
        f"In the memory of a GPU, without a copy in host memory:\n\n{_table(takers, True)}"
    )


def parts_of(page: str) -> tuple[str, str, str]:
    """What stands before the tables, the tables, and what stands behind them."""
    before, _, rest = page.partition(BEGIN)
    between, _, after = rest.partition(END)
    return before + BEGIN, between, END + after


if __name__ == "__main__":
    before, _, after = parts_of(PAGE.read_text())
    PAGE.write_text(before + declared() + after)

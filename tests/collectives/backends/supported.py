"""The table operations x element types x backends of docs/guide/backends.md, made from what the backends declare.

nox -s python -- tests/collectives/backends/test_supported.py      fails where the page says something else
PYTHONPATH=core/python python tests/collectives/backends/supported.py      writes it there
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from farandole._api.ops import Kind, ReduceOp
from farandole._runtime.native import core
from farandole.plugin import DType

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "backends.md"
BEGIN, END = "<!-- declared: begin -->\n", "<!-- declared: end -->\n"

_GROUPS = {
    "floats": {DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64},
    "integers": {dtype for dtype in DType if dtype.kind in "ui"},
    "complex": {DType.COMPLEX64, DType.COMPLEX128},
}


@dataclass(frozen=True)
class Row:
    """An operation as a backend is asked for it."""

    title: str
    kind: Kind
    reduce: ReduceOp = ReduceOp.SUM
    factor: float = 1.0  # of the sum: what makes it an average, prescale and postscale


_REDUCING = (Kind.ALLREDUCE, Kind.REDUCESCATTER)
_ALWAYS_OURS = (Kind.BARRIER, Kind.JOIN, Kind.ADD_PROCESS_SET, Kind.REMOVE_PROCESS_SET)
_TITLES = {ReduceOp.MIN: "min, max", ReduceOp.ADASUM: "Adasum"}  # the others by their names
_ELSEWHERE = (ReduceOp.AVERAGE, ReduceOp.MAX)  # a sum with factors; beside min


def _rows() -> list[Row]:
    rows = []
    for kind in _REDUCING:
        word = kind.name.lower()
        for reduce in ReduceOp:
            if reduce not in _ELSEWHERE:
                rows.append(Row(f"{word}: {_TITLES.get(reduce, reduce.name.lower())}", kind, reduce))
            if reduce is ReduceOp.SUM:
                rows.append(Row(f"{word}: average, or a sum with factors", kind, factor=0.5))
    others = sorted(set(Kind) - {*_REDUCING, *_ALWAYS_OURS})
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


def performed(backend: str, row: Row, on_device: bool) -> set[DType]:
    """The element types of which the backend declares the operation; on_device: of tensors there."""
    asked = row.reduce, on_device, row.factor
    return {dtype for dtype in DType if core.performs(backend, row.kind, dtype, *asked)}


Column = Callable[[Row], set[DType]]


def _table(columns: dict[str, Column]) -> str:
    lines = [f"| operation | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in _rows():
        cells = [_words(column(row)) for column in columns.values()]
        lines.append(f"| {row.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def declared() -> str:
    """Both tables, in Markdown."""
    takers = [name for name in core.backends if any(performed(name, row, on_device=True) for row in _rows())]
    in_host_memory = {name: partial(performed, name, on_device=False) for name in core.backends if name not in takers}
    on_device = {name: partial(performed, name, on_device=True) for name in takers}
    return (
        f"In host memory:\n\n{_table(in_host_memory)}\n"
        "In GPU memory (`native` performs all other operations, and all operations between hosts "
        f"[without a network for NCCL](nccl.md#hosts-without-a-network-for-nccl)):\n\n{_table(on_device)}"
    )


def parts_of(page: str) -> tuple[str, str, str]:
    """The text before the tables, the tables, and the text behind them."""
    before, _, rest = page.partition(BEGIN)
    between, _, after = rest.partition(END)
    return before + BEGIN, between, END + after


if __name__ == "__main__":
    before, _, after = parts_of(PAGE.read_text())
    PAGE.write_text(before + declared() + after)

"""Results of the benchmark of backends: it always reports an overhead over its limit, or a library ahead of ours."""

from __future__ import annotations

import pytest
from backends import NATIVE, Library, misses, table
from turns import Times

MIB = 1 << 20
LIBRARY = Library("Some MPI", "", (), {}, (), "mpi,native")


def row(native, carried, direct):
    columns = {NATIVE: native, LIBRARY.carried: carried, LIBRARY.direct: direct}
    return {name: Times(us, us, 1) for name, us in columns.items()}


@pytest.mark.parametrize(
    ("size", "found", "missed"),
    [
        (4, row(0.4, 20.0, 0.5), []),
        (4, row(0.4, 21.0, 0.5), ["Some MPI, 4 B: 20.5 us of overhead, wanted at most 20.0 us"]),
        (4, row(0.6, 1.0, 0.5), ["Some MPI, 4 B: native takes 0.60 us, wanted less than the library's 0.50 us"]),
        (MIB, row(90, 215, 200), []),
        (
            MIB,
            row(201, 215, 200),
            ["Some MPI, 1 MiB: native takes 201.00 us, wanted less than the library's 200.00 us"],
        ),
        (4 * MIB, row(900, 1140, 1000), []),
        (4 * MIB, row(900, 1160, 1000), ["Some MPI, 4 MiB: 160.0 us of overhead, wanted at most 150.0 us"]),
    ],
)
def test_what_is_over_its_limit_is_missed(size, found, missed):
    assert misses(LIBRARY, {size: found}) == missed


def test_the_table_has_every_figure():
    assert table([LIBRARY], {4: row(0.4, 5.0, 0.5), MIB: row(90, 215, 200)}) == [
        "| size | native | over Some MPI | Some MPI directly | overhead |",
        "|---|---:|---:|---:|---:|",
        "| 4 B | 0.40 / 0.40 | 5.00 / 5.00 | 0.50 / 0.50 | 4.5 |",
        "| 1 MiB | 90.0 / 90.0 | 215.0 / 215.0 | 200.0 / 200.0 | 15.0 |",
    ]

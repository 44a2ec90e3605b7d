"""The targets that the figures must reach. Pure: tables in, results out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tables import FACE, KERNEL, LIMIT, OURS, Table, TargetResult
from turns import readable

KIB, MIB = 1024, 1024**2
KERNEL_BYTES = 32 * KIB  # up to here it has a column
CLIFF = 4.0  # at most so many times the time of half the size, where ranks share cores
STEP, LIMIT_STEP = 2.2, 1.1  # elsewhere at most so many times, or so many times the step of the limit
DIP = 0.97  # at least so many times the time of half the size
ANY = 1 << 62
# From one size to another, how many times as long as ours every peer must take at least.
AHEAD = ((4, 2 * KIB, 1.0), (4 * KIB, MIB, 1.3), (2 * MIB, 8 * MIB, 1.0), (16 * MIB, ANY, 3.0))


def target_results(tables: Iterable[Table], figures: dict[str, tuple[float, str]]) -> list[TargetResult]:
    by_key = {table.key: table for table in tables}
    rules = {"pair": _pair, "crowd": _crowd, "tcp": _tcp}
    found = [result for key, rule in rules.items() if key in by_key for result in rule(by_key[key])]
    return found + [result for key in ("pair", "crowd") if key in by_key for result in _face(by_key[key])] + [
        TargetResult(what, figures[what][0], limit, f" {unit}".rstrip()) for what, (limit, unit) in FIGURES.items()
        if what in figures
    ]  # fmt: skip


# Single figures and their targets, by what run.py calls them.
FIGURES = {
    "named sum of 4 floats from numpy, submission to completion, minimum": (15, "us"),
    "named sum of 4 floats from numpy, submission to completion, median": (25, "us"),
    "step of 150 small arrays in random order, minimum": (200, "us"),
    "negotiation messages in a steady step on one host": (0, ""),
    "init and shutdown, 2 ranks": (50, "ms"),
    "import farandole": (200, "ms"),
}


def _pair(table: Table) -> list[TargetResult]:
    results = [_time(table, 4, 0.4)]
    if any(KERNEL in row for row in table.rows.values()):
        results.append(_of_limit(table, 4, 1.5, "a cache-line exchange", KERNEL))
    results.append(_of_limit(table, 64 * KIB, 1.7, "the cross-core limit"))
    results += [_of_limit(table, size, 1.4, "the cross-core limit") for size in (MIB, 4 * MIB, 16 * MIB)]
    results += [_of_both_limits(table, size, 0.9) for size in (64 * MIB, 256 * MIB)]
    return [*_measured(table, results), *_steps(table), *_ahead(table, f"{table.ranks} ranks", AHEAD)]


def _crowd(table: Table) -> list[TargetResult]:
    results = [_time(table, 4, 3.0), _of_limit(table, 64 * MIB, 1.4, "the DRAM bound")]
    steps = _doublings(table)
    if steps:
        worst, size = max(steps)
        what = f"{table.ranks} ranks: the steepest doubling of the size (at {readable(size)})"
        results.append(TargetResult(what, worst, CLIFF, " times"))
    return [*_measured(table, results), *_ahead(table, f"{table.ranks} ranks", AHEAD)]


def _tcp(table: Table) -> list[TargetResult]:
    results = []
    for size in table.rows:
        if 64 * KIB <= size <= 64 * MIB:
            results.append(_of_limit(table, size, 1.3, "a raw exchange"))
        elif size < 4 * KIB:
            results.append(_of_limit(table, size, 3.0, "a raw exchange"))
    return [*results, *_ahead(table, "tcp only", ((4, ANY, 1.0),))]


def _face(table: Table) -> list[TargetResult]:
    """From Python as users call it, beside gloo called from Python, too."""
    found: dict[float, list[tuple[float, int]]] = {5.0: [], 1.0: []}
    for size in table.rows:
        face, gloo = table.us(size, FACE), table.us(size, "gloo")
        if face and gloo:
            found[5.0 if size <= KIB or size == 64 * MIB else 1.0].append((gloo / face, size))
    return [
        TargetResult(
            f"{table.ranks} ranks, PyTorch: gloo : ours at worst (at {readable(min(ratios)[1])})",
            min(ratios)[0],
            wanted,
            "",
            at_least=True,
        )
        for wanted, ratios in found.items()
        if ratios
    ]


def _time(table: Table, size: int, limit_us: float) -> TargetResult:
    return TargetResult(f"{table.ranks} ranks, {readable(size)}", table.us(size), limit_us, " us")


def _of_limit(table: Table, size: int, times: float, of_what: str, name: str = OURS) -> TargetResult:
    ours, limit = table.us(size, name), table.us(size, LIMIT)
    found = ours / limit if ours and limit else None
    remark = f"{ours:.4g} us beside {limit:.4g} us" if ours and limit else ""
    who = f"{table.key}: {name}" if name != OURS else f"{table.key}"
    return TargetResult(f"{who}, {readable(size)}, of {of_what}", found, times, " times", remark=remark)


def _steps(table: Table) -> Iterator[TargetResult]:
    """The steepest doubling of the size, and the one that gains most, by the medians."""
    steps = _doublings(table, median=True)
    if not steps:
        return
    limits = {size: LIMIT_STEP * ratio for ratio, size in _doublings(table, LIMIT)}
    worst, size = max((ratio / max(STEP, limits.get(size, 0.0)), size) for ratio, size in steps)
    what = f"{table.key}: the steepest doubling of the size (to {readable(size)}), of what is allowed"
    yield TargetResult(what, worst, 1.0, " times")
    least, size = min(steps)
    what = f"{table.key}: {readable(size)} beside half the size"
    yield TargetResult(what, least, DIP, " times", at_least=True)


def _doublings(table: Table, name: str = OURS, median: bool = False) -> list[tuple[float, int]]:
    """How many times the time of half the size each size takes."""
    pairs = [(table.us(size, name, median), table.us(size // 2, name, median), size) for size in table.rows]
    return [(whole / half, size) for whole, half, size in pairs if whole and half]


def _of_both_limits(table: Table, size: int, times: float) -> TargetResult:
    """Beside the DRAM bound and, one after the other, the time to read as many bytes of the other core."""
    ours, memory, cross = table.us(size), table.us(size, LIMIT), table.us(4 * MIB, LIMIT)
    both = memory + cross * size / (4 * MIB) if memory and cross else None
    found = ours / both if ours and both else None
    remark = f"{ours:.4g} us beside {both:.4g} us" if found else ""
    what = f"{table.key}, {readable(size)}, of the DRAM bound and the cross-core limit together"
    return TargetResult(what, found, times, " times", remark=remark)


def _measured(table: Table, results: list[TargetResult]) -> list[TargetResult]:
    """Sizes that this run left out have no result; a whole run leaves none out."""
    return [result for result in results if result.measured is not None or len(table.rows) > 20]


def _ahead(table: Table, where: str, ranges: Iterable[tuple[int, int, float]]) -> Iterator[TargetResult]:
    """Ours beside the nearest peer in each range of sizes, by the minimums and by the medians."""
    for median in (False, True):
        for least, most, wanted in ranges:
            result = _ahead_in(table, where, (least, most), wanted, median)
            if result:
                yield result


def _ahead_in(table: Table, where: str, sizes: tuple[int, int], wanted: float, median: bool) -> TargetResult | None:
    least, most = sizes
    ratios = []
    for size in table.rows:
        nearest = table.nearest(size, median)
        if nearest and least <= size <= most:
            ratios.append((*nearest, size))
    if not ratios:
        return None
    worst, peer, size = min(ratios)
    behind = [f"{peer} at {readable(size)} {ratio:.2f}" for ratio, peer, size in ratios if ratio < wanted]
    span = f"from {readable(least)}" + (f" to {readable(most)}" if most < ANY else "")
    what = f"{where} {span}, {'medians' if median else 'minimums'}: nearest peer : ours"
    remark = "; ".join(behind) or f"{peer} at {readable(size)}"
    return TargetResult(what, worst, wanted, "", at_least=True, remark=remark)

"""The targets that the figures must reach. Pure: tables in, verdicts out."""

from __future__ import annotations

from collections.abc import Iterable

from tables import LIMIT, OURS, Table, Verdict
from turns import readable

KIB, MIB = 1024, 1024**2
KERNEL = "bare kernel"
KERNEL_BYTES = 32 * KIB  # up to here it has a column
FACE = "through PyTorch"
CLIFF = 4.0  # at most so many times the time of half the size


def verdicts_of(tables: Iterable[Table], figures: dict[str, tuple[float, str]]) -> list[Verdict]:
    by_key = {table.key: table for table in tables}
    rules = {"pair": _pair, "crowd": _crowd, "tcp": _tcp}
    found = [verdict for key, rule in rules.items() if key in by_key for verdict in rule(by_key[key])]
    return found + [verdict for key in ("pair", "crowd") if key in by_key for verdict in _face(by_key[key])] + [
        Verdict(what, figures[what][0], limit, f" {unit}".rstrip()) for what, (limit, unit) in FIGURES.items()
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


def _pair(table: Table) -> list[Verdict]:
    where = f"{table.ranks} ranks"
    verdicts = [_time(table, 4, 0.4)]
    if any(KERNEL in row for row in table.rows.values()):
        verdicts.append(_of_limit(table, 4, 1.5, "a cache-line exchange", KERNEL))
    verdicts += [_of_limit(table, size, 1.7, "the cross-core limit") for size in (64 * KIB, MIB, 4 * MIB)]
    verdicts += [_of_limit(table, size, 1.15, "the DRAM bound") for size in (64 * MIB, 256 * MIB)]
    return _measured(table, verdicts) + _ahead(table, where, _peers(table))


def _crowd(table: Table) -> list[Verdict]:
    verdicts = [_time(table, 4, 3.0), _of_limit(table, 64 * MIB, 1.4, "the DRAM bound")]
    steps = [(size, table.us(size), table.us(size // 2)) for size in table.rows if size // 2 in table.rows]
    cliffs = [(ours / half, size) for size, ours, half in steps if ours and half]
    if cliffs:
        worst, size = max(cliffs)
        what = f"{table.ranks} ranks: the steepest doubling of the size (at {readable(size)})"
        verdicts.append(Verdict(what, worst, CLIFF, " times"))
    return _measured(table, verdicts) + _ahead(table, f"{table.ranks} ranks", _peers(table))


def _tcp(table: Table) -> list[Verdict]:
    verdicts = []
    for size in table.rows:
        if 64 * KIB <= size <= 64 * MIB:
            verdicts.append(_of_limit(table, size, 1.3, "a raw exchange"))
        elif size < 4 * KIB:
            verdicts.append(_of_limit(table, size, 3.0, "a raw exchange"))
    return verdicts + _ahead(table, "tcp only", _peers(table))


def _face(table: Table) -> list[Verdict]:
    """From Python as users call it, beside gloo called from Python, too."""
    found: dict[float, list[tuple[float, int]]] = {5.0: [], 1.0: []}
    for size in table.rows:
        face, gloo = table.us(size, FACE), table.us(size, "gloo")
        if face and gloo:
            found[5.0 if size <= KIB or size == 64 * MIB else 1.0].append((gloo / face, size))
    return [
        Verdict(
            f"{table.ranks} ranks, PyTorch: gloo takes so many times as long, at worst (at {readable(min(ratios)[1])})",
            min(ratios)[0],
            wanted,
            "",
            at_least=True,
        )
        for wanted, ratios in found.items()
        if ratios
    ]


def _peers(table: Table) -> list[str]:
    return [name for name in table.columns[1:] if name not in (KERNEL, FACE)]


def _time(table: Table, size: int, limit_us: float) -> Verdict:
    return Verdict(f"{table.ranks} ranks, {readable(size)}", table.us(size), limit_us, " us")


def _of_limit(table: Table, size: int, times: float, of_what: str, name: str = OURS) -> Verdict:
    ours, limit = table.us(size, name), table.us(size, LIMIT)
    found = ours / limit if ours and limit else None
    remark = f"{ours:.4g} us beside {limit:.4g} us" if ours and limit else ""
    who = f"{table.key}: {name}" if name != OURS else f"{table.key}"
    return Verdict(f"{who}, {readable(size)}, of {of_what}", found, times, " times", remark=remark)


def _measured(table: Table, verdicts: list[Verdict]) -> list[Verdict]:
    """Sizes that this run left out have no verdict; a whole run leaves none out."""
    return [verdict for verdict in verdicts if verdict.measured is not None or len(table.rows) > 20]


def _ahead(table: Table, where: str, peers: list[str]) -> list[Verdict]:
    """Ours beside each peer, at the sizes at which both took part."""
    return [verdict for peer in peers for verdict in _ahead_of(table, where, peer)]


def _ahead_of(table: Table, where: str, peer: str) -> list[Verdict]:
    pairs = [(table.us(size), table.us(size, peer), size) for size in table.rows]
    ratios = [(other / ours, size) for ours, other, size in pairs if ours and other]
    if not ratios:
        return []
    worst, size = min(ratios)
    behind = [f"{readable(each)} {ratio:.2f}" for ratio, each in ratios if ratio < 1]
    remark = f"behind at {', '.join(behind)}" if behind else ""
    what = f"{where}: {peer} takes so many times as long, at worst (at {readable(size)})"
    return [Verdict(what, worst, 1.0, "", at_least=True, remark=remark)]

"""Makes the report as one HTML file, which has no scripts and loads nothing from a server. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from farandole.observe.report.analysis import Analysis

_NUMBERS = "Ranks have the numbers of their start, also where hvd.rank() has changed."


def as_html(runs: Sequence[tuple[str, Analysis]], style: str = "") -> str:
    """Return the report about one run, or two side by side. `runs` have names, and `style` is CSS."""
    parts = [f"<h1>{escape(' beside '.join(name for name, _ in runs))}</h1>", _comparison(runs)]
    for name, analysis in runs:
        parts.append(f"<h2>{escape(name)}</h2>" if len(runs) > 1 else "")
        parts += [_advice(analysis), _ranks(analysis), _names(analysis), _notes(analysis)]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<title>Farandole: {escape(runs[0][0])}</title>'
        f"<style>{style}</style></head>\n<body>\n{chr(10).join(filter(None, parts))}\n</body></html>\n"
    )


def _comparison(runs: Sequence[tuple[str, Analysis]]) -> str:
    rows = [
        ("time", [f"{each.seconds:.2f} s" for _, each in runs]),
        ("ranks", [str(len(each.ranks)) for _, each in runs]),
        ("operations of a rank", [f"{each.operations:,}" for _, each in runs]),
        ("operands of a rank", [f"{amount(each.bytes_per_s)}/s" for _, each in runs]),
        ("efficiency: not waiting for other ranks", [percent(1 - each.share("waiting")) for _, each in runs]),
        ("outside of operations", [percent(each.share("outside")) for _, each in runs]),
        ("waiting for other ranks", [percent(each.share("waiting")) for _, each in runs]),
        ("queues and data", [percent(each.share("moving")) for _, each in runs]),
        ("slowest rank, and how long all others waited for it", [_slowest(each) for _, each in runs]),
    ]
    if len(runs) == 2:
        before, after = (each.seconds for _, each in runs)
        rows[0][1].append(f"{after / before - 1:+.1%}")
    head = "".join(f"<th>{escape(name)}</th>" for name, _ in runs) + ("<th>change</th>" if len(runs) == 2 else "")
    width = len(runs) + (len(runs) == 2)
    body = "".join(
        _row([escape(each) for each in (what, *cells, *[""] * (width - len(cells)))]) for what, cells in rows
    )
    return f"<table><tr><th></th>{head}</tr>{body}</table>"


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _slowest(analysis: Analysis) -> str:
    rank = analysis.slowest
    return f"{rank.rank}, {rank.kept:.2f} s ({percent(rank.kept / analysis.seconds)})" if rank.kept > 0 else "not known"


def _advice(analysis: Analysis) -> str:
    if not analysis.advice:
        return "<h2>To change</h2><p>Nothing that would gain 3 % of the time was found.</p>"
    rows = "".join(f"<li>{escape(each.text)}: up to {percent(each.gain)} of the time.</li>" for each in analysis.advice)
    return f"<h2>To change</h2><ol>{rows}</ol>"


def _ranks(analysis: Analysis) -> str:
    rows = ""
    for each in analysis.ranks:
        bar = _bar((each.outside, each.waiting, each.moving), analysis.seconds)
        times = [f"{seconds:.2f} s" for seconds in (each.outside, each.waiting, each.moving, each.kept)]
        rows += _row([f"rank {each.rank}", bar, *times])
    keys = '<span class="key o"></span>outside<span class="key w"></span>waiting<span class="key d"></span>data'
    head = f"<th></th><th>{keys}</th><th>outside</th><th>waiting</th><th>data</th><th>is waited for</th>"
    return f"<h2>Ranks</h2><table><tr>{head}</tr>{rows}</table>"


def _bar(parts: Sequence[float], whole: float) -> str:
    at, boxes = 0.0, ""
    for part, colour in zip(parts, "owd", strict=True):
        width = 100 * part / whole
        boxes += f'<rect class="{colour}" x="{at:.2f}" width="{width:.2f}" height="10"/>'
        at += width
    return f'<svg viewBox="0 0 100 10" preserveAspectRatio="none">{boxes}</svg>'


def _names(analysis: Analysis) -> str:
    rows = ""
    for each in analysis.names:
        waiting = percent(each.waiting / each.total if each.total else 0.0)
        rows += _row([escape(each.name), f"{each.count:,}", amount(each.bytes), f"{each.total:.2f} s", waiting])
    head = "<th></th><th>of a rank</th><th>operands</th><th>time of a rank</th><th>of it waiting</th>"
    return f"<h2>Operations that took longest</h2><table><tr>{head}</tr>{rows}</table>"


def _notes(analysis: Analysis) -> str:
    notes = ["Operations that overlap with computation count as data, though they may cost nothing."]
    if len(analysis.epochs) > 1:
        members = "; then ".join(", ".join(map(str, ranks)) for ranks in analysis.epochs)
        notes.append(f"The job went on with other ranks: {members}. {_NUMBERS}")
    if analysis.compared < 0.99:
        share = percent(1 - analysis.compared)
        notes.append(
            f"For {share} of the operations the last rank is not known: not all ranks recorded them equally often."
        )
    if analysis.unended:
        notes.append(f"{analysis.unended} operations have no end.")
    return f'<p class="faint">{escape(" ".join(notes))}</p>'


def percent(share: float) -> str:
    """Return a share as text: "12.3 %" for 0.123."""
    return f"{100 * share:.1f} %"


def amount(count: float) -> str:
    """Return a number of bytes with its unit."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"

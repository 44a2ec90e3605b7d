"""Findings about several hosts -> what is printed. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from farandole.launch.messages import printable
from farandole.observe.doctor import report
from farandole.observe.doctor.finding import OK
from farandole.observe.doctor.hosts import ALL, HostFinding, ok_counts

_ALL_TEXT = "all hosts"
_CHECK_WIDTH = 15


def as_text(found: Sequence[HostFinding]) -> str:
    """One line for each finding that is not OK, one for those of a host that are, a summary at the end."""
    lines: list[str] = []
    counts = ok_counts(found)
    width = max(len(_shown(host)) for host in counts) + 1
    for host, count in counts.items():
        prefix = f"{_shown(host)}:".ljust(width)
        if count:
            lines.append(f"OK    {prefix} {count} {'check' if count == 1 else 'checks'} OK{_reached_at(host, found)}")
        for each in [each.finding for each in found if each.host == host and each.finding.level != OK]:
            lines.append(f"{each.level:<5} {prefix} {each.check:<{_CHECK_WIDTH}} {each.text}")
            lines.append(f"{' ' * (6 + width + 1 + _CHECK_WIDTH + 1)}-> {each.mend}")
    summary = report.summary([each.finding for each in found], "on these hosts")
    return "\n".join([*map(printable, lines), "", summary])


def _shown(host: str) -> str:
    return _ALL_TEXT if host == ALL else host


def _reached_at(host: str, found: Sequence[HostFinding]) -> str:
    texts = [each.finding.text for each in found if each.host == host and each.finding.check == "reach"]
    good = [text for text in texts if text.startswith("all others")]
    return f"; {good[0]}" if good else ""


def as_json(found: Sequence[HostFinding]) -> str:
    """For programs: a list; the host of a finding about several is ""."""
    return json.dumps([{"host": each.host, **asdict(each.finding)} for each in found], indent=2)


def exit_code(found: Sequence[HostFinding]) -> int:
    """1 where something is FAIL, else 0."""
    return report.exit_code([each.finding for each in found])

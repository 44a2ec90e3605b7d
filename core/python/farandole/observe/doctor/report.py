"""Findings -> what is printed, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from farandole.observe.doctor.finding import FAIL, OK, WARN, Finding

_WIDTH = 15
_INDENT = " " * (len("WARN  ") + _WIDTH + 1)


def as_text(findings: Sequence[Finding]) -> str:
    """One line for each finding, its mend below it, a summary at the end."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.level:<5} {finding.check:<{_WIDTH}} {finding.text}")
        if finding.mend:
            lines.append(f"{_INDENT}-> {finding.mend}")
    return "\n".join([*lines, "", summary(findings, "here")])


def as_json(findings: Sequence[Finding]) -> str:
    """For programs: `ok` is false where something is FAIL."""
    return json.dumps({"ok": exit_code(findings) == 0, "findings": [asdict(each) for each in findings]}, indent=2)


def exit_code(findings: Sequence[Finding]) -> int:
    """1 where something is FAIL, else 0."""
    return int(any(finding.level == FAIL for finding in findings))


def summary(findings: Sequence[Finding], place: str) -> str:
    """The last line; `place` is where jobs run or not."""
    count = {level: sum(finding.level == level for finding in findings) for level in (OK, WARN, FAIL)}
    text = f"{count[OK]} OK, {count[WARN]} WARN, {count[FAIL]} FAIL: "
    if count[FAIL]:
        return text + f"jobs will not run {place} until what is marked FAIL is mended."
    return text + (f"jobs run {place}; each WARN says what is lost." if count[WARN] else f"jobs run {place}.")

"""Turns findings into text or JSON, and into the exit code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from farandole.launch.messages import printable
from farandole.observe.doctor.finding import FAIL, OK, WARN, Finding

_WIDTH = 15
_ALL_HOSTS = "all hosts"


def as_text(findings: Sequence[Finding]) -> str:
    """Return one line for each finding, with its fix below, and a summary at the end."""
    return "\n".join([*(line for each in findings for line in _lines(each)), "", _summary(findings, "here")])


def hosts_as_text(findings: Sequence[Finding]) -> str:
    """Return a line for each finding that is not OK, a line for each host's OK findings, and a summary at the end."""
    lines: list[str] = []
    hosts = dict.fromkeys(each.host for each in findings)
    width = max(len(host or _ALL_HOSTS) for host in hosts) + 1
    for host in hosts:
        prefix = f"{host or _ALL_HOSTS}:".ljust(width)
        good = [each for each in findings if each.host == host and each.level == OK]
        if good:
            reach = [f"; {each.text}" for each in good if each.check == "reach"]
            checks = f"{len(good)} {'check' if len(good) == 1 else 'checks'} OK"
            lines.append(f"OK    {prefix} {checks}{''.join(reach)}")
        bad = [each for each in findings if each.host == host and each.level != OK]
        lines += [line for each in bad for line in _lines(each, f"{prefix} ")]
    return "\n".join([*map(printable, lines), "", _summary(findings, "on these hosts")])


def _lines(finding: Finding, prefix: str = "") -> list[str]:
    begin = f"{finding.level:<5} {prefix}{finding.check:<{_WIDTH}} "
    fix = [f"{' ' * (len(prefix) + _WIDTH + 7)}-> {finding.fix}"] if finding.fix else []
    return [f"{begin}{finding.text}", *fix]


def as_json(findings: Sequence[Finding]) -> str:
    """Return JSON for programs; `ok` is false if a finding is FAIL."""
    rows = [{name: value for name, value in asdict(each).items() if name != "host"} for each in findings]
    return json.dumps({"ok": exit_code(findings) == 0, "findings": rows}, indent=2)


def hosts_as_json(findings: Sequence[Finding]) -> str:
    """Return a JSON list for programs; the host of a finding about several hosts is ""."""
    return json.dumps([{"host": each.host, **asdict(each)} for each in findings], indent=2)


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if a finding is FAIL, else 0."""
    return int(any(finding.level == FAIL for finding in findings))


def _summary(findings: Sequence[Finding], place: str) -> str:
    """Return the last line. `place` is the machine or the machines."""
    count = {level: sum(finding.level == level for finding in findings) for level in (OK, WARN, FAIL)}
    text = f"{count[OK]} OK, {count[WARN]} WARN, {count[FAIL]} FAIL: "
    if count[FAIL]:
        return text + f"jobs will not run {place} until what is marked FAIL is fixed."
    return text + (f"jobs run {place}; each WARN says what is lost." if count[WARN] else f"jobs run {place}.")

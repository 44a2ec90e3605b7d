"""`farandole doctor`, run as its users run it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

HEALTHY = ("platform", "python", "memfd", "core", "one rank", "two ranks", "loopback")


def test_this_machine_is_examined(run: Callable[..., Any]) -> None:
    result = run("--json", verb="doctor")
    report = json.loads(result.out)
    findings = {finding["check"]: finding for finding in report["findings"]}
    assert {name: findings[name]["level"] for name in HEALTHY} == dict.fromkeys(HEALTHY, "OK"), result.out
    assert "through shared memory" in findings["two ranks"]["text"]
    failed = [finding for finding in report["findings"] if finding["level"] == "FAIL"]
    assert (result.code, report["ok"]) == (int(bool(failed)), not failed)
    assert result.err == ""


def test_a_setting_that_is_not_understood_ends_it_with_1(run: Callable[..., Any]) -> None:
    result = run(verb="doctor", env={"FARANDOLE_ORDER": "random", "FARANDOLE_ALGORITM": "ring"})
    assert result.code == 1
    lines = result.out.splitlines()
    at = next(i for i, line in enumerate(lines) if "FARANDOLE_ORDER=random" in line)
    assert lines[at].startswith("FAIL  settings")
    assert lines[at + 1].strip() == "-> Unset it, or set it to fixed or any."
    assert any(line.startswith("WARN  settings") and "FARANDOLE_ALGORITM" in line for line in lines)
    assert any(line.startswith("FAIL  one rank") and "FARANDOLE_ORDER" in line for line in lines)


def test_ranks_that_share_no_memory_are_a_warning(run: Callable[..., Any]) -> None:
    result = run(verb="doctor", env={"FARANDOLE_ARENAS": "0"})
    (line,) = [line for line in result.out.splitlines() if " two ranks " in line]
    assert line.startswith("WARN")
    assert "by TCP" in line


def test_it_takes_no_wrong_options(run: Callable[..., Any]) -> None:
    assert run("--limit", "0", verb="doctor").code == 2

"""Pytest plugin: a test that is skipped is a test that proves nothing.

Under CI=true, a skip that no line of allowed_skips.txt, in this folder, matches fails the run. A line is a pattern over
the test's id (`tests/launch/test_cli.py::test_name*`), then its reason after `#`. The conftest.py at the root loads it.
noxfile.py reads the same list for the C++ tests.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ALLOWED = Path(__file__).with_name("allowed_skips.txt")


def allowed_patterns(text: str) -> list[str]:
    patterns = [line.split("#")[0].strip() for line in text.splitlines()]
    return [pattern for pattern in patterns if pattern]


def refused_skips(skipped: list[str], patterns: list[str]) -> list[str]:
    # fnmatch would read the brackets of a parametrized id as a set of characters.
    escaped = [pattern.replace("[", "[[]") for pattern in patterns]
    return [name for name in skipped if not any(fnmatchcase(name, pattern) for pattern in escaped)]


class SkipGuard:
    def __init__(self, patterns: list[str]) -> None:
        self.patterns = patterns
        self.skipped: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if refused_skips(self.skipped, self.patterns) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name in refused_skips(self.skipped, self.patterns):
            terminalreporter.write_line(f"FAILED {name}: skipped, and not in {ALLOWED.name}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI") == "true":
        config.pluginmanager.register(SkipGuard(allowed_patterns(ALLOWED.read_text())))

"""Which Python tests there are, and in which environment each runs."""

from __future__ import annotations

from door import ROOT
from door.environments import ENVIRONMENTS, place_of


def suites() -> list[str]:
    """Folders of Python tests, cheapest first; each is a run of its own. Packaging is a session."""
    first = ["tests/architecture", "core/tests/python"]
    rest = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("tests/*"), *ROOT.glob("plugins/*/tests")])
    chosen = first + [folder for folder in rest if folder not in first and "packaging" not in folder]
    return [folder for folder in chosen if any((ROOT / folder).rglob("test_*.py"))]


def chosen(arguments: list[str]) -> dict[str, list[str]]:
    """Arguments of pytest, for each place of whose tests they name some; without any, all are for PyTorch's."""
    found = {argument: _suites_within(argument) for argument in arguments}
    named = {place_of(suite) for suites in found.values() for suite in suites} or {"torch"}
    return {
        place: [each for argument in arguments for each in _part(argument, found[argument], place)]
        for place in ENVIRONMENTS
        if place in named
    }


def _suites_within(argument: str) -> list[str]:
    """The suite in which the file, folder or test that it names lies; all of those that lie in the folder."""
    path = ROOT / argument.partition("::")[0]
    if not path.exists():
        return []
    return [suite for suite in suites() if (ROOT / suite).is_relative_to(path) or path.is_relative_to(ROOT / suite)]


def _part(argument: str, suites: list[str], place: str) -> list[str]:
    """What of the argument goes to this place's tests."""
    mine = [suite for suite in suites if place_of(suite) == place]
    return [argument] if mine == suites else mine

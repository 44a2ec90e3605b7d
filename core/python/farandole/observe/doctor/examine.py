"""All topics in order: what `farandole doctor` does before it prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from farandole.observe.doctor import build, libraries, limits, machine, network, packages, settings
from farandole.observe.doctor.finding import Finding, warn


def examine(environment: Mapping[str, str], limit_s: float) -> list[Finding]:
    """Ask this machine everything; `limit_s` is the time that each trial of the core may take."""
    trials = build.attempt(environment, limit_s)
    topics: dict[str, Callable[[], list[Finding]]] = {
        "machine": lambda: machine.examine(environment),
        "limits": limits.examine,
        "network": network.examine,
        "settings": lambda: settings.examine(environment, trials.describe),
        "build": lambda: build.examine(trials),
        "packages": lambda: packages.judge(packages.gather()),
        "libraries": lambda: libraries.examine(environment),
    }
    return [finding for name, topic in topics.items() for finding in findings_of(name, topic)]


def findings_of(name: str, topic: Callable[[], list[Finding]]) -> list[Finding]:
    """The findings of `topic`. A topic that fails says so, and the other topics are examined all the same."""
    try:
        return topic()
    except Exception as error:
        text = f"cannot be examined here: {type(error).__name__}: {error}"
        return [warn(name, text, "Look at this topic by hand; docs/guide/doctor.md lists what is checked.")]

"""All topics in order: what `farandole doctor` does before it prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from farandole.observe.doctor import build, libraries, limits, machine, network, packages, settings
from farandole.observe.doctor.finding import Finding, warn


def examine(environment: Mapping[str, str], limit_s: float) -> list[Finding]:
    """Ask this machine everything; `limit_s` is the time that each trial of the core may take."""
    topics: dict[str, Callable[[], list[Finding]]] = {
        "machine": lambda: machine.judge(machine.gather(environment)),
        "limits": lambda: limits.judge(limits.gather()),
        "network": lambda: network.judge(network.gather()),
        "settings": lambda: settings.judge(settings.gather(environment)),
        "build": lambda: build.judge(build.gather(environment, limit_s)),
        "packages": lambda: packages.judge(packages.gather()),
        "libraries": lambda: libraries.judge(libraries.gather(environment)),
    }
    return [finding for name, topic in topics.items() for finding in findings_of(name, topic)]


def findings_of(name: str, topic: Callable[[], list[Finding]]) -> list[Finding]:
    """The findings of `topic`. A topic that fails says so, and the other topics are examined all the same."""
    try:
        return topic()
    except Exception as error:
        text = f"cannot be examined here: {type(error).__name__}: {error}"
        return [warn(name, text, "Look at this topic by hand; docs/guide/doctor.md lists what is checked.")]

"""Runs the checks of all topics in order, for `farandole doctor`.

    python -m farandole.observe.doctor.run_checks LIMIT_S

is the child in which an agent checks its host: it prints findings and versions of packages as one line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from importlib import metadata
from typing import Any

from farandole.launch.environment import inherited
from farandole.observe.doctor import build, limits, machine, network, packages, settings
from farandole.observe.doctor.finding import Finding, warn


def run_checks(environment: Mapping[str, str], limit_s: float) -> list[Finding]:
    """Ask this machine everything; `limit_s` is the time that each trial of the core may take."""
    trials = build.attempt(environment, limit_s)
    topics: dict[str, Callable[[], list[Finding]]] = {
        "machine": lambda: machine.check(environment),
        "limits": limits.check,
        "network": network.check,
        "settings": lambda: settings.check(environment, (trials.describe.answer or {}).get("place")),
        "build": lambda: build.check(trials),
        "packages": lambda: packages.findings_of(packages.gather()),
    }
    return [finding for name, topic in topics.items() for finding in findings_of(name, topic)]


def findings_of(name: str, topic: Callable[[], list[Finding]]) -> list[Finding]:
    """The findings of `topic`. A topic that fails says so, and the other topics are checked all the same."""
    try:
        return topic()
    except Exception as error:
        text = f"cannot be checked here: {type(error).__name__}: {error}"
        return [warn(name, text, "Look at this topic by hand; docs/guide/doctor.md lists what is checked.")]


def versions() -> dict[str, Any]:
    """The versions that hosts compare; none of the packages is imported."""
    facts = packages.gather()
    plugins = {plugin.distribution: plugin.version for plugin in facts.plugins}
    own = {"farandole": facts.farandole, **plugins}
    others = {"Python": platform.python_version(), "numpy": facts.numpy, **facts.frameworks}
    return {
        "own": own,
        "others": {name: version for name, version in others.items() if version},
        "wheels": {name: _digest_of(name) for name in own},
        "platform": f"{platform.machine()} {platform.python_implementation()} {sys.version_info[:2]}",
    }


def _digest_of(distribution: str) -> str:
    try:
        record = metadata.distribution(distribution).read_text("RECORD")
    except metadata.PackageNotFoundError:
        return ""
    return digest((record or "").splitlines())


def digest(record: Iterable[str]) -> str:
    """The lines of a wheel's RECORD -> some digits that change with any of its files; "" where it lists none.

    An installer adds files without a hash, and some to the folder *.dist-info.
    """
    lines = sorted(line for line in record if ",sha256=" in line and ".dist-info/" not in line)
    own = [line for line in lines if not line.startswith("..")]  # scripts name the interpreter
    return hashlib.sha256("\n".join(own).encode()).hexdigest()[:12] if own else ""


def main() -> None:
    """Examine and print."""
    findings = run_checks(inherited(), float(sys.argv[1]))
    print(json.dumps({"findings": [asdict(each) for each in findings], "versions": versions()}))


if __name__ == "__main__":
    main()

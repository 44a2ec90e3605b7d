"""Runs the checks of all topics in order, for `farandole doctor`.

    python -m farandole.observe.doctor.run_checks LIMIT_S

is the child process in which an agent checks its host. It prints findings and package versions as one line of JSON.
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
    """Run all checks of this machine. Each trial of the core may take `limit_s`."""
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
    """Return the findings of a topic. A topic that fails becomes a finding, so the others are still checked."""
    try:
        return topic()
    except Exception as error:
        text = f"cannot be checked here: {type(error).__name__}: {error}"
        return [warn(name, text, "Look at this topic by hand; docs/guide/doctor.md lists what is checked.")]


def versions() -> dict[str, Any]:
    """Return the versions that hosts compare, without importing the packages."""
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
    """Return a digest of all files in a wheel's RECORD, or "" if it lists none.

    Files that an installer adds do not count: those without a hash, and those in *.dist-info.
    """
    lines = sorted(line for line in record if ",sha256=" in line and ".dist-info/" not in line)
    own = [line for line in lines if not line.startswith("..")]  # not scripts, which contain the interpreter's path
    return hashlib.sha256("\n".join(own).encode()).hexdigest()[:12] if own else ""


def main() -> None:
    """Run the checks and print the result."""
    findings = run_checks(inherited(), float(sys.argv[1]))
    print(json.dumps({"findings": [asdict(each) for each in findings], "versions": versions()}))


if __name__ == "__main__":
    main()

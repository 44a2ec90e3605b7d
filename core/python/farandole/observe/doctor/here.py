"""The child in which an agent examines its host: prints the findings and the versions of packages as one line of JSON.

python -m farandole.observe.doctor.here LIMIT_S
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterable
from dataclasses import asdict
from importlib import metadata
from typing import Any

from farandole.launch import environment
from farandole.observe.doctor import packages
from farandole.observe.doctor.examine import examine


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
    findings = examine(environment.inherited(), float(sys.argv[1]))
    print(json.dumps({"findings": [asdict(each) for each in findings], "versions": versions()}))


if __name__ == "__main__":
    main()

"""The sources of one distribution as they go to the package index: complete without the rest of the tree."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

from dev import ROOT, VERSION_FILE

# The parts of the core that a distribution compiles: the C interface of plugins, and that of the library for Gloo.
_BORROWED = {
    "plugins/mxnet": {"core/include": "include"},
    "plugins/tensorflow": {"core/include": "include"},
    "core/gloo": {"core/src/backends/gloo/bridge.h": "include/backends/gloo/bridge.h"},
}
_LEFT_OUT = {"tests", "benchmarks", "distribution", "gloo"}  # the last two are distributions of their own
_VERSION_TABLE = re.compile(r"\n\[tool\.(?:hatch|scikit-build\.metadata)\.version\][^\n]*(?:\n[^\[\n][^\n]*)*")


def release_version() -> str:
    """The version of all distributions."""
    found = re.search(r'^__version__ = "(.+)"$', VERSION_FILE.read_text(), re.MULTILINE)
    assert found, VERSION_FILE
    return found[1]


@functools.cache  # a commit meanwhile changes nothing
def commit_time() -> str:
    """When the sources were committed: the time of every file in a release (SOURCE_DATE_EPOCH)."""
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def stage(folder: str, target: Path) -> None:
    """Copy a distribution's files to `target`, with the version in its pyproject.toml."""
    shutil.rmtree(target, ignore_errors=True)
    for file in _files_of(folder):
        parts = Path(file).relative_to(folder).parts
        if parts[0] not in _LEFT_OUT:
            _copy(ROOT / file, target.joinpath(*parts))
    for source, name in _BORROWED.get(folder, {}).items():
        for file in _files_of(source):
            _copy(ROOT / file, target / name / Path(file).relative_to(source) if file != source else target / name)
    project = target / "pyproject.toml"
    project.write_text(with_version(project.read_text(), release_version()))


def with_version(project: str, version: str) -> str:
    """The text of a pyproject.toml that has its version, instead of the place where the tree has it."""
    stamped = project.replace('dynamic = ["version"]', f'version = "{version}"')
    return _VERSION_TABLE.sub("", stamped).rstrip("\n") + "\n"


def _files_of(path: str) -> list[str]:
    """The files that git knows, or would take, below a path of the tree."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", path]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(file for file in listing.splitlines() if (ROOT / file).is_file())


def _copy(source: Path, target: Path) -> None:
    """Of a link, what it leads to."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o644)

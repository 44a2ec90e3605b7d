"""The C++ tests: how they are built, for this machine or another, and run."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree

import nox

from dev import ROOT
from dev.debian import find_gtest
from dev.environments import STRICT, build_environment, core_build
from dev.jobs import step


def fail_on_skips(session: nox.Session, results: Path) -> None:
    """Under CI=true, refuse skips that allowed_skips.txt does not list, as skips.py does for pytest."""
    lines = (ROOT / "tests" / "support" / "allowed_skips.txt").read_text().splitlines()
    allowed = [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]
    cases = ElementTree.parse(results).getroot().iter("testcase")
    skipped = [f"cpp::{case.get('name')}" for case in cases if case.find("skipped") is not None]
    refused = [name for name in skipped if not any(fnmatch(name, pattern) for pattern in allowed)]
    if refused and os.environ.get("CI") == "true":
        session.error(f"skipped but not in tests/support/allowed_skips.txt: {', '.join(refused)}")


def build_target(session: nox.Session, target: str, options: Sequence[str], build: Path | None = None) -> Path:
    """Build a target of the core, by default where what is shipped is built, so that both share what they have."""
    env = build_environment(session)
    folder = build or core_build(env)
    switches = [] if (folder / "CMakeCache.txt").exists() else ["-DFARANDOLE_BINDINGS=OFF"]  # which only a wheel needs
    switches += ["-DFARANDOLE_WERROR=ON"] if STRICT else []
    with step(f"Building {target}", "1 to 4 minutes the first time"):
        env.run("cmake", "-S", "core", "-B", str(folder), "-G", "Ninja", *switches, *options, silent=True)
        env.run("cmake", "--build", str(folder), "--target", target)
    return folder


def build_tests(session: nox.Session, options: Sequence[str] = (), build: Path | None = None) -> Path:
    return build_target(session, "farandole_tests", ["-DFARANDOLE_TESTS=ON", *find_gtest(session), *options], build)


def run_ctest(
    session: nox.Session,
    build: Path,
    select: Sequence[str],
    wrapper: Sequence[str] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run the C++ tests in this folder that `select` names to ctest (-R some_test)."""
    results = build / "results.xml"
    ctest = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=error", *select]
    common = "halt_on_error=1:allocator_may_return_null=1"  # a test asks for more memory than there is
    options = {"ASAN_OPTIONS": common, "UBSAN_OPTIONS": f"{common}:print_stacktrace=1", "TSAN_OPTIONS": common}
    parallel = ["--parallel", str((os.cpu_count() or 1) + 2), "--output-junit", str(results)]  # some only wait
    with tempfile.TemporaryDirectory(prefix="frd-", ignore_cleanup_errors=True) as folder:
        variables = {"TMPDIR": folder, **options, **variables}
        build_environment(session).run(*wrapper, *ctest, *parallel, variables=variables)
    fail_on_skips(session, results)


def suites_of(*folders: str) -> Sequence[str]:
    """The option by which ctest chooses the tests in these folders of core/tests/cpp, each of which must have some."""
    suite = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", re.MULTILINE)
    found = [suite.findall("".join(map(Path.read_text, ROOT.glob(f"core/tests/cpp/{each}/*.cc")))) for each in folders]
    if not all(found):
        raise ValueError(f"not all of these folders of core/tests/cpp have tests: {', '.join(folders)}")
    return "-R", f"(^|/)({'|'.join(sorted(set[str]().union(*found)))})[./]"

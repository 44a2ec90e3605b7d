"""The entry point for every developer action.

    python3 noxfile.py              set up everything, run every test
    python3 noxfile.py -s demo      set up everything, train a small model on 2 workers
    python3 noxfile.py -l           what else there is
    python3 noxfile.py -s python -- tests/launch -k cli      some tests only

Needs Python >= 3.10 with venv and headers, a C++17 compiler, and the package index. Results go to .nox/ and
plugins/*/build/, and are used again until something that they depend on changes.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

sys.path.insert(0, str(Path(__file__).resolve().parent / ".ci"))

from dev import MADE, ROOT
from dev.start import start

if __name__ == "__main__":
    start()

import nox
from dev.cpp import build_target, build_tests, run_ctest, suites_of
from dev.debian import NEEDED_PROGRAMS, find_gtest, find_programs, gloo_variables
from dev.environments import (
    Environment,
    Framework,
    Together,
    build_environment,
    build_wheel,
    core_build,
    mxnet,
    pytorch,
    tensorflow,
    without_framework,
)
from dev.jobs import Job, run_jobs, step
from dev.pins import CONDA, DOCS, LINTERS, MPI, TYPES, VLLM
from dev.release import build_release
from dev.release_check import check
from dev.suites import LONG, MXNET, NEWEST, OLDEST, Run, beside_of, chosen, runs_of

nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "none"  # sessions share environments, see Environment
logging.getLogger("nox").addFilter(lambda record: "uv binary" not in record.getMessage())  # we do not look for one

WHEEL, GLOO = "The core's wheel", "The library for Gloo"  # jobs that others need
OF_VERSIONS = [f"plugins/tensorflow/tests/test_{name}.py" for name in ("conformance", "graphs", "keras", "keras_saved")]


# ---- Tests -----------------------------------------------------------------------------------------------------------


@nox.session
def tests(session: nox.Session) -> None:
    """Everything that must hold, side by side: form, C++, Python, packaging."""
    runs = [*runs_of(), Run("What depends on TensorFlow's version", (OLDEST,), OF_VERSIONS)]
    run_jobs(session, form_jobs(session) | cpp_jobs(session) | python_jobs(session, runs))


@nox.session
def quick(session: nox.Session) -> None:
    """Before every commit: form, the pure tests, and one conformance per framework."""
    files = ["tests/architecture", "core/tests/python/test_numpy_conformance.py"]
    files += [str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/tests/test_conformance.py")]
    pure = cpp_jobs(session, suites_of("common", "reduce", "algorithms", "controller"))  # no process, thread or socket
    run_jobs(session, form_jobs(session) | pure | python_jobs(session, runs_of(files)))


@nox.session
def python(session: nox.Session) -> None:
    """Python tests: architecture, core, launcher, plugins, examples. Arguments after -- go to pytest instead."""
    run_jobs(session, python_jobs(session, chosen(session.posargs)), most=1 if session.posargs else 0)


def python_jobs(
    session: nox.Session,
    runs: Sequence[Run],
    options: Sequence[str] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Job]:
    """Jobs that run pytest, in each of a run's environments."""
    made: dict[str, Environment | None] = {}
    found: dict[str, str] = {}

    def make(beside: Framework | Together) -> None:
        made[beside.called] = beside.make(session)

    def run(called: str, arguments: list[str]) -> None:
        env = made[called]
        if env is None:
            return
        more = {"FARANDOLE_WHEELS": env.noted("farandole")} if "packaging" in " ".join(arguments) else {}
        env.run("python", "-m", "pytest", *arguments, *options, variables={**more, **found, **variables})

    jobs = {WHEEL: Job(lambda: build_wheel(build_environment(session), "core"))}
    for what, environments, arguments in runs:
        needed = []
        if any(each.startswith(("tests/collectives/backends", "plugins/")) for each in arguments):  # carried by Gloo
            jobs[GLOO] = Job(lambda: found.update(gloo_variables(session)))
            needed.append(GLOO)
        if any(each.startswith(("core/tests", "plugins/")) for each in arguments):  # types of users
            jobs["Linters"] = Job(partial(linters, session))
            needed.append("Linters")
        for tests, programs in NEEDED_PROGRAMS.items():
            if any(each.startswith(tests) for each in arguments):
                jobs[f"Programs for {tests}"] = Job(partial(find_programs, session, tests, programs))
                needed.append(f"Programs for {tests}")
        for beside in environments:
            env = f"Environment: {beside.called}"
            lenders = beside.lenders if isinstance(beside, Together) else ()
            jobs[env] = Job(partial(make, beside), (WHEEL, *(f"Environment: {each.called}" for each in lenders)))
            if isinstance(beside, Framework):
                packages = f"Packages: {beside.called}"
                jobs[packages] = Job(partial(beside.packages, session))
                jobs[env] = Job(partial(make, beside), (WHEEL, packages))
            jobs[f"{what}, {beside.called}"] = Job(partial(run, beside.called, arguments), (env, *needed))
    return jobs


@nox.session
def version(session: nox.Session) -> None:
    """Another version: -- torch 2.3, tensorflow 2.13, mxnet 3.10 or core 3.13 (a Python); then pytest's arguments."""
    makers: dict[str, Callable[[str], Framework]] = {"torch": pytorch, "tensorflow": tensorflow}
    makers |= {"mxnet": mxnet, "core": without_framework}
    if len(session.posargs) < 2 or session.posargs[0] not in makers:
        session.error(f"after -- comes one of {', '.join(makers)}, and a version, see docs/contributing.md")
    name, number, *arguments = session.posargs
    paths = {
        "torch": ["plugins/torch/tests", "tests/collectives/meaning/test_torch_oracle.py", "tests/collectives/parity"],
        "mxnet": ["plugins/mxnet/tests", "tests/packaging/test_mxnet_wheel.py"],
        "core": ["core/tests/python", "tests/collectives/meaning/test_oracle.py"],
    }
    usual = runs_of(paths[name]) if name in paths else [run for run in runs_of() if NEWEST in run.beside]
    chosen_runs = [Run(" ".join(arguments), (), arguments)] if arguments else usual
    beside = (makers[name](number),)
    runs = [run._replace(beside=beside) for run in chosen_runs]
    run_jobs(session, python_jobs(session, runs))


@nox.session
def soak(session: nox.Session) -> None:
    """The long forms: 25,000 random cases, 2,000 settings, 1,000 kills, all examples. Arguments after -- choose."""
    run_jobs(session, python_jobs(session, chosen(session.posargs, LONG), ["-s"], {"FARANDOLE_LONG": "1"}), most=1)


@nox.session
def soak_elastic(session: nox.Session) -> None:
    """An elastic job on lab hosts with a fault every 15 s, for 2 minutes. After --: seconds, --seed N, --only KIND."""
    run_soak(session, "tests/soak/soak.py")


@nox.session
def soak_diagnosis(session: nox.Session) -> None:
    """Inject 50 faults into small jobs; judge who is blamed, how soon. After --: how many, --seed N, --only KIND."""
    for framework in (NEWEST, MXNET):
        if (MADE / framework.home).exists():  # others run without it
            framework.needed(session)
    run_soak(session, "tests/diagnosis/soak_diagnosis.py")


def run_soak(session: nox.Session, program: str) -> None:
    find_programs(session, "tests/hosts", NEEDED_PROGRAMS["tests/hosts"])
    variables = {"PYTHONPATH": str(ROOT / "tests" / "support"), "OMP_NUM_THREADS": "1"}
    pytorch().needed(session).run("python", program, *session.posargs, variables=variables)


@nox.session
def carried(session: nox.Session) -> None:
    """Every call of MPI; every plugin's conformance, carried by Gloo and each MPI. Arguments after -- choose."""
    build = build_target(session, "mpi_ranks", ["-DFARANDOLE_TESTS=ON", *find_gtest(session)])
    variables = {"FARANDOLE_LONG": "1", "FARANDOLE_MPI_RANKS": str(build / "mpi_ranks")}
    files = [str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/tests/test_carried.py")]
    runs = chosen(session.posargs, ["tests/collectives/backends", *files])
    run_jobs(session, python_jobs(session, runs, variables=variables), most=1)


@nox.session
def c10d(session: nox.Session) -> None:
    """PyTorch's own tests of torch.distributed, on 4 and on 8 ranks. Arguments after -- go to pytest."""
    run_jobs(session, python_jobs(session, chosen(["tests/programs/test_torch_c10d.py", *session.posargs]), ["-s"]))


def cpp_jobs(session: nox.Session, select: Sequence[str] = ()) -> dict[str, Job]:
    found: dict[str, str] = {}

    def run() -> None:
        run_ctest(session, core_build(build_environment(session)), select, variables=found)

    return {
        WHEEL: Job(lambda: build_wheel(build_environment(session), "core")),
        "C++ tests, compiled": Job(lambda: build_tests(session), (WHEEL,)),  # of which it is a part
        "C++ tests, Gloo": Job(lambda: found.update(gloo_variables(session))),
        "C++ tests": Job(run, ("C++ tests, compiled", "C++ tests, Gloo")),
    }


@nox.session
def cpp(session: nox.Session) -> None:
    """C++ tests. Arguments after -- go to ctest."""
    run_ctest(session, build_tests(session), session.posargs, variables=gloo_variables(session))


@nox.session
def simulation(session: nox.Session) -> None:
    """100,000 random starts of jobs and as many jobs; FARANDOLE_SEEDS: how many else, FARANDOLE_SEED: one again."""
    os.environ.setdefault("FARANDOLE_SEEDS", "100000")
    negotiation = "SimulationTest|SeveralRanks|OneGroup|ProcessSets|Join|Death|Leave|SlowReader|Planted"
    build = build_tests(session, ["-DFARANDOLE_TEST_SECONDS=3600"], MADE / "build" / "simulation")
    run_ctest(session, build, session.posargs or ("-R", f"RendezvousSimulation|Liveness|{negotiation}"))


@nox.session
def sanitize(session: nox.Session) -> None:
    """C++ tests under a sanitizer: -- address, undefined or thread; then arguments of ctest."""
    kinds = {"address": "address", "undefined": "undefined;float-cast-overflow", "thread": "thread"}
    kind, *arguments = session.posargs or [""]
    if kind not in kinds:
        session.error(f"after -- comes one of {', '.join(kinds)}")
    options = [f"-DFARANDOLE_SANITIZE={kinds[kind]}", "-DFARANDOLE_TEST_SECONDS=600"]
    build = build_tests(session, options, MADE / "build" / f"sanitize-{kind}")
    # An older sanitizer of threads has no room for its shadow where the kernel randomises more bits of an address.
    wrapper = ["setarch", platform.machine(), "--addr-no-randomize"] if kind == "thread" else []
    without_gloo = ["-E", "^Gloo[.](AnySequence|WorkThat)"]  # which is not ours to sanitize
    run_ctest(session, build, arguments or without_gloo, wrapper)


@nox.session
def cpp_aarch64(session: nox.Session) -> None:
    """Compile for aarch64 with Debian's cross compiler; run the tests of core/src/common and reduce under qemu."""
    target = "aarch64-linux-gnu"
    if not (shutil.which(f"{target}-g++") and shutil.which("qemu-aarch64") and Path("/usr/src/googletest").is_dir()):
        session.error("something is missing (Debian, Ubuntu: apt install g++-aarch64-linux-gnu qemu-user libgtest-dev)")
    cross = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"]
    cross += [f"-DCMAKE_C_COMPILER={target}-gcc", f"-DCMAKE_CXX_COMPILER={target}-g++"]
    cross += [f"-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/{target}"]
    build = build_tests(session, cross, MADE / "build" / session.name)
    run_ctest(session, build, session.posargs or suites_of("common", "reduce"))


# ---- Form ------------------------------------------------------------------------------------------------------------


def cpp_files() -> str:
    """The option that names all C++ files to clang-format."""
    folders = [*ROOT.glob("core/*/"), *ROOT.glob("plugins/*/csrc"), *ROOT.glob("tests/support/fake_*")]
    files = [str(path) for folder in folders for ending in ("cc", "h") for path in folder.rglob(f"*.{ending}")]
    (MADE / "cpp-files").write_text("\n".join(sorted(file for file in files if "/build/" not in file)))
    return f"--files={MADE / 'cpp-files'}"


def linters(session: nox.Session) -> Environment:
    env = Environment(session, "lint")
    env.require("linters", [*LINTERS, *TYPES], "about 130 MB, a minute")
    return env


@nox.session
def lint(session: nox.Session) -> None:
    """Form, types and spelling: ruff, mypy, clang-format, codespell."""
    run_jobs(session, form_jobs(session))


def form_jobs(session: nox.Session) -> dict[str, Job]:
    packages = [str(path) for path in [ROOT / "core" / "python" / "farandole", *sorted(ROOT.glob("plugins/*/src/*/"))]]
    commands = {
        "ruff check (form, likely mistakes)": ["ruff", "check", "."],
        "ruff format (`python3 noxfile.py -s format` repairs)": ["ruff", "format", "--diff", "--quiet", "."],
        "mypy (types)": ["mypy", "--cache-dir", str(MADE / "mypy"), "noxfile.py", *packages],
        "clang-format (`python3 noxfile.py -s format` repairs)": ["clang-format", "--dry-run", "-Werror", cpp_files()],
        "codespell (spelling)": ["codespell", "--config", ".mypy.ini", ".", ".ci/dev", ".ci/run"],
    }

    def run(command: list[str]) -> None:
        linters(session).run(*command)

    jobs = {name: Job(partial(run, command), ("Linters",)) for name, command in commands.items()}
    return {"Linters": Job(partial(linters, session)), **jobs}


@nox.session(name="format")
def format_files(session: nox.Session) -> None:
    """Rewrite files in the common form."""
    env = linters(session)
    env.run("ruff", "check", "--fix", "--exit-zero", "--quiet", ".")
    env.run("ruff", "format", ".")
    env.run("clang-format", "-i", cpp_files())


# ---- For people ------------------------------------------------------------------------------------------------------


@nox.session
def demo(session: nox.Session) -> None:
    """Train a small model on 2 workers."""
    env = pytorch().needed(session)
    env.run("farandole", "run", "-np", "2", "--no-prefix", "examples/torch/digits.py", *session.posargs)
    print("==> Your own script: .nox/torch/bin/farandole run -np 2 train.py", flush=True)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure: after -- comes a program in core/benchmarks or plugins/*/benchmarks, then its options."""
    if not session.posargs:
        session.error("after -- comes a benchmark; docs/benchmarks/README.md has the commands")
    program, *options = session.posargs
    name = Path(program).stem if program.startswith("core/") else ""
    if name in ("run", "backends", "between_hosts"):
        options.append(f"--programs={build_target(session, 'benchmarks', ['-DFARANDOLE_BENCHMARKS=ON'])}")
    for library, package in MPI.items() if name in ("run", "backends") else ():
        peer = Environment(session, library)
        peer.require(library, [package], "20 MB, Intel's 300")
        options.append(f"--{library}={peer.home}")
    if program == "plugins/torch/benchmarks/operators.py":
        peer = Environment(session, "vllm")
        peer.require("vLLM's operators", ["--no-deps", VLLM], "about 100 MB")
        options.append(f"--vllm={peer.home}")
    own_ranks = name or program.endswith("observed.py")
    launcher = [] if own_ranks else ["farandole", "run", "-np", "2", "--no-prefix"]
    # malloc would return gradients to the system after some steps: docs/design/training-steps.md has what that costs.
    keeping = {"MALLOC_MMAP_THRESHOLD_": "17179869184", "MALLOC_TRIM_THRESHOLD_": "17179869184"}
    (beside,) = beside_of(program)
    with step(f"Measuring beside {beside.called}", "1 to 10 minutes"):
        env = beside.make(session) or session.error(f"needs {beside.called}")
        env.run(*launcher, "python", program, *options, variables=None if own_ranks else keeping)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site of docs/ into .nox/site, every warning an error; no framework is installed for it."""
    env = Environment(session, "docs")
    env.require("the site's tools", DOCS, "about 40 MB, half a minute")
    with step("Building the site", "10 to 20 s"):
        sources = [ROOT / ".ci" / "site", ROOT / "core" / "python", *ROOT.glob("plugins/*/src")]
        settings = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": os.pathsep.join(map(str, sources))}
        env.run("mkdocs", "build", "--config-file", ".ci/site/mkdocs.yml", silent=True, variables=settings)
    print("==> .nox/site: python3 -m http.server --bind 127.0.0.1 --directory .nox/site", flush=True)


@nox.session
def build_wheels(session: nox.Session) -> None:
    """Put wheels and sdists into dist/, about 5 minutes a Python. After --: Pythons, plugins (3.12 torch)."""
    for path in build_release(session, MADE / "release", ROOT / "dist", session.posargs):
        print(f"==> dist/{path.name}", flush=True)
    print("==> Into an environment of yours: pip install --find-links dist 'farandole[torch]'", flush=True)


@nox.session
def release_check(session: nox.Session) -> None:
    """Build the release twice, compare; examine, install and use each wheel. After --: as for build_wheels."""
    check(session, session.posargs)


@nox.session
def conda(session: nox.Session) -> None:
    """Render the conda recipe for all Pythons and platforms; build packages from it. After --: names of packages."""
    env = Environment(session, "conda")
    env.require("conda's tools", CONDA, "about 35 MB")
    with step("Building conda packages", "compiles C++, 5 to 10 minutes"):
        env.run("python", ".ci/conda/build.py", str(MADE / "conda-build"), *session.posargs)

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
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

sys.path.insert(0, str(Path(__file__).resolve().parent / ".ci"))

from dev import MADE, ROOT
from dev.start import start

if __name__ == "__main__":
    start()

import nox
from dev.cpp import build_target, build_tests, run_ctest, run_sanitized, suites_of
from dev.debian import find_chromium, find_gtest, find_java, find_lab_programs, find_slurm, gloo_variables
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
from dev.leftovers import own_folder
from dev.pins import DOCS, LINTERS, MPI, MXNET, MXNET_PYTHON, PYTHONS, TENSORFLOW_PYTHONS, TORCH_PYTHONS, TYPES
from dev.release import NATIVE, Release
from dev.release_check import check
from dev.suites import INTEGRATIONS, LONG, NEWEST, OLDEST, PAGE, PROGRAMS, RAY, SPARK, SUITES, Runs, chosen, runs_of

nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "none"  # sessions share environments, see Environment
logging.getLogger("nox").addFilter(lambda record: "uv binary" not in record.getMessage())  # we do not look for one

WHEEL, GLOO, LAB = "The core's wheel", "The library for Gloo", "The programs for several hosts"  # jobs that others need
OF_VERSIONS = [f"plugins/tensorflow/tests/test_{name}.py" for name in ("conformance", "graphs", "keras", "keras_saved")]


# ---- Tests -----------------------------------------------------------------------------------------------------------


@nox.session
def tests(session: nox.Session) -> None:
    """Everything that must hold, side by side: form, C++, Python, packaging."""
    runs = runs_of() | {"What depends on TensorFlow's version": ((OLDEST,), OF_VERSIONS)}
    run_jobs(session, form_jobs(session) | cpp_jobs(session) | python_jobs(session, runs))


@nox.session
def quick(session: nox.Session) -> None:
    """Before every commit: form, the pure tests, and one conformance per framework."""
    places = [ROOT / "core/tests/python/test_numpy_conformance.py", *ROOT.glob("plugins/*/tests/test_conformance.py")]
    files = ["tests/architecture", *(str(path.relative_to(ROOT)) for path in places)]
    pure = cpp_jobs(session, suites_of("common", "reduce", "algorithms", "controller"))  # no process, thread or socket
    run_jobs(session, form_jobs(session) | pure | python_jobs(session, runs_of(files)))


@nox.session
def python(session: nox.Session) -> None:
    """Python tests: architecture, core, launcher, plugins, examples. Arguments after -- go to pytest instead."""
    run_jobs(session, python_jobs(session, chosen(session.posargs)), most=1 if session.posargs else 0)


def python_jobs(
    session: nox.Session,
    runs: Runs,
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
        # Several run side by side: threads of OpenMP that spin while they wait would take the cores from the others.
        more = {"PYTHONPATH": str(ROOT / "tests" / "support"), "OMP_NUM_THREADS": "1", **found}
        more |= {"FARANDOLE_WHEELS": env.noted("farandole")} if "packaging" in " ".join(arguments) else {}
        with own_folder() as temporary:
            command = ["python", "-m", "pytest", "-p", "skips", *arguments, *options]
            env.run(*command, variables={**more, **temporary, **variables})

    jobs = {WHEEL: Job(lambda: build_wheel(build_environment(session), "core"))}
    for what, (environments, arguments) in runs.items():
        carried = any(each.startswith(("tests/collectives/backends", "plugins/")) for each in arguments)
        jobs |= {GLOO: Job(lambda: found.update(gloo_variables(session)))} if carried else {}
        typed = any(each.startswith(("core/tests", "plugins/")) for each in arguments)
        jobs |= {"Linters": Job(partial(linters, session))} if typed else {}
        hosts = any(each.startswith("tests/hosts") for each in arguments)
        jobs |= {LAB: Job(partial(find_lab_programs, session))} if hosts else {}
        needed = [GLOO] * carried + ["Linters"] * typed + [LAB] * hosts
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


@nox.session(name="tensorflow")
@nox.parametrize("version", list(TENSORFLOW_PYTHONS))
def tensorflow_version(session: nox.Session, version: str) -> None:
    """Tests of the plugin for TensorFlow with one version of it. Arguments after -- go to pytest instead."""
    run_beside(session, tensorflow(version), [path for path, environments in SUITES.items() if NEWEST in environments])


@nox.session(name="mxnet")
@nox.parametrize("python", [each for each in PYTHONS if int(each[2:]) <= MXNET_PYTHON])
@nox.parametrize("version", [MXNET[0].partition("==")[2]])
def mxnet_version(session: nox.Session, version: str, python: str) -> None:
    """Tests of the plugin for MXNet with one version of it and one Python. Arguments after -- go to pytest instead."""
    run_beside(session, mxnet(version, python), ["plugins/mxnet/tests", "tests/packaging/test_mxnet_wheel.py"])


@nox.session(name="torch")
@nox.parametrize("version", list(TORCH_PYTHONS))
def torch_version(session: nox.Session, version: str) -> None:
    """Tests of the plugin for PyTorch with an older version of it. Arguments after -- go to pytest instead.

    Installs 5 to 7 GB, of which 2.5 to 3 GB are fetched: the builds with CUDA. With FARANDOLE_TORCH_INDEX, see
    docs/contributing.md, those for CPUs: about 1 GB, of which 200 MB are fetched.
    """
    folders = ["plugins/torch/tests", "tests/collectives/meaning/test_torch_oracle.py", "tests/collectives/parity"]
    run_beside(session, pytorch(version), folders)


def run_beside(session: nox.Session, framework: Framework, folders: list[str]) -> None:
    run_jobs(session, python_jobs(session, {path: ((framework,), [path]) for path in session.posargs or folders}))


@nox.session(name="core")
@nox.parametrize("version", PYTHONS)
def python_version(session: nox.Session, version: str) -> None:
    """Tests of the core with one version of Python, from PATH or ~/.pyenv, which builds the wheel."""
    run_beside(session, without_framework(version), ["core/tests/python", "tests/collectives/meaning/test_oracle.py"])


@nox.session
def soak(session: nox.Session) -> None:
    """The long forms: 25,000 random cases, 2,000 settings, 1,000 kills, all examples. Arguments after -- choose."""
    run_jobs(session, python_jobs(session, chosen(session.posargs, LONG), ["-s"], {"FARANDOLE_LONG": "1"}), most=1)


@nox.session
def soak_elastic(session: nox.Session) -> None:
    """An elastic job on lab hosts with a fault every 15 s, for 2 minutes. After --: seconds, --seed N, --only KIND."""
    env = pytorch().needed(session)
    find_lab_programs(session)
    variables = {"PYTHONPATH": str(ROOT / "tests" / "support"), "OMP_NUM_THREADS": "1"}
    env.run("python", "tests/soak/soak.py", *session.posargs, variables=variables)


@nox.session
def soak_diagnosis(session: nox.Session) -> None:
    """Inject 50 faults into small jobs; judge who is blamed, how soon. After --: how many, --seed N, --only KIND."""
    env = pytorch().needed(session)
    find_lab_programs(session)
    homes = {"numpy": env.home, "torch": env.home, "asker": env.home}
    for name, framework in (("tensorflow", NEWEST), ("mxnet", mxnet())):
        if (MADE / framework.home).exists():  # others run without it
            homes[name] = framework.needed(session).home
    options = [f"--records={MADE / 'diagnosis'}", *(f"--home={name}={home}" for name, home in homes.items())]
    variables = {"PYTHONPATH": str(ROOT / "tests" / "support"), "OMP_NUM_THREADS": "1"}
    env.run("python", "tests/diagnosis/soak_diagnosis.py", *options, *session.posargs, variables=variables)


@nox.session
def planter(session: nox.Session) -> None:
    """Plant one-line faults, one after the other: the default run must find each. Arguments after -- choose."""
    build_environment(session).run("python", "tests/planted/plant.py", *session.posargs)


@nox.session
def carried(session: nox.Session) -> None:
    """Every call of MPI; every plugin's conformance, carried by Gloo and each MPI. Arguments after -- choose."""
    build = build_target(session, "mpi_ranks", ["-DFARANDOLE_TESTS=ON", *find_gtest(session)])
    variables = {"FARANDOLE_LONG": "1", "FARANDOLE_MPI_RANKS": str(build / "mpi_ranks")}
    files = [
        "tests/collectives/backends",
        *(str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/tests/test_carried.py")),
    ]
    run_jobs(session, python_jobs(session, chosen(session.posargs, files), variables=variables), most=1)


@nox.session
def programs(session: nox.Session) -> None:
    """Published programs for Horovod, unmodified, on two ranks by horovodrun; fetches about 300 MB."""
    run_jobs(session, python_jobs(session, chosen(session.posargs, [*PROGRAMS])), most=1)


@nox.session
def integrations(session: nox.Session) -> None:
    """Scripts of Lightning, accelerate and Hugging Face's Trainer on two ranks. Arguments after -- choose."""
    run_jobs(session, python_jobs(session, chosen(session.posargs, [*INTEGRATIONS])), most=1)


@nox.session
def page(session: nox.Session) -> None:
    """The live page in headless Chromium. Arguments after -- go to pytest."""
    find_chromium()
    run_jobs(session, python_jobs(session, chosen(session.posargs, [*PAGE])), most=1)


@nox.session
def ray(session: nox.Session) -> None:
    """Ranks on a Ray of two nodes, on a host of a lab. Arguments after -- choose."""
    find_lab_programs(session)
    run_jobs(session, python_jobs(session, chosen(session.posargs, [*RAY])), most=1)


@nox.session
def spark(session: nox.Session) -> None:
    """Jobs in a small Spark: PySpark 4, classic and Connect, and 3.5; fetches about 1 GB. Arguments after -- choose."""
    find_java(session)
    run_jobs(session, python_jobs(session, chosen(session.posargs, [*SPARK])), most=1)


@nox.session
def hosts(session: nox.Session) -> None:
    """Jobs on the hosts of a lab: every plugin and launcher, Slurm, pods, 200 kills. Arguments after -- choose."""
    find_slurm()
    runs = chosen(session.posargs, ["tests/hosts"])
    run_jobs(session, python_jobs(session, runs, variables={"FARANDOLE_LONG": "1"}), most=1)


def cpp_jobs(session: nox.Session, select: Sequence[str] = ()) -> dict[str, Job]:
    found: dict[str, str] = {}

    def run() -> None:
        run_ctest(session, core_build(build_environment(session)), select, found)

    return {
        WHEEL: Job(lambda: build_wheel(build_environment(session), "core")),
        "C++ tests, compiled": Job(lambda: build_tests(session), (WHEEL,)),  # of which it is a part
        "C++ tests, Gloo": Job(lambda: found.update(gloo_variables(session))),
        "C++ tests": Job(run, ("C++ tests, compiled", "C++ tests, Gloo")),
    }


@nox.session
def cpp(session: nox.Session) -> None:
    """C++ tests. Arguments after -- go to ctest."""
    run_ctest(session, build_tests(session), (), gloo_variables(session))


@nox.session
def simulation(session: nox.Session) -> None:
    """100,000 random starts of jobs and as many jobs; FARANDOLE_SEEDS: how many else, FARANDOLE_SEED: one again."""
    os.environ.setdefault("FARANDOLE_SEEDS", "100000")
    negotiation = "SimulationTest|SeveralRanks|OneGroup|ProcessSets|Join|Death|Leave|SlowReader|Planted"
    build = build_tests(session, ["-DFARANDOLE_TEST_SECONDS=3600"], MADE / "build" / "simulation")
    run_ctest(session, build, ("-R", f"RendezvousSimulation|Liveness|{negotiation}"), {})


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
    """Compile for aarch64 with Debian's cross compiler; run the tests of core/src/common and reduce under qemu."""
    target = "aarch64-linux-gnu"
    if not (shutil.which(f"{target}-g++") and shutil.which("qemu-aarch64") and Path("/usr/src/googletest").is_dir()):
        session.error("something is missing (Debian, Ubuntu: apt install g++-aarch64-linux-gnu qemu-user libgtest-dev)")
    cross = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"]
    cross += [f"-DCMAKE_C_COMPILER={target}-gcc", f"-DCMAKE_CXX_COMPILER={target}-g++"]
    cross += [f"-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/{target}"]
    run_ctest(session, build_tests(session, cross, MADE / "build" / session.name), suites_of("common", "reduce"), {})


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
    logging.getLogger("nox").setLevel(logging.WARNING)  # who runs this is new here: no log of commands
    env = pytorch().needed(session)
    farandole = str((env.home / "bin" / "farandole").relative_to(ROOT))
    arguments = ["run", "-np", "2", "--no-prefix", "examples/torch/digits.py", *session.posargs]
    print(f"==> Training on 2 workers: {' '.join([farandole, *arguments])}", flush=True)
    env.run("farandole", *arguments)
    print(f"==> Your own script: {farandole} run -np 2 train.py", flush=True)


def measure(session: nox.Session, env: Environment, program: str, *libraries: str) -> None:
    """Run a benchmark of the core: it is told where its compiled programs lie, and MPI libraries."""
    options = [f"--programs={build_target(session, 'benchmarks', ['-DFARANDOLE_BENCHMARKS=ON'])}"]
    for name in libraries:
        peer = Environment(session, name)
        peer.require(name, [MPI[name]], "20 MB, Intel's 300")
        options.append(f"--{name}={peer.home}")
    with step("Measuring", "1 to 6 minutes"):
        env.run("python", f"core/benchmarks/{program}", *options, *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure allreduce beside its peers and what the machine allows. Arguments after -- go to the benchmark."""
    measure(session, pytorch().needed(session), "run.py", "openmpi", "mpich", "impi")


@nox.session
def bench_hosts(session: nox.Session) -> None:
    """Measure allreduce between hosts beside gloo and raw sockets. Arguments after -- go to the benchmark."""
    measure(session, pytorch().needed(session), "between_hosts.py")


@nox.session
def bench_gate(session: nox.Session) -> None:
    """Compare this checkout's speed with that of a frozen build. Arguments after -- go to the benchmark."""
    pytorch().needed(session).run("python", "core/benchmarks/gate.py", *session.posargs)


@nox.session
def bench_elastic(session: nox.Session) -> None:
    """Measure how soon the others go on when a rank is killed. Arguments after -- go to the benchmark."""
    with step("Killing ranks", "ten seconds each"):
        pytorch().needed(session).run("python", "core/benchmarks/elastic.py", *session.posargs)


@nox.session
def bench_backends(session: nox.Session) -> None:
    """Measure an allreduce that a library carries, beside the library called directly. Arguments after -- go there."""
    measure(session, build_environment(session), "backends.py", "openmpi", "mpich", "impi")


def measure_plugin(session: nox.Session, beside: Framework, ranks: int, program: str, *options: str) -> None:
    command = ["run", "-np", str(ranks), "--no-prefix", "python", f"plugins/{beside.plugin}/benchmarks/{program}"]
    # malloc would return gradients to the system after some steps: docs/design/training-steps.md has what that costs.
    keeping = {"MALLOC_MMAP_THRESHOLD_": "17179869184", "MALLOC_TRIM_THRESHOLD_": "17179869184"}
    with step(f"Measuring {beside.called}, {ranks} ranks", "a few minutes"):
        beside.needed(session).run("farandole", *command, *options, variables=keeping)


@nox.session
def bench_mxnet(session: nox.Session) -> None:
    """Measure allreduce in MXNet's engine, and training steps beside bare ones. Arguments after -- go there."""
    measure_plugin(session, mxnet(), 2, "run.py", *session.posargs)


@nox.session
def bench_torch(session: nox.Session) -> None:
    """Measure steps of a transformer beside bare ones and DistributedDataParallel's. Arguments after -- go there."""
    measure_plugin(session, pytorch(), 2, "run.py", *session.posargs)


@nox.session
def bench_carrier(session: nox.Session) -> None:
    """Measure small sums of torch.distributed over Farandole, and over gloo. Arguments after -- go there."""
    measure_plugin(session, pytorch(), 2, "carrier.py", *session.posargs)


@nox.session
def bench_observed(session: nox.Session) -> None:
    """Measure what it costs a training job to be recorded, watched and shown. Arguments after -- go there."""
    with step("Measuring", "ten minutes"):
        pytorch().needed(session).run("python", "plugins/torch/benchmarks/observed.py", *session.posargs)


@nox.session
def bench_tensorflow(session: nox.Session) -> None:
    """Measure nodes of TensorFlow's graphs and steps of model.fit, oldest and newest. After --: the report's file."""
    report = session.posargs[0] if session.posargs else str(MADE / "tensorflow.md")
    Path(report).unlink(missing_ok=True)
    more = ["--append-to", report]
    jobs: dict[str, Job] = {}
    for beside in (OLDEST, NEWEST):
        for ranks in (1, 2):
            run = partial(measure_plugin, session, beside, ranks, "run.py", *more)
            first = tuple(jobs)[:1]  # which writes the heading
            jobs[f"Nodes, {beside.called}, {ranks} ranks"] = Job(run, first)
        strategy = ["--strategy"] if beside == OLDEST else []  # which fails under Keras 3
        fit = partial(measure_plugin, session, beside, 2, "fit.py", *more, *strategy)
        jobs[f"model.fit, {beside.called}"] = Job(fit, first)
    run_jobs(session, jobs, most=1)


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
    """Put wheels and sdists for the package index into dist/. Arguments after --: machines, x86_64 and aarch64."""
    release = Release(session, MADE / "release", ROOT / "dist", session.posargs or (NATIVE,))
    for path in release.build():
        print(f"==> dist/{path.name}", flush=True)
    print("==> Into an environment of yours: pip install --find-links dist 'farandole[torch]'", flush=True)


@nox.session
def release_check(session: nox.Session) -> None:
    """Build the release twice, compare; examine, install and use each wheel. After --: as for build_wheels."""
    check(session, session.posargs or (NATIVE,))

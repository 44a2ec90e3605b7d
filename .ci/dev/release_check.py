"""The session release_check: builds a release twice and uses its wheels as people will."""

from __future__ import annotations

import filecmp
import os
import re
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import nox

from dev import MADE, ROOT, pins
from dev.environments import Environment, build_environment, interpreter_of
from dev.jobs import step
from dev.release import PYTHON, build_release
from dev.suites import MXNET, NEWEST, TORCH

_TESTS = {"horovod": TORCH, "mxnet": MXNET, "tensorflow": NEWEST, "torch": TORCH}  # of tests/packaging -> beside
_KNOWN = re.compile(r"_?Py|_ITM_|__gmon_start__|__cxa_finalize|__tls_get_addr")  # of Python, or weak in every library
SUM = "import numpy, farandole.numpy as f; f.init(); assert f.allreduce(numpy.ones(1000), op=f.Sum).sum() == 2000"


def check(session: nox.Session, names: Sequence[str]) -> None:
    """Fail with what is wrong with the release that it leaves in dist/."""
    target = ROOT / "dist"
    wheels = build_release(session, MADE / "release", target, names)
    faults = [*differences(session, target, names), *(fault for wheel in wheels for fault in unversioned(wheel))]
    if faults:
        session.error("\n".join(["not fit for release:", *faults]))
    tools = build_environment(session)
    tools.run("twine", "check", "--strict", *map(str, sorted(target.iterdir())), silent=True)
    fit = [wheel for wheel in wheels if "-py3-" in wheel.name or f"-cp{PYTHON.replace('.', '')}-" in wheel.name]
    for version in [name for name in names if name in pins.PYTHONS] or [PYTHON]:
        with step(f"Using the core's wheel with Python {version}, without a compiler", "some seconds"):
            (core,) = target.glob(f"farandole-*-cp{version.replace('.', '')}-*.whl")
            env = Environment(session, f"released-{version}", *([] if version == PYTHON else [interpreter_of(version)]))
            env.pip("install", "--only-binary", ":all:", "--force-reinstall", str(core), "numpy")
            env.run("farandole", "doctor", silent=True)
            env.run("farandole", "run", "-np", "2", "python", "-c", SUM, silent=True)
    with step("Writing the bill of materials", "some seconds"):
        env.pip("install", "--no-deps", *(str(wheel) for wheel in wheels if "-py3-" in wheel.name))
        bill = str(target / f"{'-'.join(core.name.split('-')[:2])}.cdx.json")
        tools.run("cyclonedx-py", "environment", "--output-reproducible", "-o", bill, str(env.home / "bin" / "python"))
    for name, beside in _TESTS.items():
        if any(f"_{name}-" in wheel.name for wheel in fit) and (made := beside.make(session)):
            with step(f"Using the wheels beside {beside.called}: {name}", "a minute"):
                variables = {"FARANDOLE_WHEELS": os.pathsep.join(map(str, fit))}
                made.run("python", "-m", "pytest", "-q", f"tests/packaging/test_{name}_wheel.py", variables=variables)


def differences(session: nox.Session, target: Path, names: Sequence[str]) -> list[str]:
    """The files that another build, in another folder, makes otherwise."""
    again = MADE / "release-again" / "dist"
    build_release(session, MADE / "release-again" / "home", again, names)
    files = [path.name for path in again.iterdir()]
    _, different, missing = filecmp.cmpfiles(target, again, files, shallow=False)
    return [f"{name} differs between two builds" for name in sorted([*different, *missing])]


def unversioned(wheel: Path) -> list[str]:
    """What libraries of the wheel need, and no library promises to have, which auditwheel does not see."""
    faults = []
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".so"):
                library = archive.extract(name, MADE / "examined" / wheel.stem)
                command = ["nm", "--dynamic", "--undefined-only", "--format=just-symbols", library]
                listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                unknown = [each for each in listing.split() if "@" not in each and not _KNOWN.match(each)]
                faults += [f"{wheel.name}: {name} needs {each} of no version" for each in unknown]
    return faults

"""The session release_check: builds a release twice and uses its wheels as people will."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import nox

from dev import MADE, ROOT, pins
from dev.environments import Environment, Framework, build_environment, interpreter_of
from dev.examine import (
    Examined,
    Fresh,
    digest_of,
    install_core,
    library_faults,
    metadata_faults,
    oldest_system,
    table,
)
from dev.jobs import step
from dev.portable import GLIBC
from dev.release import NATIVE, Release
from dev.sources import commit_time, release_version
from dev.suites import MXNET, NEWEST, TORCH

_TESTS = {"horovod": TORCH, "mxnet": MXNET, "tensorflow": NEWEST, "torch": TORCH}  # of tests/packaging -> beside


def check(session: nox.Session, machines: Sequence[str]) -> None:
    """Fail with all that is wrong with the release that it leaves in dist/."""
    target = ROOT / "dist"
    wheels = Release(session, MADE / "release", target, machines).build()
    faults = differences(session, target)
    env = build_environment(session)
    env.run("twine", "check", "--strict", *(str(path) for path in sorted(target.iterdir())), silent=True)
    with step("Writing the bill of materials", "some seconds"):
        bill = target / f"farandole-{release_version()}.cdx.json"
        about = [release_version(), commit_time(), pins.GLOO_SOURCE[1]]
        env.run("python", str(ROOT / ".ci" / "dev" / "sbom.py"), str(bill), *about, *map(str, wheels), silent=True)
    examined = [examine(env, wheel) for wheel in wheels]
    with step("Installing the core's wheels into empty environments", "a minute"):
        for each in examined:
            install(session, each)
    report = table(examined)
    print(report, flush=True)
    (MADE / "release.md").write_text(f"{report}\n")
    for each in examined:
        faults += [f"{each.wheel.name} {fault}" for fault in each.faults]
    if faults:
        session.error("\n".join(["not fit for release:", *faults]))
    use_plugins(session, wheels)


def examine(env: Environment, wheel: Path) -> Examined:
    """Everything that can be seen without installing it."""
    each = Examined(wheel, oldest_system(env.home / "bin" / "auditwheel", wheel))
    each.faults += metadata_faults(wheel)
    with TemporaryDirectory() as folder:
        each.faults += library_faults(wheel, Path(folder))
    if each.oldest and _glibc_of(each.oldest) > GLIBC:
        each.faults.append(f"is named for glibc {'.'.join(map(str, GLIBC))}, but auditwheel finds {each.oldest}")
    return each


def _glibc_of(platform: str) -> tuple[int, ...]:
    """manylinux_2_27_x86_64 -> (2, 27); a very new one for another platform."""
    parts = platform.split("_")
    return tuple(map(int, parts[1:3])) if parts[0] == "manylinux" and len(parts) > 3 else (99, 0)


def install(session: nox.Session, each: Examined) -> None:
    """Use a wheel of the core for this machine, in an environment of its own for its Python."""
    python = each.tags.split("-")[0].removeprefix("cp3")
    if each.distribution != "farandole" or not each.wheel.stem.endswith(NATIVE):
        return
    with TemporaryDirectory(prefix="farandole-release-") as folder:
        fresh = Fresh(Path(folder), interpreter_of(f"3.{python}"))
        try:
            install_core(each, fresh, build_environment(session).home / "bin" / "pip")
        except (RuntimeError, subprocess.SubprocessError) as error:
            each.faults.append(f"cannot be used: {error}")


def differences(session: nox.Session, target: Path) -> list[str]:
    """The files that another build, in another folder, makes otherwise: of one Python, this machine."""
    again = MADE / "release-again" / "dist"
    Release(session, MADE / "release-again", again, (NATIVE,), pins.PYTHONS[:1]).build()
    made = {path.name: path for path in target.iterdir()}
    return [
        f"{path.name} differs between two builds"
        for path in sorted(again.iterdir())
        if path.name not in made or digest_of(path) != digest_of(made[path.name])
    ]


def use_plugins(session: nox.Session, wheels: Sequence[Path]) -> None:
    """Run tests/packaging with these wheels instead of the tree's, beside each framework that is here."""
    own = f"cp3{sys.version_info[1]}-"
    here = [path for path in wheels if path.stem.endswith((NATIVE, "any"))]
    fit = [str(path) for path in here if "-py3-" in path.name or own in path.name]
    for name, beside in _TESTS.items():
        env = beside.make(session) if isinstance(beside, Framework) else None
        if env is None:
            continue
        with step(f"Using the wheels beside {beside.called}: {name}", "a minute"):
            variables = {"PYTHONPATH": str(ROOT / "tests" / "support"), "FARANDOLE_WHEELS": os.pathsep.join(fit)}
            test = f"tests/packaging/test_{name}_wheel.py"
            env.run("python", "-m", "pytest", "-q", "-p", "skips", test, variables=variables)

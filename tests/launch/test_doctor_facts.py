"""How `farandole doctor` gathers its facts, where a folder of files can stand for a machine."""

from __future__ import annotations

import os
import re
import signal
import sys
from math import inf
from pathlib import Path

import pytest
from farandole.launch import cgroups as groups_of
from farandole.observe.doctor import build, machine, packages, report, run_checks, settings
from farandole.observe.doctor.finding import FAIL, OK, WARN, Finding

ROOT = Path(__file__).parents[2]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tmp_path / "proc"


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def test_the_tightest_group_of_version_2_counts(proc: Path, cgroups: Path) -> None:
    write(proc / "self/cgroup", "0::/pod/container\n")
    write(cgroups / "pod/container/memory.max", "max\n")
    write(cgroups / "pod/memory.max", "1000000\n")
    write(cgroups / "pod/memory.current", "1000\n")
    write(cgroups / "memory.max", "2000000\n")
    write(cgroups / "memory.current", "1900000\n")
    write(cgroups / "pod/container/cpu.max", "max 100000\n")
    write(cgroups / "pod/cpu.max", "150000 100000\n")
    assert groups_of.memory(proc, cgroups) == (2000000, 1900000)
    assert groups_of.cores(proc, cgroups) == 1.5


def test_groups_of_version_1_count(proc: Path, cgroups: Path) -> None:
    write(proc / "self/cgroup", "4:memory:/job\n1:cpu,cpuacct:/job\n0::/\n")
    write(cgroups / "memory/job/memory.limit_in_bytes", "5000\n")
    write(cgroups / "memory/job/memory.usage_in_bytes", "40\n")
    write(cgroups / "memory/memory.limit_in_bytes", "9223372036854771712\n")  # none
    write(cgroups / "cpu/job/cpu.cfs_quota_us", "-1\n")
    assert groups_of.memory(proc, cgroups) == (5000, 40)
    assert groups_of.cores(proc, cgroups) == inf
    write(cgroups / "cpu/job/cpu.cfs_quota_us", "50000\n")
    write(cgroups / "cpu/job/cpu.cfs_period_us", "100000\n")
    assert groups_of.cores(proc, cgroups) == 0.5


def test_no_groups_are_no_limits(proc: Path, cgroups: Path) -> None:
    assert groups_of.memory(proc, cgroups) == (inf, 0)
    assert groups_of.cores(proc, cgroups) == inf


@pytest.mark.parametrize(
    ("file", "environment", "words"),
    [
        (".dockerenv", {}, "Docker"),
        ("run/.containerenv", {}, "Podman"),
        ("other", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Kubernetes"),
        ("other", {"APPTAINER_CONTAINER": "/x.sif"}, "Apptainer"),
    ],
)
def test_containers_are_known_by_their_traces(
    tmp_path: Path, file: str, environment: dict[str, str], words: str
) -> None:
    write(tmp_path / file, "")
    assert words in machine.container_of(environment, tmp_path)
    assert machine.container_of({}, tmp_path / "empty") == ""


def test_two_copies_on_the_path_are_found_once_each(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name / "farandole/_core.cpython-311-x86_64-linux-gnu.so", "")
    write(tmp_path / "sources/farandole/__init__.py", "")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    paths = [str(tmp_path / name) for name in ("sources", "b", "link", "a", "absent")]
    assert build.copies(paths) == [str(tmp_path / "b/farandole"), str(tmp_path / "a/farandole")]


def test_how_a_child_ended() -> None:
    traceback = "Traceback (most recent call last):\n  File x\nImportError: libm.so.9: cannot open\n\n"
    assert build.how_it_ended(1, traceback) == "ImportError: libm.so.9: cannot open"
    assert build.how_it_ended(3, "") == "it ended with 3"
    assert build.how_it_ended(-signal.SIGILL, "") == "it was killed by SIGILL (Illegal instruction)"


def test_a_core_that_crashes_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "farandole/__init__.py", "__version__ = '0'\n")
    write(tmp_path / "farandole/_runtime/selftest.py", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    trials = build.attempt(dict(os.environ), 30.0)
    levels = {finding.check: finding.level for finding in build.findings_of(trials, "")}
    assert "SIGSEGV" in trials.describe.error
    assert {name: levels[name] for name in ("core", "one rank", "two ranks")} == dict.fromkeys(
        ("core", "one rank", "two ranks"), FAIL
    )


def test_a_core_that_hangs_is_ended_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "farandole/__init__.py", "")
    write(tmp_path / "farandole/_runtime/selftest.py", "import time\ntime.sleep(600)\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert build.attempt(dict(os.environ), 0.5).describe.error == "no answer within 0.5 s"


def test_the_rank_that_fails_is_named_beside_the_one_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "farandole/__init__.py", "")
    main = """
import os, sys, time
def main():
    if sys.argv[-1] == "exercise":
        if os.environ.get("FARANDOLE_RANK") == "0":
            time.sleep(600)
        sys.exit("no room")
    print("{}")
"""
    write(tmp_path / "farandole/_runtime/selftest.py", main)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    trials = build.attempt(dict(os.environ), 30.0)
    assert trials.alone.error == "no room"
    assert re.fullmatch(r"rank 1 failed first: exit code 1 after [\d.]+ s: no room", trials.together.error)


def test_two_ranks_that_hang_are_ended_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "farandole/__init__.py", "")
    main = (
        "import os, time\ndef main():\n    time.sleep(60 if 'FARANDOLE_RANK' in os.environ else 0)\n    print('{}')\n"
    )
    write(tmp_path / "farandole/_runtime/selftest.py", main)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert build.attempt(dict(os.environ), 2.0).together.error == "no answer within 2 s"


def test_a_core_that_cannot_be_imported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "farandole/__init__.py", "")
    write(tmp_path / "farandole/_runtime/selftest.py", "raise ImportError('GLIBC_2.99 not found')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert build.attempt(dict(os.environ), 30.0).describe.error == "ImportError: GLIBC_2.99 not found"


def test_the_driver_on_the_users_path_comes_first_and_once(tmp_path: Path) -> None:
    real = tmp_path / "libcuda.so.580.159"
    write(real, "")
    (tmp_path / "libcuda.so.1").symlink_to(real)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/libcuda.so.1").symlink_to(real)
    found = machine.drivers(f"{tmp_path}:{tmp_path}/other:{tmp_path}/none")
    assert found[0] == str(tmp_path / "libcuda.so.1") and str(tmp_path / "other/libcuda.so.1") not in found


def test_this_python_knows_its_packages_without_importing_them() -> None:
    before = set(sys.modules)
    facts = packages.gather()
    assert re.match(r"\d", facts.numpy)
    assert {"torch", "tensorflow", "mxnet", "numpy"}.isdisjoint(set(sys.modules) - before)


def test_every_variable_that_is_read_is_known() -> None:
    readers = ("core/src/common/config.cc", "core/python/farandole/_start/environment.py")
    readers += ("core/python/farandole/_start/task_environment.py", "core/python/farandole/launch/environment.py")
    text = "\n".join((ROOT / reader).read_text() for reader in readers)
    read = set(re.findall(r"""["']FARANDOLE_([A-Z_]+[A-Z])["']""", text))
    read |= set(re.findall(r"\bFARANDOLE_([A-Z_]+[A-Z])=", text))
    assert sorted(read - set(settings.KNOWN)) == []  # add it to KNOWN, with what it may hold


def test_the_words_that_a_variable_may_hold_are_those_of_its_reader() -> None:
    reader = (ROOT / "core/src/common/config.cc").read_text()
    choices = re.findall(r'ReadWord\(\s*"FARANDOLE_([A-Z_]+)",\s*\{([^}]*)\}', reader)
    assert {name for name, _ in choices} >= {"ALGORITHM", "ARENAS", "ORDER", "LOG_LEVEL"}
    assert {name: settings.KNOWN[name] for name, _ in choices} == {
        name: tuple(re.findall(r'"([^"]*)"', words)) for name, words in choices
    }


def test_the_abi_is_that_of_the_c_header() -> None:
    header = (ROOT / "core/include/farandole/farandole.h").read_text()
    assert f"#define FRD_ABI {build.EXPECTED_ABI}u\n" in header


def test_the_oldest_versions_are_those_of_the_plugins() -> None:
    for name, oldest in packages.OLDEST.items():
        project = ROOT / "plugins" / name / "pyproject.toml"
        if project.exists():
            found = re.search(rf'"{name}(?:-cpu)?\s*>=\s*([\d.]+)', project.read_text())
            assert found is None or tuple(map(int, found[1].split("."))) == oldest


def test_a_topic_that_cannot_be_examined_hides_no_other() -> None:
    def broken() -> list[Finding]:
        raise KeyError("psutil")

    (finding,) = run_checks.findings_of("limits", broken)
    assert (finding.level, finding.check) == (WARN, "limits")
    assert "KeyError" in finding.text


@pytest.mark.parametrize(("level", "code"), [(OK, 0), (WARN, 0), (FAIL, 1)])
def test_only_a_failure_is_an_exit_code(level: str, code: int) -> None:
    findings = [Finding(OK, "a", "text"), Finding(level, "b", "text", "fix" if level != OK else "")]
    assert report.exit_code(findings) == code
    assert f"{int(code == 1)} FAIL" in report.as_text(findings).splitlines()[-1]

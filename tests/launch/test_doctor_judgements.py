"""`farandole doctor` shown machines that we do not have: facts in, findings out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from farandole.observe.doctor import build, libraries, limits, machine, network, packages, settings
from farandole.observe.doctor.finding import FAIL, OK, WARN, Finding

MACHINE = machine.Facts("Linux", "x86_64", "6.1.0", (3, 12, 1), "CPython", "/usr/bin/python3", "", "", 1000, "ada", "")
LIMITS = limits.Facts(8 << 30, limits.UNLIMITED, 0, 4096, 8192, 100, True, 8 << 20, False, 8, 8, limits.UNLIMITED)
NETWORK = network.Facts("", "h0", ("10.0.0.1",), 0.01, "")
LOADED = build.Trial(({"version": "0.1.0", "abi": build.EXPECTED_ABI, "path": "/p/_core.so"},))
ANSWER = {"rank": 0, "size": 1, "isa": "avx2", "nodes": [[0]]}
BUILD = build.Facts(
    "0.1.0",
    ("/p",),
    LOADED,
    build.Trial(({"found": [["native", "", ""], ["gloo", "Gloo 0.5.0", ""], ["other", "", "it needs libother"]]},)),
    build.Trial((ANSWER,), "", 0.2),
    build.Trial(({**ANSWER, "nodes": [[0, 1]]},) * 2, "", 0.3),
)
PLUGIN = packages.Plugin("torch", "farandole_torch", "farandole-torch", "0.1.3", True)
PACKAGES = packages.Facts("0.1.0", "1.23.5", {"torch": "2.13.0+cpu"}, (PLUGIN,))
SETTINGS = settings.Facts({}, "", "", "", "")
LIBRARIES = libraries.Facts((), ())


def check_the_one(findings: Sequence[Finding], check: str, level: str, words: str) -> None:
    (finding,) = [finding for finding in findings if finding.check == check]
    assert finding.level == level
    assert words in finding.text + finding.mend


def test_nothing_is_wrong_with_a_good_machine() -> None:
    findings = [
        *machine.judge(MACHINE),
        *limits.judge(LIMITS),
        *network.judge(NETWORK),
        *build.judge(BUILD),
        *packages.judge(PACKAGES),
        *settings.judge(SETTINGS),
        *libraries.judge(LIBRARIES),
    ]
    assert [finding for finding in findings if finding.level != OK or finding.mend] == []
    assert len(findings) == 26


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        ({"system": "Darwin"}, "platform", FAIL, "Linux on x86-64 or aarch64"),
        ({"machine": "riscv64"}, "platform", FAIL, "riscv64"),
        ({"python": (3, 9, 18)}, "python", FAIL, "3.10 or newer"),
        ({"implementation": "PyPy"}, "python", FAIL, "CPython"),
        ({"memfd_error": "Function not implemented"}, "memfd", FAIL, "seccomp"),
        ({"pidfd_error": "Function not implemented", "kernel": "4.18"}, "pidfd", WARN, "Linux 5.3"),
        ({"user": "", "uid": 4711}, "user", WARN, "4711"),
        ({"container": "a Kubernetes pod"}, "container", OK, "network namespace"),
    ],
)
def test_machine(change: dict[str, object], check: str, level: str, words: str) -> None:
    check_the_one(machine.judge(replace(MACHINE, **change)), check, level, words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        ({"memory_available": 100 << 20}, "memory", WARN, "100 MiB"),
        ({"memory_limit": 1 << 30, "memory_used": 900 << 20}, "memory", WARN, "900 MiB of 1.0 GiB"),
        ({"memory_limit": 4 << 30, "memory_used": 900 << 20}, "memory", OK, "900 MiB of 4.0 GiB"),
        ({"open_files": 256}, "open files", WARN, "ulimit -n 1024"),
        ({"open_files": limits.UNLIMITED}, "open files", OK, "unlimited"),
        ({"processes": 300}, "processes", WARN, "ulimit -u 1124"),
        ({"processes": 300, "processes_are_limited": False}, "processes", OK, "300"),
        ({"locked": 64 << 10, "has_rdma": True}, "locked memory", WARN, "ulimit -l unlimited"),
        ({"locked": limits.UNLIMITED, "has_rdma": True}, "locked memory", OK, "unlimited"),
        ({"cpus_by_affinity": 2}, "cores", OK, "2 of 8"),
        ({"cpus_by_quota": 2.5}, "cores", WARN, "OMP_NUM_THREADS"),
        ({"cpus_by_quota": 0.5}, "cores", WARN, "at least one core"),
    ],
)
def test_limits(change: dict[str, object], check: str, level: str, words: str) -> None:
    check_the_one(limits.judge(replace(LIMITS, **change)), check, level, words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        ({"loopback_error": "Network is unreachable"}, "loopback", FAIL, "ip link set lo up"),
        ({"resolve_error": "Name or service not known", "addresses": ()}, "host name", WARN, "127.0.1.1 h0"),
        ({"resolve_s": 3.2}, "host name", WARN, "3200 ms"),
    ],
)
def test_network(change: dict[str, object], check: str, level: str, words: str) -> None:
    check_the_one(network.judge(replace(NETWORK, **change)), check, level, words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        ({"copies": ("/a/farandole", "/b/farandole")}, "copies", WARN, "/a/farandole, /b/farandole; the first"),
        ({}, "backend gloo", OK, "Gloo 0.5.0; the job's key does not guard"),
        ({}, "backend other", OK, "needed with FARANDOLE_BACKEND=other only: it needs libother"),
        (
            {"backends": build.Trial(({"found": [["other", "", "it needs libother"]], "asked_for": ["other"]},))},
            "backend other",
            FAIL,
            "it needs libother",
        ),
        (
            {"backends": build.Trial(({"found": [["native", "", ""]], "asked_for": ["nctl"]},))},
            "backends",
            FAIL,
            "asks for 'nctl', which is none",
        ),
        ({"backends": build.Trial(error="killed by SIGSEGV")}, "backends", WARN, "killed by SIGSEGV"),
        ({"load": build.Trial(error="ImportError: no _core")}, "core", FAIL, "ImportError: no _core"),
        ({"load": build.Trial(({"version": "0.1.0", "abi": 9, "path": "/p"},))}, "core", FAIL, "ABI 9"),
        ({"distribution": "0.0.9"}, "core", WARN, "0.0.9"),
        ({"alone": build.Trial(error="it was killed by SIGILL")}, "one rank", FAIL, "SIGILL"),
        ({"together": build.Trial(error="no answer within 60 s")}, "two ranks", FAIL, "within 60 s"),
        ({"together": build.Trial(({**ANSWER, "nodes": [[0], [1]]},) * 2)}, "two ranks", WARN, "FARANDOLE_ARENAS"),
    ],
)
def test_build(change: dict[str, object], check: str, level: str, words: str) -> None:
    check_the_one(build.judge(replace(BUILD, **change)), check, level, words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        ({"plugins": (replace(PLUGIN, version="0.2.0"),)}, "plugin torch", FAIL, "'farandole-torch==0.1.*'"),
        ({"plugins": (replace(PLUGIN, importable=False),)}, "plugin torch", FAIL, "--force-reinstall"),
        ({"frameworks": {}}, "plugin torch", FAIL, "pip install torch"),
        ({"frameworks": {}, "plugins": ()}, "frameworks", OK, "farandole.numpy"),
        ({"plugins": ()}, "torch", WARN, "pip install farandole-torch"),
        ({"frameworks": {"torch": "1.13.1"}}, "torch", WARN, "'torch>=2.3'"),
        ({"frameworks": {"torch": packages.UNKNOWN}}, "torch", OK, packages.UNKNOWN),
        ({"numpy": ""}, "numpy", OK, "not installed"),
        ({"frameworks": {"torch": "2.13.0", "mxnet": "1.9.1"}, "numpy": "1.24.0"}, "mxnet", FAIL, "np.bool"),
        ({"frameworks": {"torch": "2.13.0", "mxnet": "1.9.1"}, "numpy": "2.1.0"}, "mxnet", FAIL, "numpy==1.23.5"),
        ({"frameworks": {"torch": "2.13.0", "mxnet": "1.9.1"}}, "mxnet", WARN, "farandole-mxnet"),
        ({"frameworks": {"mxnet": "2.0.0b1"}, "numpy": "1.23.5"}, "mxnet", FAIL, "mxnet==1.9.1"),
        ({"frameworks": {"tensorflow": "2.12.1"}, "numpy": "1.23.5"}, "tensorflow", WARN, "'tensorflow>=2.13'"),
        ({"frameworks": {"tensorflow": "2.17.1"}, "numpy": "2.1.0"}, "tensorflow", FAIL, "numpy<2"),
        ({"frameworks": {"tensorflow": "2.18.0"}, "numpy": "2.1.0"}, "tensorflow", WARN, "farandole-tensorflow"),
    ],
)
def test_packages(change: dict[str, object], check: str, level: str, words: str) -> None:
    check_the_one(packages.judge(replace(PACKAGES, **change)), check, level, words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "level", "words"),
    [
        ("FARANDOLE_FUSION_TRESHOLD", "1", WARN, "FARANDOLE_FUSION_THRESHOLD?"),
        ("FARANDOLE_ORDER", "random", FAIL, "fixed or any"),
        ("FARANDOLE_ORDER", "any", OK, "FARANDOLE_ORDER=any"),
        ("FARANDOLE_TIMEOUT", "soon", FAIL, "number"),
        ("FARANDOLE_TIMEOUT", "-1", FAIL, "number"),
        ("FARANDOLE_START_TIMEOUT", "inf", FAIL, "seconds from 0 to 1e+09, without a unit"),
        ("FARANDOLE_SILENCE_TIMEOUT", "0", FAIL, "seconds from 1 to 86400, without a unit"),
        ("FARANDOLE_SILENCE_TIMEOUT", "20", OK, "20"),
        ("FARANDOLE_FUSION_THRESHOLD", "4M", FAIL, "bytes from 0 to 1e+18, without a unit"),
        ("FARANDOLE_FUSION_THRESHOLD", "9" * 23, FAIL, "bytes from 0 to 1e+18"),
        ("FARANDOLE_TIMEOUT", "1e3", OK, "1e3"),
        ("FARANDOLE_TIMEOUT", "", OK, ""),
        ("FARANDOLE_KEY_FILE", "/secret/place", OK, "FARANDOLE_KEY_FILE is set"),
    ],
)
def test_a_variable(name: str, value: str, level: str, words: str) -> None:
    check_the_one(settings.judge(replace(SETTINGS, variables={name: value})), "settings", level, words)


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        (settings.Facts({}, "farandole run", "", "", ""), OK, "as secret as your user account"),
        (settings.Facts({}, "torchrun", "", "", ""), OK, "the kernel vouches for the user"),
        (settings.Facts({"FARANDOLE_REQUIRE_KEY": "1"}, "torchrun", "", "", ""), FAIL, "FARANDOLE_KEY_FILE"),
        (settings.Facts({"FARANDOLE_KEY_FILE": "/k"}, "torchrun", "", "", ""), OK, "as secret as that file"),
        (settings.Facts({"FARANDOLE_KEY_FILE": "/k"}, "", "", "", "other users may open it"), FAIL, "umask 077"),
        (settings.Facts({}, "farandole run", "", "", ""), OK, "as secret as your user account"),
    ],
)
def test_the_key_is_as_secret_as_its_channel(facts: settings.Facts, level: str, words: str) -> None:
    check_the_one(settings.judge(facts), "job key", level, words)


@pytest.mark.parametrize(
    ("environment", "level", "words"),
    [
        ({}, OK, "no rank of a job"),
        ({"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2"}, OK, "a rank of torchrun"),
        ({"HOROVOD_SIZE": "2"}, FAIL, "replace `horovodrun` by `farandole run`"),
        ({"JOB_COMPLETION_INDEX": "0"}, WARN, "JOB_COMPLETION_INDEX=0"),
    ],
)
def test_one_of_several_ranks_is_told(environment: dict[str, str], level: str, words: str) -> None:
    check_the_one(settings.judge(settings.gather(environment)), "launcher", level, words)


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        ({"gpus": ("/dev/nvidia0",)}, "CUDA driver", WARN, "--gpus all"),
        ({"drivers": ("/l/libcuda.so.1",)}, "CUDA driver", OK, "no GPU is visible"),
        ({"drivers": ("/l/libcuda.so.1",), "gpus": ("/dev/nvidia0",)}, "CUDA driver", OK, "1 GPU"),
    ],
)
def test_libraries(change: dict[str, object], check: str, level: str, words: str) -> None:
    check_the_one(libraries.judge(replace(LIBRARIES, **change)), check, level, words)  # type: ignore[arg-type]


def test_what_is_not_ok_has_a_mend_of_one_sentence() -> None:
    bad = [
        *machine.judge(machine.Facts("Plan 9", "vax", "4", (2, 7, 0), "PyPy", "/py", "no", "no", 1, "", "a pod")),
        *limits.judge(limits.Facts(1, 1, 1, 1, 1, 1, True, 1, True, 8, 8, 0.1)),
        *network.judge(network.Facts("no", "h", (), 9.0, "no")),
        *build.judge(build.Facts("", ("/a", "/b"), *[build.Trial(error="no")] * 4)),
    ]
    assert [finding.check for finding in bad if finding.level == OK] == ["/dev/shm", "container"]
    assert [finding for finding in bad if finding.level != OK and len(finding.mend) < 20] == []
    assert [finding for finding in bad if "\n" in finding.text + finding.mend] == []

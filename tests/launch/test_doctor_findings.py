"""`farandole doctor` shown machines that we do not have: facts in, findings out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from farandole.observe.doctor import build, limits, machine, network, packages, settings
from farandole.observe.doctor.finding import FAIL, OK, WARN, Finding

GIB, MIB = 1 << 30, 1 << 20
LOADED = build.Trial({"version": "0.1.0", "abi": build.EXPECTED_ABI, "path": "/p/_core.so"})
ANSWER = {"rank": 0, "size": 1, "isa": "avx2", "nodes": [[0]]}
PAIR = {**ANSWER, "size": 2, "nodes": [[0, 1]]}
TRIALS = build.Trials(
    LOADED,
    build.Trial({"found": [["native", "", ""], ["gloo", "Gloo 0.5.0", ""], ["other", "", "it needs libother"]]}),
    build.Trial(ANSWER, "", 0.2),
    build.Trial(PAIR, "", 0.3),
)
PLUGIN = packages.Plugin("torch", "farandole_torch", "farandole-torch", "0.1.3", True)
PACKAGES = packages.Facts("0.1.0", "1.23.5", {"torch": "2.13.0+cpu"}, (PLUGIN,))
NOWHERE = {"launcher": "", "refusal": "", "doubt": "", "key_error": ""}
GOOD = [
    machine.platform("Linux", "6.1.0", "x86_64"),
    machine.python("CPython", (3, 12, 1), "/usr/bin/python3"),
    machine.memfd(""),
    machine.pidfd("", "6.1.0"),
    machine.user(1000, "ada"),
    machine.container(""),
    machine.container("a Kubernetes pod"),
    limits.memory(8 * GIB, inf, 0),
    limits.memory(8 * GIB, 4 * GIB, 900 * MIB),
    limits.open_files(4096),
    limits.open_files(inf),
    limits.processes(8192, 100),
    limits.processes(inf, 8000),
    limits.locked_memory(8 * MIB, has_rdma=False),
    limits.locked_memory(inf, has_rdma=True),
    limits.cores(8, 8, inf),
    limits.cores(8, 2, inf),
    network.loopback(""),
    network.host_name("h0", ["10.0.0.1"], 0.01, ""),
    *build.several_copies(["/p"]),
    *build.findings_of(TRIALS, "0.1.0"),
    *packages.findings_of(PACKAGES),
    settings.launcher(NOWHERE),
    settings.key(NOWHERE, ""),
    machine.cuda_driver([], 0),
    machine.cuda_driver(["/l/libcuda.so.1"], 0),
    machine.cuda_driver(["/l/libcuda.so.1"], 1),
]
BAD = [
    (machine.platform("Darwin", "22", "x86_64"), FAIL, "Linux on x86-64 or aarch64"),
    (machine.platform("Linux", "6.1.0", "riscv64"), FAIL, "riscv64"),
    (machine.python("CPython", (3, 9, 18), "/py"), FAIL, "3.10 or newer"),
    (machine.python("PyPy", (3, 11, 0), "/py"), FAIL, "CPython"),
    (machine.memfd("Function not implemented"), FAIL, "seccomp"),
    (machine.pidfd("Function not implemented", "4.18"), WARN, "Linux 5.3"),
    (machine.user(4711, ""), WARN, "4711"),
    (limits.memory(100 * MIB, inf, 0), WARN, "100 MiB"),
    (limits.memory(8 * GIB, GIB, 900 * MIB), WARN, "900 MiB of 1.0 GiB"),
    (limits.open_files(256), WARN, "ulimit -n 1024"),
    (limits.processes(300, 100), WARN, "ulimit -u 1124"),
    (limits.locked_memory(64 << 10, has_rdma=True), WARN, "ulimit -l unlimited"),
    (limits.cores(8, 8, 2.5), WARN, "OMP_NUM_THREADS"),
    (limits.cores(8, 8, 0.5), WARN, "at least one core"),
    (network.loopback("Network is unreachable"), FAIL, "ip link set lo up"),
    (network.host_name("h0", [], 0.1, "Name or service not known"), WARN, "127.0.1.1 h0"),
    (network.host_name("h0", ["10.0.0.1"], 3.2, ""), WARN, "3200 ms"),
    (*build.several_copies(["/a/farandole", "/b/farandole"]), WARN, "/a/farandole, /b/farandole; the first"),
    (settings.launcher({**NOWHERE, "refusal": "replace `horovodrun` by `farandole run`"}), FAIL, "horovodrun"),
    (settings.launcher({**NOWHERE, "doubt": "JOB_COMPLETION_INDEX=0 is set"}), WARN, "JOB_COMPLETION_INDEX=0"),
    (settings.key({**NOWHERE, "key_error": "other users may open it"}, "/k"), FAIL, "umask 077"),
    (machine.cuda_driver([], 1), WARN, "--gpus all"),
]


def check_the_one(findings: Sequence[Finding], check: str, level: str, words: str) -> None:
    (finding,) = [finding for finding in findings if finding.check == check]
    assert finding.level == level
    assert words in finding.text + finding.fix


def test_nothing_is_wrong_with_a_good_machine() -> None:
    assert [finding for finding in GOOD if finding.level != OK or finding.fix] == []
    words = " ".join(finding.text for finding in GOOD)
    for each in ("900 MiB of 4.0 GiB", "unlimited", "2 of 8", "network namespace", "no GPU is visible", "1 GPU"):
        assert each in words


@pytest.mark.parametrize(("finding", "level", "words"), BAD)
def test_what_is_wrong_is_told_with_what_to_do(finding: Finding, level: str, words: str) -> None:
    assert finding.level == level
    assert words in finding.text + finding.fix
    assert len(finding.fix) >= 20 and "\n" not in finding.text + finding.fix


@pytest.mark.parametrize(
    ("change", "check", "level", "words"),
    [
        ({}, "backend gloo", OK, "Gloo 0.5.0; the job's key does not protect its sockets"),
        ({}, "backend other", OK, "no library found; only FARANDOLE_BACKEND=other needs one"),
        (
            {"backends": build.Trial({"found": [["other", "", "it needs libother"]], "asked_for": ["other"]})},
            "backend other",
            FAIL,
            "it needs libother",
        ),
        (
            {"backends": build.Trial({"found": [["native", "", ""]], "asked_for": ["nctl"]})},
            "backends",
            FAIL,
            "asks for 'nctl', which is none",
        ),
        ({"backends": build.Trial(error="killed by SIGSEGV")}, "backends", WARN, "killed by SIGSEGV"),
        ({"describe": build.Trial(error="ImportError: no _core")}, "core", FAIL, "ImportError: no _core"),
        ({"describe": build.Trial({"version": "0.1.0", "abi": 9, "path": "/p"})}, "core", FAIL, "ABI 9"),
        ({"alone": build.Trial(error="it was killed by SIGILL")}, "one rank", FAIL, "SIGILL"),
        ({"together": build.Trial(error="no answer within 60 s")}, "two ranks", FAIL, "within 60 s"),
        ({"together": build.Trial({**PAIR, "nodes": [[0], [1]]})}, "two ranks", WARN, "FARANDOLE_ARENAS"),
    ],
)
def test_build(change: dict[str, object], check: str, level: str, words: str) -> None:
    check_the_one(build.findings_of(replace(TRIALS, **change), "0.1.0"), check, level, words)  # type: ignore[arg-type]


def test_a_distribution_of_another_version_is_told() -> None:
    check_the_one(build.findings_of(TRIALS, "0.0.9"), "core", WARN, "0.0.9")


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
    check_the_one(packages.findings_of(replace(PACKAGES, **change)), check, level, words)  # type: ignore[arg-type]


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
    check_the_one([settings.variable(name, value)], "settings", level, words)


@pytest.mark.parametrize(
    ("launcher", "path", "words"),
    [
        ("farandole run", "", "as secret as your user account"),
        ("torchrun", "", "the kernel vouches for the user"),
        ("torchrun", "/k", "as secret as that file"),
        ("Open MPI's mpirun", "", "as secret as its connections"),
    ],
)
def test_the_key_is_as_secret_as_its_channel(launcher: str, path: str, words: str) -> None:
    check_the_one([settings.key({**NOWHERE, "launcher": launcher}, path)], "job key", OK, words)


KEY = "/proc/self/exe"  # no file of 32 bytes


@pytest.mark.parametrize(
    ("environment", "check", "level", "words"),
    [
        ({}, "launcher", OK, "no rank of a job"),
        ({"FARANDOLE_RANK": "0", "FARANDOLE_SIZE": "1"}, "launcher", OK, "a rank of farandole run"),
        ({"TORCHELASTIC_RUN_ID": "x", "RANK": "9", "WORLD_SIZE": "2"}, "launcher", FAIL, "RANK='9' cannot be right"),
        ({"HOROVOD_SIZE": "2"}, "launcher", FAIL, "replace `horovodrun` by `farandole run`"),
        ({"JOB_COMPLETION_INDEX": "0"}, "launcher", WARN, "JOB_COMPLETION_INDEX=0"),
        ({"FARANDOLE_KEY_FILE": KEY}, "job key", FAIL, "bytes, not 32"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "h0", "FARANDOLE_REQUIRE_KEY": "1"},
            "launcher",
            FAIL,
            "asks for a job key",
        ),
    ],
)
def test_what_init_would_say_is_told(environment: dict[str, str], check: str, level: str, words: str) -> None:
    base = {name: value for name, value in os.environ.items() if not name.startswith("FARANDOLE_")} | environment
    described = build.attempt_to_describe(base, 60.0)
    check_the_one(settings.check(environment, (described.answer or {}).get("place")), check, level, words)

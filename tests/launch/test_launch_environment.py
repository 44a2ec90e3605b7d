"""The variables that a rank finds in its environment, and those that it does not."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from farandole.launch import environment
from farandole.launch.placement import Placement
from farandole.launch.spec import SpecError

PLACE = Placement(3, 8, "localhost", 1, 2, 3, 4)
PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
OUTER = {
    "FARANDOLE_RANK": "7",
    "FARANDOLE_CROSS_SIZE": "9",
    "FARANDOLE_KEY_FILE": "/outer",
    "RANK": "7",
    "WORLD_SIZE": "9",
    "LOCAL_RANK": "7",
    "MASTER_ADDR": "outer",
    "TORCHELASTIC_RUN_ID": "outer",
    "OMPI_COMM_WORLD_RANK": "7",
    "OMPI_MCA_ess_base_jobid": "7",
    "PMIX_RANK": "7",
    "PMI_FD": "7",
    "MPI_LOCALRANKID": "7",
    "SLURM_PROCID": "7",
    "SLURM_STEP_NUM_TASKS": "9",
}


def for_rank(base: dict[str, str], cores: int = 5, start_timeout_s: float | None = None) -> dict[str, str]:
    return environment.for_rank(
        base,
        PLACE,
        store="unix:x",
        key_file="/k",
        master=("127.0.0.1", 4711),
        cores=cores,
        start_timeout_s=start_timeout_s,
    )


def test_a_rank_finds_its_place_and_nothing_else() -> None:
    assert for_rank({"A": "b"}) == {
        "A": "b",
        "FARANDOLE_RANK": "3",
        "FARANDOLE_SIZE": "8",
        "FARANDOLE_LOCAL_RANK": "1",
        "FARANDOLE_LOCAL_SIZE": "2",
        "FARANDOLE_CROSS_RANK": "3",
        "FARANDOLE_CROSS_SIZE": "4",
        "FARANDOLE_STORE": "unix:x",
        "FARANDOLE_KEY_FILE": "/k",
        "RANK": "3",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "HOROVOD_RANK": "3",
        "HOROVOD_SIZE": "8",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": "3",
        "HOROVOD_CROSS_SIZE": "4",
        "HOROVOD_HOSTNAME": "localhost",
        "HOROVOD_SET_BY": "farandole",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "4711",
        "OMP_NUM_THREADS": "2",
        "PYTHONUNBUFFERED": "1",
    }


def test_threads_are_at_least_one() -> None:
    assert for_rank({}, cores=1)["OMP_NUM_THREADS"] == "1"


def test_what_the_user_set_is_kept() -> None:
    given = {"OMP_NUM_THREADS": "7", "PYTHONUNBUFFERED": "", "FARANDOLE_TIMEOUT": "3", "FARANDOLE_START_TIMEOUT": "4"}
    assert given.items() <= for_rank(given).items()
    assert for_rank(given, start_timeout_s=2.5)["FARANDOLE_START_TIMEOUT"] == "2.5"


def test_an_outer_job_does_not_leak() -> None:
    assert environment.without_outer_job(OUTER) == {}


def test_settings_of_open_mpi_and_slurm_stay() -> None:
    given = {"OMPI_MCA_btl": "self", "SLURM_JOB_ID": "1", "SLURM_CPUS_ON_NODE": "4", "MASTERS": "1", "RANKED": "1"}
    assert environment.without_outer_job(given) == given


def test_variables_of_this_machine_and_login_stay_here() -> None:
    stay = "HOME USER SHELL PWD TMPDIR DISPLAY SSH_AUTH_SOCK DBUS_SESSION_BUS_ADDRESS XDG_RUNTIME_DIR HOSTNAME _ MAIL"
    stay += " SHLVL OLDPWD LOGNAME XAUTHORITY KRB5CCNAME FARANDOLE_ADDRESS CUDA_VISIBLE_DEVICES FARANDOLE_RUN_HOSTS"
    travel = dict.fromkeys("PATH LD_LIBRARY_PATH TERM LANG FARANDOLE_TIMEOUT WANDB_API_KEY HOME_OF".split(), "1")
    base = {**travel, **dict.fromkeys([*stay.split(), "BASH_FUNC_f%%"], "here")}
    assert environment.for_other_hosts(base, {}) == travel
    assert environment.for_other_hosts(base, {"HOME": "/there", "PATH": "2"}) == {
        **travel,
        "HOME": "/there",
        "PATH": "2",
    }


def test_given_variables_have_their_value_or_that_of_the_launcher() -> None:
    given = environment.given_variables(["A=1=2", "B", "C=", "A=3"], {"B": "x\ny", "D": "4"})
    assert given == {"A": "3", "B": "x\ny", "C": ""}
    for text, said in {"D": "no such variable here", "SIZE\0=1": "-x wants NAME", "A=\0": "NUL"}.items():
        with pytest.raises(SpecError, match=said):
            environment.given_variables([text], {})


@pytest.mark.parametrize("text", ["x", "-1", "nan", "inf", ""])
def test_a_grace_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="FARANDOLE_GRACE_SECONDS"):
        environment.settings({"FARANDOLE_GRACE_SECONDS": text})


def test_a_silence_timeout_that_every_rank_would_refuse_is_refused() -> None:
    with pytest.raises(SpecError, match=r"FARANDOLE_SILENCE_TIMEOUT='0' .*from 1 to 86400"):
        environment.silence_s({"FARANDOLE_SILENCE_TIMEOUT": "0"})
    assert environment.silence_s({"FARANDOLE_SILENCE_TIMEOUT": "20"}) == 20.0
    assert environment.silence_s({}) == 4.0


@pytest.mark.parametrize("text", ["nonsense", "native,native", "native,,gloo", "native;mpi"])
def test_a_list_of_backends_that_every_rank_would_refuse_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"allowed: .*native"):
        environment.check_backends({"FARANDOLE_BACKEND": text})


def test_a_list_of_backends_is_read_as_the_ranks_do() -> None:
    for base in (
        {},
        {"FARANDOLE_BACKEND": ""},
        {"FARANDOLE_BACKEND": " gloo, native"},
        {"FARANDOLE_BACKEND": "native,"},
    ):
        environment.check_backends(base)


@pytest.mark.parametrize("text", ["mpi", "native,mpi"])
def test_mpi_is_refused_before_ranks_start_that_it_would_not_connect(run: Callable, text: str) -> None:
    result = run("-np", 2, "--backend", text, "true")
    assert result.code == 2
    assert f"FARANDOLE_BACKEND={text} mpirun -np N python train.py" in result.err


@pytest.mark.parametrize(
    ("quotas", "cores"), [({}, 99), ({"a/b": "150000 100000"}, 1), ({"a": "300000 100000", "a/b": "max 100000"}, 3)]
)
def test_cores_respect_every_quota_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quotas: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(99)))
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:cpu:/elsewhere\n0::/a/b\n")
    (tmp_path / "groups/a/b").mkdir(parents=True)
    for group, text in quotas.items():
        (tmp_path / "groups" / group / "cpu.max").write_text(text + "\n")
    assert environment.available_cores(tmp_path / "proc", tmp_path / "groups") == cores


def test_every_rank_has_its_own_environment(run: Callable, script: Callable) -> None:
    result = run("-np", 3, "--no-prefix", "--start-timeout", 9, script(PRINT_ENVIRONMENT), env=OUTER)
    found = sorted((json.loads(line) for line in result.out.splitlines()), key=lambda one: int(one["FARANDOLE_RANK"]))
    assert [(one["FARANDOLE_RANK"], one["FARANDOLE_LOCAL_RANK"]) for one in found] == [(r, r) for r in "012"]
    for one in found:
        assert (one["FARANDOLE_SIZE"], one["FARANDOLE_LOCAL_SIZE"]) == ("3", "3")
        assert (one["FARANDOLE_CROSS_RANK"], one["FARANDOLE_CROSS_SIZE"]) == ("0", "1")
        assert one["FARANDOLE_START_TIMEOUT"] == "9"
        for ours, torchs in {"RANK": "RANK", "SIZE": "WORLD_SIZE", "LOCAL_RANK": "LOCAL_RANK"}.items():
            assert one[torchs] == one[f"FARANDOLE_{ours}"]
        assert (one["HOROVOD_RANK"], one["HOROVOD_SIZE"]) == (one["RANK"], "3") and one["HOROVOD_HOSTNAME"]
        assert not [name for name in OUTER if one.get(name) == OUTER[name]]
    assert len({(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in found}) == 1
    (store,) = {one["FARANDOLE_STORE"] for one in found}
    assert store.startswith("unix:farandole-") and len(store) == len("unix:farandole-") + 32


KEY = """
import json, os, sys
path = os.environ["FARANDOLE_KEY_FILE"]
os.closerange(3, 100)
key = open(path, "rb").read()
around = [open(f"/proc/{pid}/{what}", "rb").read() for pid in ("self", os.getppid()) for what in ("cmdline", "environ")]
try:
    os.pwrite(os.open(path, os.O_RDWR), b"x", 0)
    writable = True
except OSError:
    writable = False
status = os.stat(path)
print(json.dumps([key.hex(), any(key in text or key.hex().encode() in text for text in around), writable,
                  status.st_uid, status.st_mode]))
"""


def test_the_key_is_32_bytes_that_only_this_user_can_read(run: Callable, script: Callable) -> None:
    result = run("-np", 2, "--no-prefix", script(KEY))
    first, second = (json.loads(line) for line in result.out.splitlines())
    assert first == second
    key, seen_around, writable, owner, mode = first
    assert len(bytes.fromhex(key)) == 32 and len(set(bytes.fromhex(key))) > 8
    assert not seen_around
    assert not writable
    assert owner == os.getuid() and stat.S_IMODE(mode) == 0o400


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_another_user_cannot_read_the_key(run: Callable, script: Callable) -> None:
    text = "import os; os.setgid(65534); os.setuid(65534); open(os.environ['FARANDOLE_KEY_FILE'])"
    result = run("-np", 1, script(text))
    assert result.code == 1 and "PermissionError" in result.err

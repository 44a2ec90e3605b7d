"""World discovery: a pure function of the environment."""

import os
import socket
import sys

import pytest
from farandole._start.environment import (
    World,
    discover,
    discover_or_given,
    doubt,
    environment_default,
    find_libraries,
    given,
    silence_timeout_s,
    start_timeout_s,
    tell_horovods_readers,
    without_launchers,
)
from farandole._start.horovod_names import MARK, horovod_variables
from farandole.testing import world

OURS = {
    "FARANDOLE_RANK": "3",
    "FARANDOLE_SIZE": "8",
    "FARANDOLE_LOCAL_RANK": "1",
    "FARANDOLE_LOCAL_SIZE": "2",
    "FARANDOLE_CROSS_RANK": "1",
    "FARANDOLE_CROSS_SIZE": "4",
    "FARANDOLE_STORE": "tcp:host:1234",
    "FARANDOLE_KEY_FILE": "/proc/7/fd/3",
}
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-host-1@1",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SRUN = {  # as seen in a task of Slurm 22.05
    "SLURM_JOB_ID": "7",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2",
}
BATCH_SHELL = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}


def test_a_default_is_there_inside_only_and_the_users_value_wins(monkeypatch):
    monkeypatch.delenv("FARANDOLE_X", raising=False)
    with pytest.raises(ZeroDivisionError), environment_default("FARANDOLE_X", "ours"):
        assert os.environ["FARANDOLE_X"] == "ours"
        _ = 1 / 0
    assert "FARANDOLE_X" not in os.environ
    monkeypatch.setenv("FARANDOLE_X", "theirs")
    with environment_default("FARANDOLE_X", "ours"):
        assert os.environ["FARANDOLE_X"] == "theirs"
    assert os.environ["FARANDOLE_X"] == "theirs"


def test_nobody_started_us_so_we_are_alone():
    assert discover({}) == World(0, 1, 0, 1, 0, 1, "", "", "")


def test_a_program_may_say_it_itself(monkeypatch):
    world = given(1, 3, "this job")
    assert world == World(1, 3, 1, 3, 0, 1, given(0, 3, "this job").store, "", "the program itself")
    assert world.store.startswith("unix:farandole-") and world.store != given(1, 3, "another job").store
    assert given(1, 3, "") == World(1, 3, 0, 1, 0, 1, "", "", "the program itself")  # on several hosts
    with pytest.raises(ValueError, match="rank 3 of 3 cannot be right"):
        given(3, 3, "this job")
    monkeypatch.setenv("FARANDOLE_REQUIRE_KEY", "1")
    with pytest.raises(ValueError, match="asks for a job key, which the program itself does not hand out"):
        given(1, 3, "this job")


def test_our_launcher_says_everything():
    assert discover(OURS) == World(3, 8, 1, 2, 1, 4, "tcp:host:1234", "/proc/7/fd/3", "farandole run")


@pytest.mark.parametrize(
    ("environ", "launcher"),
    [(TORCHRUN, "torchrun"), (OPEN_MPI, "Open MPI's mpirun"), (MPICH, "MPICH's mpiexec"), (SRUN, "Slurm's srun")],
    ids=["torchrun", "openmpi", "mpich", "srun"],
)
def test_other_launchers_are_understood_on_one_host(environ, launcher):
    world = discover(environ)
    assert (world.rank, world.size, world.local_rank, world.local_size) == (1, 2, 1, 2)
    assert (world.cross_rank, world.cross_size, world.launcher, world.key_file) == (0, 1, launcher, "")
    assert world.store.startswith(f"unix:farandole-{os.getuid()}-")


def test_the_first_launcher_of_the_order_is_believed():
    everything = {**SRUN, **MPICH, **OPEN_MPI, **TORCHRUN, **OURS}
    assert discover(everything).launcher == "farandole run"
    assert discover({**MPICH, **OPEN_MPI, **TORCHRUN}).launcher == "torchrun"
    assert discover({**MPICH, **OPEN_MPI}).launcher == "Open MPI's mpirun"
    assert discover({**SRUN, **MPICH}).launcher == "MPICH's mpiexec"
    assert discover({**SRUN, "PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "9"}).launcher == "Slurm's srun"


def test_the_older_torch_launcher_without_local_size_is_understood():
    environ = {name: TORCHRUN[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")}
    assert discover(environ).local_size == 2


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4"}, ["FLUX_JOB_SIZE=4", "farandole run"]),
        ({"JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "6"}, ["JSM_NAMESPACE_SIZE=6", "jsrun"]),
        ({"PBS_TASKNUM": "3"}, ["PBS_TASKNUM=3", "pbsdsh"]),
        ({"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "2"}, ["MV2_COMM_WORLD_SIZE=2"]),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, ["PMI_SIZE=2", "mpirun"]),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"}, ["HOROVOD_SIZE=4", "replace `horovodrun` by `farandole run`"]),
        ({"RANK": "1", "WORLD_SIZE": "2"}, ["WORLD_SIZE=2", "torchrun", "LOCAL_RANK"]),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h0", "MASTER_PORT": "1"}, ["WORLD_SIZE=2", "torchrun"]),
        # A number that is not the first proves that there are others.
        ({"PMIX_RANK": "1"}, ["PMIX_RANK=1", "a launcher by PMIx", "mpirun"]),
        ({"JOB_COMPLETION_INDEX": "1"}, ["JOB_COMPLETION_INDEX=1", "Kubernetes", "--nnodes"]),
        ({"LSF_PM_TASKID": "2"}, ["LSF_PM_TASKID=2", "blaunch"]),
        ({"ALPS_APP_PE": "1"}, ["ALPS_APP_PE=1", "ALPS"]),
        ({"FLUX_TASK_RANK": "1"}, ["FLUX_TASK_RANK=1", "Flux"]),
        ({"JSM_NAMESPACE_RANK": "1"}, ["JSM_NAMESPACE_RANK=1", "jsrun"]),
        ({"MV2_COMM_WORLD_RANK": "1"}, ["MV2_COMM_WORLD_RANK=1"]),
        ({"PMI_RANK": "1"}, ["PMI_RANK=1", "PMI"]),
        ({"RANK": "1"}, ["RANK=1", "torchrun"]),
        ({"RANK": "1", "WORLD_SIZE": "1"}, ["RANK=1", "torchrun"]),
        ({"HOROVOD_RANK": "1"}, ["HOROVOD_RANK=1", "horovodrun"]),
        ({"SLURM_PROCID": "1", "SLURM_JOB_ID": "7"}, ["SLURM_PROCID=1", "srun"]),
        ({"OMPI_COMM_WORLD_RANK": "1"}, ["OMPI_COMM_WORLD_SIZE is not set", "mpirun"]),
        ({"FARANDOLE_RANK": "1"}, ["FARANDOLE_SIZE is not set", "farandole run"]),
    ],
)
def test_one_of_several_is_never_alone(environ, words):
    with pytest.raises(ValueError) as caught:
        discover(environ)
    assert [word for word in [*words, "unset"] if word not in str(caught.value)] == []
    assert discover({**environ, **OURS}).launcher == "farandole run"


@pytest.mark.parametrize(
    "environ",
    [
        {**BATCH_SHELL, "SLURM_NTASKS": "1"},
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"},  # the shell of salloc
        {"PBS_TASKNUM": "1", "PBS_NODENUM": "0"},  # the job's script
        {"HOROVOD_SIZE": "1", "HOROVOD_RANK": "0"},
        {"FLUX_JOB_SIZE": "4"},  # the script of an allocation
        {"WORLD_SIZE": "1", "RANK": "0"},
        {"WORLD_SIZE": "many"},
    ],
)
def test_who_is_alone_by_its_launcher_is(environ, monkeypatch):
    assert discover(environ) == World()
    monkeypatch.setattr(os, "environ", environ)
    assert doubt(World()) == ""


@pytest.mark.parametrize("variable", ["PMIX_RANK", "JOB_COMPLETION_INDEX", "LSF_PM_TASKID", "ALPS_APP_PE"])
def test_a_number_without_a_count_is_doubted_and_named(variable, monkeypatch):
    first = "1" if variable == "LSF_PM_TASKID" else "0"
    monkeypatch.setattr(os, "environ", {variable: first})
    assert discover() == World()
    assert doubt(World()).startswith(f"{variable}={first} is set") and "so this one runs alone" in doubt(World())
    assert doubt(World(launcher="torchrun")) == ""


def test_a_program_that_says_its_place_is_believed_whatever_else_there_is(monkeypatch):
    monkeypatch.setattr(os, "environ", {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4", "WORLD_SIZE": "2"})
    assert discover_or_given(1, 2, lambda: "this job").launcher == "the program itself"
    monkeypatch.setattr(os, "environ", OURS)
    assert discover_or_given(1, 2, lambda: "this job").launcher == "farandole run"


def test_a_step_on_several_hosts_is_placed_by_its_variables():
    world = discover({**SRUN, "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "1,2(x1)", "SLURM_NODEID": "1"})
    assert (world.rank, world.size, world.local_rank, world.local_size) == (1, 3, 1, 2)
    assert (world.store, world.launcher) == ("", "Slurm's srun")
    one = {**SRUN, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    assert discover(one) == World(launcher="Slurm's srun")


def test_the_shell_of_a_batch_script_is_no_rank_and_says_so(monkeypatch):
    monkeypatch.setattr(os, "environ", BATCH_SHELL)
    assert discover() == World()
    assert doubt(World()).startswith("SLURM_NTASKS=2, but the script of Slurm's job has started this process once")
    assert "write `srun --mpi=pmi2` or `farandole run`" in doubt(World())
    assert doubt(World(launcher="farandole run")) == ""


@pytest.mark.parametrize("environ", [TORCHRUN, OPEN_MPI, MPICH, SRUN], ids=["torchrun", "openmpi", "mpich", "srun"])
def test_all_ranks_of_a_job_derive_one_name(environ):
    ranks = ("RANK", "PROCID", "LOCALID")
    other = {
        name: "0" if value == "1" and any(map(name.__contains__, ranks)) else value for name, value in environ.items()
    }
    assert discover(other).rank == 0
    assert discover(other).store == discover(environ).store


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        (TORCHRUN, "MASTER_PORT"),
        (TORCHRUN, "TORCHELASTIC_RUN_ID"),
        (TORCHRUN, "TORCHELASTIC_RESTART_COUNT"),
        (OPEN_MPI, "PMIX_NAMESPACE"),
        (MPICH, "FARANDOLE_JOB_ID"),
        (SRUN, "SLURM_JOB_ID"),
        (SRUN, "SLURM_STEP_ID"),
        (TORCHRUN, "FARANDOLE_JOB_ID"),
    ],
)
def test_different_jobs_have_different_names(environ, name):
    assert discover({**environ, name: "77"}).store != discover(environ).store


def test_a_world_of_one_needs_no_meeting():
    world = discover({**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"})
    assert world == World(launcher="torchrun")
    assert discover({"FARANDOLE_RANK": "0", "FARANDOLE_SIZE": "1"}) == World(launcher="farandole run")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({**OURS, "FARANDOLE_RANK": "8"}, ["FARANDOLE_RANK='8'", "FARANDOLE_SIZE=8", "farandole run"]),
        ({**OURS, "FARANDOLE_RANK": "-1"}, ["FARANDOLE_RANK='-1'", "farandole run"]),
        ({**OURS, "FARANDOLE_RANK": "x"}, ["FARANDOLE_RANK='x'", "number", "farandole run"]),
        ({**OURS, "FARANDOLE_SIZE": "0"}, ["FARANDOLE_SIZE='0'", "farandole run"]),
        ({**OURS, "FARANDOLE_LOCAL_RANK": "2"}, ["FARANDOLE_LOCAL_RANK='2'", "FARANDOLE_LOCAL_SIZE=2"]),
        ({**OURS, "FARANDOLE_LOCAL_SIZE": "9"}, ["FARANDOLE_LOCAL_SIZE='9'", "FARANDOLE_SIZE=8"]),
        ({**OURS, "FARANDOLE_CROSS_RANK": "4"}, ["FARANDOLE_CROSS_RANK='4'", "FARANDOLE_CROSS_SIZE=4"]),
        ({**OURS, "FARANDOLE_STORE": "nowhere"}, ["FARANDOLE_STORE='nowhere'", "unix:", "farandole run"]),
        ({**OURS, "FARANDOLE_KEY_FILE": ""}, ["FARANDOLE_KEY_FILE", "farandole run"]),
        ({**OURS, "FARANDOLE_STORE": ""}, ["FARANDOLE_STORE", "farandole run"]),
        ({"FARANDOLE_SIZE": "2"}, ["FARANDOLE_RANK is not set", "but FARANDOLE_SIZE is", "farandole run", "unset"]),
        ({**TORCHRUN, "RANK": "2"}, ["RANK='2'", "WORLD_SIZE=2", "torchrun"]),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "two"}, ["OMPI_COMM_WORLD_SIZE='two'", "Open MPI"]),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, ["MPI_LOCALRANKID is not set", "MPICH"]),
        ({**SRUN, "SLURM_PROCID": "2"}, ["SLURM_PROCID='2'", "SLURM_STEP_NUM_TASKS=2", "srun"]),
        ({**SRUN, "SLURM_LOCALID": "2"}, ["SLURM_LOCALID='2'", "SLURM_STEP_TASKS_PER_NODE=2", "srun"]),
        ({**SRUN, "SLURM_NODEID": "1"}, ["SLURM_STEP_TASKS_PER_NODE='2' and SLURM_NODEID='1'", "srun", "unset"]),
        ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "x"}, ["SLURM_STEP_TASKS_PER_NODE='x'", "srun"]),
        ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "2(x99999)"}, ["SLURM_STEP_TASKS_PER_NODE", "srun"]),
        ({**SRUN, "PMI_SIZE": "4"}, ["PMI_SIZE='4' and SLURM_STEP_NUM_TASKS='2'", "one step"]),
        ({**SRUN, **TORCHRUN, "GROUP_WORLD_SIZE": "1"}, ["srun has started 2 torchruns", "--nnodes=2", "unset"]),
    ],
)
def test_contradictions_name_the_variable_its_value_and_who_sets_it(environ, words):
    with pytest.raises(ValueError) as caught:
        discover(environ)
    assert [word for word in words if word not in str(caught.value)] == []


def test_one_torchrun_on_each_host_of_a_step_makes_one_job():
    environ = {**SRUN, **TORCHRUN, "GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    assert discover(environ).launcher == "torchrun"


def test_an_older_torch_on_several_hosts_is_refused():
    with pytest.raises(ValueError, match=r"mean several hosts.*start the ranks with torchrun or farandole run"):
        discover({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "other"})


@pytest.mark.parametrize(
    "environ",
    [
        {**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "4"},
        {**MPICH, "PMI_SIZE": "4"},
        {**TORCHRUN, "WORLD_SIZE": "4"},
        {**SRUN, "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"},
    ],
    ids=["openmpi", "mpich", "torchrun", "srun"],
)
def test_ranks_on_several_hosts_have_no_store_yet(environ):
    world = discover(environ)
    assert (world.rank, world.size, world.local_size, world.store, world.key_file) == (1, 4, 2, "", "")
    with pytest.raises(ValueError, match="FARANDOLE_REQUIRE_KEY='1' asks for a job key"):
        discover({**environ, "FARANDOLE_REQUIRE_KEY": "1"})


def test_a_required_key_refuses_launchers_that_hand_out_none():
    with pytest.raises(ValueError, match=r"FARANDOLE_REQUIRE_KEY='1'.*torchrun"):
        discover({**TORCHRUN, "FARANDOLE_REQUIRE_KEY": "1"})
    assert discover({**TORCHRUN, "FARANDOLE_REQUIRE_KEY": "1", "FARANDOLE_KEY_FILE": "/k"}).key_file == "/k"
    assert discover({**TORCHRUN, "FARANDOLE_REQUIRE_KEY": "0"}).key_file == ""
    assert discover({**OURS, "FARANDOLE_REQUIRE_KEY": "1"}).size == 8


@pytest.mark.parametrize(
    "environ", [OURS, TORCHRUN, OPEN_MPI, MPICH, SRUN], ids=["ours", "torchrun", "openmpi", "mpich", "srun"]
)
def test_a_cleaned_environment_has_no_launcher(monkeypatch, environ):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("UNRELATED", "stays")
    cleaned = without_launchers()
    assert discover(cleaned) == World()
    assert cleaned["UNRELATED"] == "stays"


@pytest.mark.parametrize("text", ["inf", "nan", "-1", "2 minutes"])
def test_a_start_timeout_that_cannot_be_says_what_can(monkeypatch, text):
    monkeypatch.setenv("FARANDOLE_START_TIMEOUT", text)
    with pytest.raises(ValueError, match=r"FARANDOLE_START_TIMEOUT=.*seconds from 0 to 1e\+09, without a unit"):
        start_timeout_s()


@pytest.mark.parametrize(("text", "seconds"), [("", 120.0), ("2.5", 2.5), ("0", 0.0)])
def test_a_start_timeout_is_in_seconds(monkeypatch, text, seconds):
    monkeypatch.setenv("FARANDOLE_START_TIMEOUT", text)
    assert start_timeout_s() == seconds


@pytest.mark.parametrize("text", ["0", "-1", "0.9", "86401", "nan", "20s"])
def test_a_silence_timeout_is_one_second_at_least(monkeypatch, text):
    monkeypatch.setenv("FARANDOLE_SILENCE_TIMEOUT", text)
    with pytest.raises(ValueError, match=r"FARANDOLE_SILENCE_TIMEOUT=.*seconds from 1 to 86400, without a unit"):
        silence_timeout_s()


@pytest.mark.parametrize(("text", "seconds"), [("", 4.0), ("20.5", 20.5), ("1", 1.0)])
def test_a_silence_timeout_is_in_seconds(monkeypatch, text, seconds):
    monkeypatch.setenv("FARANDOLE_SILENCE_TIMEOUT", text)
    assert silence_timeout_s() == seconds


@pytest.fixture
def nccl_package(tmp_path, monkeypatch):
    """The library of an nvidia-nccl package that is installed in a folder of its own."""
    library = tmp_path / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    library.parent.mkdir(parents=True)
    library.touch()
    (tmp_path / "nvidia" / "nccl" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("FARANDOLE_NCCL_LIB", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "nvidia"]:
        monkeypatch.delitem(sys.modules, name)
    return str(library)


def test_the_library_of_an_installed_package_is_found(nccl_package, monkeypatch):
    monkeypatch.setenv("FARANDOLE_BACKEND", "nccl, native")
    monkeypatch.setenv("FARANDOLE_NCCL_LIB", "")
    find_libraries()
    assert os.environ["FARANDOLE_NCCL_LIB"] == nccl_package


def test_the_library_of_the_package_farandole_gloo_is_found(tmp_path, monkeypatch):
    library = tmp_path / "farandole_gloo" / "libfarandole_gloo.so"
    library.parent.mkdir()
    library.touch()
    (library.parent / "__init__.py").write_text("raise ImportError('it is found without an import')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FARANDOLE_BACKEND", "gloo,native")
    monkeypatch.setenv("FARANDOLE_GLOO_LIB", "")  # put back afterwards
    find_libraries()
    assert os.environ["FARANDOLE_GLOO_LIB"] == str(library)


@pytest.mark.parametrize("backends", ["native", ""])
def test_no_library_is_looked_for_unless_its_backend_is_asked_for(nccl_package, monkeypatch, backends):
    monkeypatch.setenv("FARANDOLE_BACKEND", backends)
    find_libraries()
    assert "FARANDOLE_NCCL_LIB" not in os.environ


def test_the_users_library_comes_before_a_package(nccl_package, monkeypatch):
    monkeypatch.setenv("FARANDOLE_BACKEND", "nccl")
    monkeypatch.setenv("FARANDOLE_NCCL_LIB", "/mine/libnccl.so.2")
    find_libraries()
    assert os.environ["FARANDOLE_NCCL_LIB"] == "/mine/libnccl.so.2"


def test_programs_for_horovod_read_the_place_from_its_variables():
    def read():
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        return [int(os.environ[f"HOROVOD_{name}"]) for name in names], os.environ["HOROVOD_HOSTNAME"]

    with world(2) as ranks:
        given = ranks.run(read)
    assert given == [([rank, 2, rank, 2, 0, 1], socket.gethostname()) for rank in range(2)]


def test_variables_that_we_have_set_are_not_taken_for_horovodruns():
    ours = horovod_variables(vars(World(1, 4, 1, 4)), "host")
    assert ours["HOROVOD_RANK"] == "1" and ours["HOROVOD_SIZE"] == "4" and ours["HOROVOD_HOSTNAME"] == "host"
    assert discover(ours) == World()
    with pytest.raises(ValueError, match="HOROVOD_SIZE=4"):
        discover({name: value for name, value in ours.items() if name != MARK})


def test_a_process_alone_gets_no_variables_of_horovod(monkeypatch):
    for name in horovod_variables(vars(World()), ""):
        monkeypatch.delenv(name, raising=False)
    tell_horovods_readers(World())
    assert "HOROVOD_RANK" not in os.environ


def test_a_world_of_one_does_not_keep_the_place_in_an_earlier_one(monkeypatch):
    for name, value in horovod_variables(vars(World(1, 4, 1, 4)), "host").items():
        monkeypatch.setenv(name, value)
    tell_horovods_readers(World())
    assert (os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]) == ("0", "1")

"""Started by torchrun and by the launchers of two MPIs, whose wheels bring mpirun without a compiler."""

import os
import shlex
import subprocess
import sys
from importlib import util

import mpis
import pytest
from farandole._start.environment import without_launchers

pytestmark = pytest.mark.timeout(300)

SCRIPT = """
import farandole
for life in range(3):
    farandole.init()
    places = farandole.allgather_object((farandole.rank(), farandole.size(), farandole.local_rank()))
    assert [place[:2] for place in places] == [(rank, 3) for rank in range(3)], places
    assert sorted(local_rank for _, _, local_rank in places) == [0, 1, 2], places
    farandole.shutdown()
import os
os.write(1, b"fine\\n")  # in one piece, for three ranks print to one pipe
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def run(command, **variables):
    environment = {
        **without_launchers(),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **variables,
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_one_of_several_of_an_unknown_launcher_is_not_alone():
    init = [sys.executable, "-c", "import farandole; farandole.init(); print(farandole.size())"]
    done = run(init, FLUX_JOB_SIZE="2", FLUX_TASK_RANK="1")
    assert done.returncode == 1 and "call `farandole run` once in the job's script" in done.stderr
    place = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "0"}
    done = run(init, **place, SLURM_NODEID="1", SLURM_STEP_TASKS_PER_NODE="1(x2)")
    assert done.returncode == 1 and "without PMI-2: start them with `srun --mpi" in done.stderr
    done = run(init, JOB_COMPLETION_INDEX="1")
    assert done.returncode == 1 and "let each pod call `farandole run --nnodes`" in done.stderr
    done = run(init, JOB_COMPLETION_INDEX="0")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert done.stderr.count("farandole warning: JOB_COMPLETION_INDEX=0 is set") == 1


def check(done):
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["fine"] * 3, done.stderr


def test_open_mpi(script):
    check(run([*mpis.launcher("openmpi", 3), sys.executable, script]))


def test_mpich(script):
    check(run([*mpis.launcher("mpich", 3), sys.executable, script]))


def test_mpich_through_a_shell(script):
    line = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}; exit $?"
    check(run([*mpis.launcher("mpich", 3), "sh", "-c", line]))


@pytest.mark.skipif(util.find_spec("torch") is None, reason="torchrun comes with torch")
def test_torchrun(script):
    check(run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", script]))


@pytest.mark.skipif(util.find_spec("torch") is None, reason="torchrun comes with torch")
def test_torchrun_is_refused_where_a_key_is_required(script):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    done = run(command, FARANDOLE_REQUIRE_KEY="1")
    assert done.returncode != 0
    assert "FARANDOLE_REQUIRE_KEY='1' asks for a job key, which torchrun does not hand out" in done.stderr

"""Allocations of LSF, PBS and Flux. No test runs one of these engines.

The variables and answers are written after the documentation of each: LSF's reference of LSB_MCPU_HOSTS, PBS's of
PBS_NODEFILE, Flux's RFCs 20 and 29. Programs of the engines are stand-ins that run their words under a host's name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from farandole.launch import schedulers
from farandole.launch.head import ssh
from farandole.launch.hosts import HostSlots
from farandole.launch.options import HostOptions
from farandole.launch.schedulers import flux
from farandole.launch.spec import SpecError

LSF = {"LSB_JOBID": "101", "LSB_MCPU_HOSTS": "h1 2 h2 1", "LSB_HOSTS": "h1 h1 h2", "LSB_DJOB_NUMPROC": "3"}
PBS = {"PBS_JOBID": "7.server", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_TASKNUM": "1", "PBS_NODENUM": "0"}
FLUX = {"FLUX_URI": "local:///tmp/flux-x/local-0"}
R = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0", "children": {"core": "0-1"}}, {"rank": "1", "children": {"core": "0"}}],
        "starttime": 0.0,
        "expiration": 0.0,
        "nodelist": ["h[1-2]"],
    },
}
AS_HOST = 'exec unshare --uts sh -c \'hostname "$0" && exec "$@"\' "$host" "$@"\n'
BLAUNCH = f"#!/bin/sh\nhost=$1; shift; {AS_HOST}"
FLUX_PROGRAM = f"""#!/bin/sh
case "$1 $2 $3" in
"resource R ") echo '{json.dumps(R)}';;
"exec --rank 0"|"exec --rank 1") host=h$(($3 + 1)); shift 3; {AS_HOST};;
*) exit 9;;
esac
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A PATH with blaunch and flux."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("blaunch", BLAUNCH), ("flux", FLUX_PROGRAM)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    flux._resources.cache_clear()
    return os.environ["PATH"]


def reached(environ: dict[str, str], host: str) -> list[str]:
    """The command that starts an agent on this host of the allocation."""
    _, scheduler = schedulers.allocation(environ)
    return ssh.agent_command(host, False, HostOptions(python="python3", scheduler=scheduler), ["ssh"])


def test_outside_of_an_allocation_there_are_no_hosts(programs: str) -> None:
    for environ in ({}, {"LSB_JOBID": "1"}, {"PBS_JOBID": "1"}, {**LSF, "LSB_MCPU_HOSTS": "h1 4"}):
        assert schedulers.allocation(environ) == (None, None)
    assert schedulers.allocation({**FLUX, "FLUX_JOB_SIZE": "1", "FLUX_TASK_RANK": "0"}) == (None, None)


def test_lsf_tells_hosts_and_slots_and_blaunch_reaches_them() -> None:
    found, _ = schedulers.allocation(LSF)
    assert found is not None and found.slots == (HostSlots("h1", 2), HostSlots("h2", 1))
    assert reached(LSF, "h2") == ["blaunch", "h2", "python3", *ssh.AGENT]


def test_pbs_has_a_line_for_each_slot_and_ssh_reaches_its_hosts(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("n1.site\nn2.site\nn1.site\n")
    environ = {**PBS, "PBS_NODEFILE": str(file)}
    found, _ = schedulers.allocation(environ)
    assert found is not None and found.slots == (HostSlots("n1.site", 2), HostSlots("n2.site", 1))
    assert reached(environ, "n2.site")[0] == "ssh"
    file.write_text("n1\nn1\n")
    assert schedulers.allocation(environ) == (None, None)


def test_flux_tells_its_resources_and_reaches_hosts_by_rank(programs: str) -> None:
    found, _ = schedulers.allocation(FLUX)
    assert found is not None and found.slots == (HostSlots("h1", 2), HostSlots("h2", 1))
    assert reached(FLUX, "h2") == ["flux", "exec", "--rank", "1", "python3", *ssh.AGENT]


def test_flux_inside_of_slurm_comes_first(programs: str) -> None:
    outer = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "x[1-2]", "SLURM_JOB_NUM_NODES": "2"}
    found, _ = schedulers.allocation({**outer, **FLUX})
    assert found is not None and found.origin == "Flux's allocation"


def test_resources_of_flux_count_gpus_first() -> None:
    answer = {
        "R_lite": [
            {"rank": "0-1,3", "children": {"core": "0-47", "gpu": "0-3"}},
            {"rank": "2", "children": {"core": "0-5,7"}},
        ],
        "nodelist": ["node[08-10]", "x1"],
    }
    assert flux.resources_of(json.dumps({"execution": answer})) == {
        "node08": (0, 4),
        "node09": (1, 4),
        "node10": (2, 7),
        "x1": (3, 4),
    }


@pytest.mark.parametrize(
    ("text", "names"),
    [("h1", ["h1"]), ("a[0-1,07],b", ["a0", "a1", "a07", "b"]), ("r[1-2]n,x[9]", ["r1n", "r2n", "x9"])],
)
def test_lists_of_hosts_of_flux_are_expanded(text: str, names: list[str]) -> None:
    assert flux.host_names(text) == names


@pytest.mark.parametrize(
    "text", ["", "{}", '{"execution": {"R_lite": [], "nodelist": ["h1"]}}', json.dumps(R).replace("0-1", "1-0")]
)
def test_an_answer_of_flux_that_is_none_is_one_sentence(text: str) -> None:
    with pytest.raises(SpecError, match=r"^flux resource R answers .*; give the hosts with -H\.$"):
        flux.resources_of(text)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({**LSF, "LSF_PM_TASKID": "2"}, "blaunch has started this launcher as a task"),
        ({**LSF, "LSB_MCPU_HOSTS": "h1 2 h2"}, "LSB_MCPU_HOSTS='h1 2 h2' is no list of hosts and slots"),
        ({**LSF, "LSB_MCPU_HOSTS": "h1 2 h2 x"}, "LSB_MCPU_HOSTS: the number of slots must be a positive whole"),
        ({**LSF, "LSB_MCPU_HOSTS": "h1 2 -oProxyCommand=x 2"}, "is no name of a host"),
        ({**PBS, "PBS_NODEFILE": "/nowhere"}, r"PBS_NODEFILE='/nowhere' cannot be read \(No such file"),
        ({**PBS, "PBS_NODEFILE": "/nowhere", "PBS_TASKNUM": "2"}, "pbsdsh has started this launcher as a task"),
        ({**FLUX, "FLUX_JOB_SIZE": "4", "FLUX_TASK_RANK": "1"}, "flux run has started 4 launchers"),
    ],
)
def test_mistakes_are_one_sentence(environ: dict[str, str], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        schedulers.allocation(environ)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a stand-in for an scheduler another host's name")
@pytest.mark.parametrize("environ", [LSF, FLUX], ids=["lsf", "flux"])
def test_an_allocation_is_filled_through_its_engine(run: Callable, programs: str, environ: dict[str, str]) -> None:
    code = "import os; print(os.uname().nodename, os.environ['RANK'])"
    result = run("python", "-c", code, env={**environ, "PATH": programs})
    assert (result.code, result.err) == (0, "")
    assert sorted(result.out.splitlines()) == ["[0 h1] h1 0", "[1 h1] h1 1", "[2 h2] h2 2"]


def test_an_engine_that_does_not_reach_a_host_is_named(run: Callable, programs: str) -> None:
    folder = Path(programs.partition(":")[0])
    (folder / "blaunch").write_text("#!/bin/sh\necho no host $1 >&2; exit 3\n")
    result = run("true", env={**LSF, "PATH": programs})
    assert result.code == 2 and "h2: blaunch ended with exit code 3: no host h2" in result.err, result.err

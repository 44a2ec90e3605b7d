"""horovod.run: the arguments of 0.28.1, on `farandole.run`."""

import inspect
import json
import os
import pickle
import sys
import time

import farandole
import horovod
import horovod.runner
import pytest
from horovod.runner import _errors

# Of 0.28.1, by its signature.
PARAMETERS = """func args kwargs num_proc min_num_proc max_num_proc slots reset_limit cooldown_range hosts hostfile
host_discovery_script start_timeout ssh_port ssh_identity_file disable_cache output_filename verbose use_gloo use_mpi
mpi_args network_interface network_interfaces executable np min_np max_np""".split()


def rank_and_sum(base, step=0):
    import horovod.torch as hvd
    import torch

    hvd.init()
    total = hvd.allreduce(torch.tensor([base + step * hvd.rank()]), op=hvd.Sum)
    return hvd.rank(), total


def test_it_has_horovods_arguments():
    assert horovod.run is horovod.runner.run
    parameters = inspect.signature(horovod.run).parameters
    assert list(parameters) == PARAMETERS
    defaults = {name: each.default for name, each in parameters.items()}
    known = {"func": inspect.Parameter.empty, "args": (), "num_proc": 1}
    assert defaults == {name: known.get(name) for name in PARAMETERS}


def test_results_are_those_of_each_rank_and_the_timeline_has_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "t.json"))
    first, second = horovod.run(rank_and_sum, args=(10,), kwargs={"step": 5}, num_proc=2, hosts="localhost:2")
    assert (first[0], first[1].tolist()) == (0, [25])
    assert (second[0], second[1].tolist()) == (1, [25])
    events = json.loads((tmp_path / "t.json").read_text())
    assert "unnamed allreduce" in {each["name"] for each in events}


def test_names_of_older_releases_and_arguments_without_effect_are_taken(tmp_path):
    results = horovod.run(
        os.getpid,
        np=2,
        use_gloo=True,
        disable_cache=True,
        ssh_port=22,
        ssh_identity_file=__file__,
        network_interfaces="lo",
        start_timeout=30,
        verbose=1,
        output_filename=str(tmp_path / "logs"),
        executable=sys.executable,
    )
    assert len(set(results)) == 2 and len(list((tmp_path / "logs").iterdir())) == 2


def test_mpi_is_told_to_have_no_effect():
    with pytest.warns(UserWarning, match="no effect: use_mpi") as caught:
        assert horovod.run(lambda: 1, num_proc=2, use_mpi=True) == [1, 1]
    assert caught[0].filename == __file__


@pytest.mark.parametrize("names", [("min_num_proc", "max_num_proc"), ("min_np", "max_np")])
def test_lost_ranks_of_a_function_are_replaced(names):
    def train():
        import horovod.torch as hvd

        hvd.init()

        @hvd.elastic.run
        def run(state):
            state.step += 1
            state.commit()
            if state.step == 1 and hvd.rank() == 1:
                os.kill(os.getpid(), 9)
            while state.step < 5:
                state.step += hvd.size() == 2
                state.commit()
                time.sleep(0.01)

        run(hvd.elastic.ObjectState(step=0))
        return hvd.rank(), hvd.size()

    least, most = names
    elastic = {least: 1, most: 2, "reset_limit": 3, "cooldown_range": (0.1, 1)}
    assert horovod.run(train, num_proc=2, **elastic) == [(0, 2), (1, 2)]


@pytest.mark.parametrize("name", ["reset_limit", "cooldown_range"])
def test_arguments_of_elastic_jobs_ask_for_the_fewest_ranks(name):
    with pytest.raises(ValueError, match=r"is for jobs that lose ranks and go on; give min_np=1"):
        horovod.run(print, **{name: 2})


BEGINS = "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be"


def fails(how):
    farandole.init()
    if farandole.rank() == 1:
        if how == "raise":
            raise FileNotFoundError(2, "no such file", "data.csv")
        os.kill(os.getpid(), 9)
    farandole.barrier()


@pytest.mark.parametrize(("how", "code"), [("raise", 1), ("kill", 137)])
def test_a_failure_of_a_rank_is_a_runtime_error_in_horovods_words(how, code):
    with pytest.raises(RuntimeError) as caught:
        horovod.run(fails, args=(how,), num_proc=2)
    text = str(caught.value)
    assert text.startswith(BEGINS) and f"\nProcess name: 1\nExit code: {code}\n" in text
    if how == "raise":
        assert isinstance(caught.value, FileNotFoundError) and caught.value.filename == "data.csv"
        assert "rank 1 of 2:\nTraceback" in str(caught.value.__cause__)
    else:
        assert "killed by SIGKILL" in text


class TwoWords(LookupError):
    def __init__(self, one, other):
        super().__init__(one, other)
        self.both = f"{one} {other}"


class NotToDerive(Exception):
    def __init_subclass__(cls):
        raise TypeError("no class derives from this")


def of_rank_0(error):
    error.failed_rank, error.exit_code = 0, 1
    return _errors.of_job(error)


def test_an_error_is_also_what_the_rank_raised_wherever_that_can_be():
    for original in (ValueError("no column"), KeyError("column"), TwoWords("no", "column"), OSError(2, "no", "file")):
        error = of_rank_0(original)
        for each in (error, pickle.loads(pickle.dumps(error))):
            assert isinstance(each, type(original)) and isinstance(each, RuntimeError)
            assert type(each).__name__ == type(original).__name__ and each.args == original.args
            assert str(each).startswith(BEGINS) and str(each).endswith(str(original))
    assert of_rank_0(TwoWords("no", "column")).both == "no column"
    assert type(of_rank_0(farandole.PeerLostError("lost"))).__mro__[1] is farandole.PeerLostError
    assert type(of_rank_0(NotToDerive("no"))) is RuntimeError
    assert str(of_rank_0(NotToDerive("no"))).endswith("NotToDerive: no")
    of_an_argument = ValueError("num_proc")
    assert _errors.of_job(of_an_argument) is of_an_argument


def test_hosts_may_be_discovered(tmp_path):
    (tmp_path / "discover").write_text("#!/bin/sh\necho localhost\n")
    (tmp_path / "discover").chmod(0o755)
    found = horovod.run(os.getpid, num_proc=2, host_discovery_script=str(tmp_path / "discover"), slots=2)
    assert len(set(found)) == 2


def test_other_hosts_are_reached_by_ssh_with_its_options(tmp_path, monkeypatch):
    (tmp_path / "ssh").write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\nexit 1\n')
    (tmp_path / "ssh").chmod(0o700)
    (tmp_path / "key").touch()
    monkeypatch.setenv("FARANDOLE_SSH", str(tmp_path / "ssh"))
    with pytest.raises(RuntimeError, match="elsewhere: ssh ended with exit code 1"):
        horovod.run(print, num_proc=1, hosts="elsewhere:1", ssh_port=2222, ssh_identity_file=tmp_path / "key")
    assert f"-p 2222 -i {tmp_path}/key -- elsewhere exec" in (tmp_path / "words").read_text()

"""Elastic jobs on one host: ranks are killed at any step, leave, or fail by mistake. FARANDOLE_LONG=1: 200 kills."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from farandole.observe import timeline
from farandole.observe.report.analysis import analyse
from farandole.observe.report.trace import read

LONG = bool(os.environ.get("FARANDOLE_LONG"))
LIMIT_S = 60
pytestmark = pytest.mark.timeout(LIMIT_S * (200 if LONG else 2))

# Arguments: steps, then what ranks of the start do, as rank:when:what. When is a step, or the epoch in which it begins.
PROGRAM = """
import os, signal, sys, time, numpy as np
import farandole.numpy as hvd
from farandole import elastic

hvd.init()
me, steps = int(os.environ.get("FARANDOLE_JOINS") or hvd.rank()), int(sys.argv[1])
plan = {when: what for rank, when, what in (each.split(":") for each in sys.argv[2:]) if int(rank) == me}
epochs, is_slow = 0, False
wanted = 0  # so many ranks, else the last 20 steps wait for newcomers
pids = []

def act(when):
    global is_slow, wanted
    what = plan.pop(when, "")
    if what.isdecimal():
        os.kill(os.getpid(), int(what))
    elif what == "all":
        for pid in sorted(pids, key=os.getpid().__eq__):  # this process last
            os.kill(pid, 9)
    elif what == "mistake":
        raise ValueError("a mistake")
    elif what == "disk":
        raise OSError("the disk is broken")
    elif what == "slow":
        is_slow = True
    elif what.startswith("fill"):  # up to so many ranks as there are now, or as it says
        wanted = int(what[4:] or hvd.size())
    elif what == "wait":
        time.sleep(3)
    elif what == "kept":
        state.kept = hvd.allreduce_async(np.ones(4), name="kept")

@elastic.run
def train(state):
    global epochs, pids
    pids = hvd.allgather(np.array([os.getpid()])).tolist()
    act(f"e{epochs}")
    print(f"epoch {epochs}: {hvd.rank()} of {hvd.size()} at {state.step}", flush=True)
    epochs += 1
    while state.step < steps:
        state.total = state.total + hvd.allreduce(np.ones(1000, np.float32), op=hvd.Average, name="step")
        state.step += 1
        print(f"finished {state.step}", flush=True)
        for when in [when for when in plan if when.isdecimal() and int(when) <= state.step]:
            act(when)
        state.commit()
        if is_slow:
            time.sleep(0.005)
        while hvd.size() < wanted and state.step >= steps - 20:
            time.sleep(0.01)
            state.commit()
    return state.total

state = elastic.ObjectState(step=0, total=np.zeros(1000, np.float32))
total = train(state)
assert total.min() == total.max() == steps
print(f"ended {hvd.rank()} of {hvd.size()} at {state.step}", flush=True)
"""


@pytest.fixture
def job(tmp_path: Path):
    """job(4, "3:10:9", min_np=2) runs the program, and returns exit code, stdout and stderr."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)

    def run(
        ranks: int,
        *plan: str,
        min_np: int = 1,
        max_np: int = 0,
        steps: int = 30,
        options: Sequence[str] = (),
        **variables: str,
    ) -> tuple[int, str, str]:
        counts = {"-np": ranks, "--min-np": min_np, "--max-np": max_np}
        options = [*options, *(word for name, count in counts.items() if count for word in (name, str(count)))]
        command = [sys.executable, "-m", "farandole.launch", "run", *options, str(path), str(steps), *plan]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env={**os.environ, **variables}
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def foreign_job(tmp_path: Path):
    """The same without our launcher: the ranks have the variables of Open MPI's mpirun."""
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)

    def run(ranks: int, *plan: str, steps: int = 30) -> tuple[list[int], str, str]:
        environment = {**os.environ, "FARANDOLE_JOB_ID": uuid.uuid4().hex}
        names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
        sizes = dict.fromkeys(("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"), str(ranks))
        started = [
            subprocess.Popen(
                [sys.executable, str(path), str(steps), *plan],
                env={**environment, **sizes, **dict.fromkeys(names, str(rank))},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        for each in started:  # reaped at once, as by mpirun
            threading.Thread(target=each.wait, daemon=True).start()
        try:
            said = [each.communicate(timeout=LIMIT_S) for each in started]
        finally:
            for each in started:
                each.kill()
        outs, errs = zip(*said, strict=True)
        marked = "".join(f"[{rank}] {line}" for rank, out in enumerate(outs) for line in out.splitlines(keepends=True))
        return [each.returncode for each in started], marked, "".join(errs)

    return run


def ended(out: str) -> list[str]:
    return sorted(re.findall(r"ended (\d of \d at \d+)", out))


def all_of(ranks: int, steps: int = 30) -> list[str]:
    return [f"{rank} of {ranks} at {steps}" for rank in range(ranks)]


def assert_no_step_is_lost(out: str) -> None:
    """No epoch begins before a step that all its ranks had finished and committed."""
    finished: dict[str, int] = {}
    for origin, what, number in re.findall(r"\[(\d+)\] (finished|epoch \d+: \d of \d at) (\d+)", out):
        if what == "finished":
            finished[origin] = int(number)
        elif origin in finished:
            assert int(number) >= finished[origin] - 1, f"rank {origin} was at {finished[origin]}: {out}"


@pytest.mark.parametrize("victim", range(4) if LONG else [0, 3])
def test_the_others_finish_when_one_is_killed(job, victim: int) -> None:
    code, out, err = job(4, f"{victim}:10:9")
    assert (code, ended(out)) == (0, all_of(3)), err
    assert f"rank {victim} on localhost" in err and "killed by SIGKILL" in err and "; 3 ranks go on." in err
    assert_no_step_is_lost(out)


def test_one_after_the_other_until_one_is_left(job) -> None:
    code, out, err = job(4, "0:5:9", "1:10:9", "2:15:9")
    assert (code, ended(out)) == (0, all_of(1)), err


def test_two_at_once(job) -> None:
    code, out, err = job(4, "1:10:9", "2:10:9")
    assert (code, ended(out)) == (0, all_of(2)), err


def test_one_more_at_the_begin_of_the_next_epoch(job) -> None:
    code, out, err = job(4, "3:10:9", "0:e1:9")
    assert (code, ended(out)) == (0, all_of(2)), err


def test_the_next_rank_0_dies_before_it_listens(tmp_path: Path, job) -> None:
    """The others would wait for it until the start timeout, 120 s."""
    dies = """
from farandole._elastic.membership import Membership
enter = Membership._enter

def enter_late(self, *given):
    print("enters", time.monotonic(), flush=True)
    if me == 1:
        os.kill(os.getpid(), 9)
    time.sleep(0.3)  # until its process is gone
    enter(self, *given)

Membership._enter = enter_late
"""
    (tmp_path / "train.py").write_text(PROGRAM.replace("epochs, is_slow = 0", dies + "epochs, is_slow = 0"))
    code, out, err = job(4, "0:10:9")
    assert (code, ended(out)) == (0, all_of(2)), err
    at = sorted(map(float, re.findall(r"enters ([\d.]+)", out)))
    assert at[-1] - at[0] < 20, err  # an epoch that does not start for so long is given up


def test_a_rank_that_notices_late_is_waited_for(job) -> None:
    code, out, err = job(3, "2:10:9", "1:10:wait")
    assert (code, ended(out)) == (0, all_of(2)), err


@pytest.mark.parametrize("leavers", [(0,), (1, 2), (0, 1, 2, 3)])
def test_ranks_that_are_told_to_leave_do_so_together(job, leavers: tuple[int, ...]) -> None:
    code, out, err = job(4, *(f"{rank}:10:15" for rank in leavers))
    left = 4 - len(leavers)
    assert (code, ended(out)) == (0, all_of(left)), err
    assert err.count("leaves after SIGTERM") == len(leavers)
    assert re.findall(r"epoch 1: \d of \d at (\d+)", out) == ["10"] * left  # no step is done again


def test_a_death_while_others_leave(job) -> None:
    code, out, err = job(4, "1:10:15", "2:10:9")
    assert (code, ended(out)) == (0, all_of(2)), err


def test_too_few_end_with_one_sentence(job) -> None:
    code, out, err = job(3, "2:10:9", "1:20:9", min_np=2)
    assert code == 137 and ended(out) == []
    restart = "start the job again from a checkpoint or FARANDOLE_COMMITS"
    sentence = f"1 of 3 ranks is left (rank 0), and --min-np asks for 2; {restart}"
    assert err.count(sentence) == 2, err  # of rank 0, and of the launcher
    assert err.rstrip().endswith(f"farandole: {sentence}."), err
    assert "rank 1 on localhost" in err


def test_too_few_wait_for_a_replacement(job) -> None:
    """By default no rank may be missing. The one that is left keeps the state meanwhile."""
    code, out, err = job(2, "1:10:9", min_np=0, max_np=2, options=("--blacklist-cooldown-range", "0.1", "0.1"))
    assert (code, ended(out)) == (0, all_of(2)), err
    assert "; 1 rank is left." in err, err
    assert "1 of 2 ranks is left (rank 0), and --min-np asks for 2; waiting for 1 more rank for at most 600 s" in err
    assert re.findall(r"\[(\d)\] epoch \d: \d of 2 at (9|10)\n", out)[::-1] in (
        [(rank, at), (other, at)] for at in ("9", "10") for rank, other in ("02", "20")
    ), out


def test_too_few_do_not_wait_for_ever_for_replacements_that_fail(tmp_path: Path, job) -> None:
    text = PROGRAM.replace("@elastic.run", "if 'FARANDOLE_JOINS' in os.environ:\n    sys.exit(3)\n@elastic.run")
    (tmp_path / "train.py").write_text(text)
    options = ("--blacklist-cooldown-range", "0.1", "0.1", "--elastic-timeout", "2")
    code, out, err = job(2, "1:10:9", min_np=2, max_np=2, options=options)
    assert code == 137 and ended(out) == [], err
    assert "but no others have joined within 2 s; start the job again from a checkpoint or" in err, err


def test_all_that_have_the_state_may_not_be_lost(job) -> None:
    code, out, err = job(2, "0:10:all", min_np=2, max_np=2)
    assert code == 137 and ended(out) == [] and "0 of 2 ranks are left" in err, err


def test_the_change_after_the_reset_limit_ends_the_job(job) -> None:
    code, out, err = job(3, "1:10:9", "2:20:9", options=("--reset-limit", "1"))
    assert code == 137 and ended(out) == [], err
    sentence = (
        "farandole: the ranks change again, and --reset-limit 1 was reached, so the job ends; start the job again"
    )
    assert err.splitlines()[-1].startswith(sentence), err


def test_a_mistake_of_the_program_ends_the_job(job) -> None:
    code, out, err = job(3, "1:10:mistake")
    assert code == 1 and ended(out) == [] and "ValueError: a mistake" in err, err
    assert "rank 1 on localhost" in err and "failed first" in err


def test_a_failure_of_one_machine_does_not(job) -> None:
    code, out, err = job(3, "1:10:disk")
    assert (code, ended(out)) == (0, all_of(2)) and "OSError: the disk is broken" in err, err


def test_a_handle_of_an_earlier_epoch_ends_the_job_with_a_sentence(tmp_path: Path, job) -> None:
    text = PROGRAM.replace("    while state.step", "    if epochs == 2:\n        kept.wait()\n    while state.step")
    kept = 'kept = hvd.allreduce_async(np.ones(4), name="kept") if me else None\n'
    (tmp_path / "train.py").write_text(text.replace("@elastic.run", kept + "@elastic.run"))
    code, _, err = job(3, "0:10:9")
    assert code == 1 and "began in an earlier epoch" in err and "must not keep handles" in err, err


def test_a_function_that_fails_again_and_again_ends_with_its_reason(tmp_path: Path, job) -> None:
    text = PROGRAM.replace(
        "    while state.step", '    raise hvd.HorovodInternalError("no luck")\n    while state.step'
    )
    (tmp_path / "train.py").write_text(text)
    code, _, err = job(2)
    assert code == 1 and "3 epochs in a row ended without a commit" in err and "no luck" in err, err


def test_a_rank_that_dies_outside_of_run_ends_the_job(tmp_path: Path, job) -> None:
    more = """
hvd.barrier()
if me == 1:
    os.kill(os.getpid(), 9)
hvd.allreduce(np.ones(4))
"""
    (tmp_path / "train.py").write_text(PROGRAM + more)
    code, _, err = job(3)
    assert code == 137 and "rank 1 on localhost" in err and "failed first: killed by SIGKILL" in err, err


def test_run_may_be_called_again_in_a_later_epoch(tmp_path: Path, job) -> None:
    text = PROGRAM.replace("total = train(state)", "train(state)\nsteps *= 2\ntotal = train(state)")
    (tmp_path / "train.py").write_text(text)
    code, out, err = job(4, "1:10:9", "3:40:9")
    assert (code, ended(out)) == (0, all_of(2, 60)), err


def test_without_our_launcher_a_loss_ends_the_job_with_a_sentence(foreign_job) -> None:
    codes, out, err = foreign_job(3, "1:10:9")
    assert codes[1] == -9 and 0 not in codes and ended(out) == [], err
    assert "has started these ranks, so the loss of a rank ends this job" in err, err
    assert err.count("FARANDOLE_COMMITS, or with `farandole run --min-np N`") == 2, err


def test_a_lost_rank_is_replaced_and_has_the_state(tmp_path: Path, job) -> None:
    """The newcomer takes over the sum of all steps. The timeline has all of it, also in the report."""
    path = tmp_path / "t.json"
    options = ("--timeline-filename", str(path))
    code, out, err = job(3, "1:20:9", "0:1:fill", "2:1:fill", max_np=3, steps=60, options=options)
    assert (code, ended(out)) == (0, all_of(3, 60)), err
    assert re.findall(r"\[3\] epoch 0: (2 of 3) at", out) == ["2 of 3"]
    assert_timeline_is_whole(path, 60)


def assert_timeline_is_whole(path: Path, steps: int) -> None:
    """Ranks 0 and 2 of three have taken all steps, rank 1 was killed and rank 3 has joined. Some may be repeated."""
    assert {each["pid"] for each in json.loads(path.read_text())} == {0}, "the file that was named is rank 0's"
    files, about_others = timeline.of_one_run(timeline.find([path]))
    assert [each.name for each in files] == [f"t.rank{rank}.json" for rank in range(4)] and not about_others
    run = read(timeline.events(files))
    by_rank = [each for epoch in run.epochs for each in epoch.ranks.items()]
    uses = Counter(rank for rank, operations in by_rank for each in operations if each.name == "step")
    assert uses[0] >= steps and uses[2] >= steps and 20 <= uses[3] < steps
    found = analyse(run)  # rank 1 may have ended before it wrote any of its 20 steps
    assert len(found.epochs) == 3 and (0, 2) in found.epochs and found.epochs[-1] == (0, 2, 3)
    assert found.compared > 0.7


# A state that takes some pieces to send; this process dies in the middle of them.
DIES_IN_THE_STREAM = """
from farandole._elastic.streaming import _Stream
land = _Stream._land

def land_or_die(self, piece, handle):
    if piece[0] > 0 and me == DIES:
        os.kill(os.getpid(), 9)
    land(self, piece, handle)

_Stream._land = land_or_die
"""


@pytest.mark.parametrize("dies", [2, 3] if LONG else [3], ids={2: "holder", 3: "newcomer"}.get)
def test_a_death_in_the_middle_of_a_join(tmp_path: Path, job, dies: int) -> None:
    """Those that are left have the last commit; the next newcomer gets it from them."""
    text = PROGRAM.replace("epochs, is_slow = 0", DIES_IN_THE_STREAM.replace("DIES", str(dies)) + "epochs, is_slow = 0")
    (tmp_path / "train.py").write_text(text.replace("(step=0,", "(step=0, much=b'x' * 30_000_000,"))
    plan = ("1:20:9", *(f"{number}:1:fill3" for number in range(6)))
    code, out, err = job(3, *plan, max_np=3, steps=60, options=("--blacklist-cooldown-range", "0.1", "0.1"))
    assert code == 0 and f"rank {dies} on localhost" in err and "killed by SIGKILL" in err, err
    assert ended(out) == all_of(3, 60), err
    assert re.findall(r"\[(?:3|4|5)\] epoch 0: \d of 3 at", out), out
    assert_no_step_is_lost(out)


def test_newcomers_alone_do_not_begin_again(tmp_path: Path, job) -> None:
    """The only rank that has the state dies while it sends it."""
    text = PROGRAM.replace("epochs, is_slow = 0", DIES_IN_THE_STREAM.replace("DIES", "0") + "epochs, is_slow = 0")
    (tmp_path / "train.py").write_text(text.replace("(step=0,", "(step=0, much=b'x' * 30_000_000,"))
    code, out, err = job(2, "1:20:9", "0:1:fill", max_np=2, steps=60)
    assert code != 0 and ended(out) == [], err
    assert "all ranks that had the state of the job were lost while they sent it" in err, err


def test_newcomers_know_the_process_sets(tmp_path: Path, job) -> None:
    sets = "joins = 'FARANDOLE_JOINS' in os.environ\nif not joins:\n    hvd.add_process_set([0, 1])\n"
    sets += "    hvd.remove_process_set(hvd.add_process_set([1]))\n    hvd.add_process_set([0, 2])\n"
    begun = f"hvd.start_timeline({str(tmp_path / 't.json')!r})\n"  # by each, before it is in a world
    text = PROGRAM.replace("@elastic.run", sets + begun + "@elastic.run") + "hvd.stop_timeline()\n"
    (tmp_path / "train.py").write_text(text + 'print("sets", hvd.get_process_set_ids_and_ranks(), flush=True)\n')
    code, out, err = job(3, "1:20:9", "0:1:fill", "2:1:fill", max_np=3, steps=60)
    assert code == 0, err
    assert_timeline_is_whole(tmp_path / "t.json", 60)
    assert sorted(set(re.findall(r"sets (.*)", out))) == ["{0: [0, 1, 2], 1: [0], 3: [0, 1]}"]


def test_a_newcomer_has_no_collectives_before_run(tmp_path: Path, job) -> None:
    """The only rank that is left ends after it."""
    path = str(tmp_path / "newcomer")
    fails = f"if 'FARANDOLE_JOINS' in os.environ:\n    open({path!r}, 'w').write(str(os.getpid()))\n    hvd.barrier()\n"
    is_over = f"os.path.exists({path!r}) and (pid := open({path!r}).read()) and not os.path.exists(f'/proc/{{pid}}')"
    text = PROGRAM.replace("@elastic.run", fails + "@elastic.run")
    ends = f"    while not ({is_over}):\n        time.sleep(0.01)\n    return state.total\n"
    (tmp_path / "train.py").write_text(text.replace("    return state.total\n", ends))
    code, out, err = job(2, "1:10:9", max_np=2)
    assert (code, ended(out)) == (0, all_of(1))
    assert "joins a running job and has no collectives until elastic.run" in err, err


def test_a_rank_that_stops_for_ever_is_killed(job) -> None:
    """The others find out by their own deadline, and wait for the launcher's then."""
    given = ("--elastic-timeout", "3")
    code, out, err = job(3, "1:20:19", options=given, FARANDOLE_TIMEOUT="3")
    assert (code, ended(out)) == (0, all_of(2)), err
    assert re.search(r"rank 1 did not notice within \d s that epoch 0 has ended, so the launcher kills it", err), err
    assert "rank 1 on localhost" in err and "killed by SIGKILL" in err and "2 ranks go on" in err, err


if LONG:

    def test_a_newcomer_that_hangs_is_killed(tmp_path: Path, job) -> None:
        """Its place gets another one, which trains."""
        stop = "if os.environ.get('FARANDOLE_JOINS') == '2':\n    os.kill(os.getpid(), signal.SIGSTOP)\nhvd.init()\n"
        (tmp_path / "train.py").write_text(PROGRAM.replace("hvd.init()\n", stop))
        given = ("--elastic-timeout", "4")
        code, out, err = job(2, "1:20:9", "0:1:slow", max_np=2, steps=2500, options=given)
        assert (code, ended(out)) == (0, all_of(2, 2500)), err
        assert "rank 2 on localhost did not come to elastic.run within FARANDOLE_ELASTIC_TIMEOUT" in err, err


def test_a_job_follows_a_script_that_fails_too(tmp_path: Path, job) -> None:
    """One place, a failure, three places; FARANDOLE_LONG=1: then two. No step is lost, and none is done again."""
    script, last, steps, does = tmp_path / "hosts.sh", *((2, 1500, "slow") if LONG else (3, 60, "fill3"))
    script.write_text(
        f'echo x >> {tmp_path}/n; n=$(wc -l < {tmp_path}/n); [ "$n" = 2 ] && exit 7\n'
        'if [ "$n" = 1 ]; then echo localhost:1; exit; fi\n'
        f'if [ "$n" -le 5 ]; then echo localhost:3; else echo localhost:{last}; fi\n'
    )
    found = ("--host-discovery-script", f"sh {script}", "--max-np", "4")
    code, out, err = job(1, *(f"{number}:1:{does}" for number in range(4)), steps=steps, options=found)
    assert (code, ended(out)) == (0, all_of(last, steps)), err
    assert err.count("ended with exit code 7; the job goes on with the hosts that it has") == 1, err
    assert err.count("leaves after SIGTERM; 2 ranks go on") == 3 - last, err
    assert_no_step_is_lost(out)


def test_without_min_np_a_loss_ends_the_job(job) -> None:
    code, out, err = job(2, "1:10:9", min_np=0)
    assert code == 137 and ended(out) == []
    assert "was started without --min-np" in err and "rank 1 on localhost" in err, err


def test_mpi_is_refused(job) -> None:
    code, _, err = job(1, FARANDOLE_BACKEND="native,mpi", min_np=0)
    assert code != 0 and "mpi" in err, err


def test_ctrl_c_ends_an_elastic_job(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    command = [sys.executable, "-m", "farandole.launch", "run", "-np", "3", "--min-np", "1", str(path), "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        while "finished 20" not in started.stdout.readline():
            pass
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=LIMIT_S)
    assert started.returncode == 130


@pytest.mark.parametrize("seed", range(200 if LONG else 2))
def test_kills_at_random_steps(job, seed: int) -> None:
    draw = random.Random(seed)
    ranks = draw.randint(2, 4)
    victims = draw.sample(range(ranks), draw.randint(1, ranks - 1))
    plan = [f"{rank}:{draw.choice(['e1', draw.randint(1, 28)])}:{draw.choice([9, 9, 15])}" for rank in victims]
    code, out, err = job(ranks, *plan)
    assert code == 0 and ended(out) == all_of(len(ended(out))) and ended(out), f"{plan}: {err}"

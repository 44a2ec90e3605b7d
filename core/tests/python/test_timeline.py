"""Timelines: what is in them, started and stopped at run time, complete whatever happens."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import farandole
import farandole.numpy as fnp
import numpy as np
import pytest
from farandole._runtime import recording
from farandole._runtime.clock import offset_ns
from farandole._runtime.recording import Track
from farandole._start import environment
from farandole._start import world as life
from farandole._start.timeline_files import file_of, path_of
from farandole.testing import RanksFailed, World, rank_environments, world

pytestmark = pytest.mark.timeout(120)


def events_of(path, killed=False):
    text = Path(path).read_text().rstrip()
    return json.loads(text + "]" * (killed and not text.endswith("]")))  # see _runtime/trace_file.py


def begins(events, category=None):
    return [each for each in events if each["ph"] == "b" and category in (None, each.get("cat"))]


def recorded(path, mark_cycles):
    farandole.start_timeline(path, mark_cycles)
    with pytest.raises(ValueError, match=r"is being recorded to '.*rank\d.json'; call stop_timeline"):
        farandole.start_timeline(path)
    fnp.allreduce(np.ones(4), name="small")
    fnp.allreduce(np.ones(1 << 20), name='large, "quoted"\n')
    for handle in [fnp.allgather_async(np.ones((100, 5)), name=f"rows {i}") for i in range(3)]:
        handle.wait()
    fnp.broadcast(np.ones(3), 0)
    farandole.barrier()
    farandole.stop_timeline()
    with pytest.raises(ValueError, match="no timeline is being recorded"):
        farandole.stop_timeline()
    fnp.allreduce(np.ones(4), name="afterwards")


@pytest.mark.parametrize("mark_cycles", [False, True])
def test_every_operation_is_there_with_its_phases(tmp_path, mark_cycles):
    world(2).run(recorded, str(tmp_path / "trace.json"), mark_cycles)
    for rank in range(2):
        events = events_of(tmp_path / f"trace.rank{rank}.json")
        assert {each["pid"] for each in events} == {rank}
        assert f"rank {rank} (" in events[0]["args"]["name"]
        named = {each["name"]: each for each in begins(events)}
        assert {"small", 'large, "quoted"\n', "rows 0", "rows 1", "rows 2", "unnamed broadcast"} <= set(named)
        assert "afterwards" not in named
        assert named["small"]["args"] == {"bytes": 32, "tensors": 1, "process_set": 0}
        large = [each for each in begins(events) if each["id"] == named['large, "quoted"\n']["id"]]
        assert [each["name"] for each in large][1:] == ["NEGOTIATE", "QUEUE", "ALLREDUCE"]
        assert len([each for each in events if each["ph"] == "X"]) >= 2
        assert any(each["name"] == "BATCH" for each in events) is mark_cycles
        assert_well_formed(events)
    assert events_of(tmp_path / "trace.json") == events_of(tmp_path / "trace.rank0.json"), "the name that was given"


def assert_well_formed(events):
    """Each begin has its end, later, of the same name; what is inside lies inside."""
    open_ones = {}
    for each in events:
        if each["ph"] == "b":
            open_ones.setdefault((each["cat"], each["id"]), []).append(each)
        if each["ph"] == "e":
            began = open_ones[each["cat"], each["id"]].pop()
            assert began["name"] == each["name"]
            assert began["ts"] <= each["ts"]
    assert not any(open_ones.values())


def alone(path):
    farandole.start_timeline(path)
    fnp.allreduce(np.ones(4), name="alone")
    farandole.stop_timeline()


def test_a_world_of_one_writes_to_the_name_itself(tmp_path):
    world(1).run(alone, str(tmp_path / "trace.json"))
    assert "alone" in {each["name"] for each in begins(events_of(tmp_path / "trace.json"))}


def ended_by_shutdown(path):
    farandole.start_timeline(path)
    fnp.allreduce(np.ones(4), name="last")
    farandole.shutdown()
    with pytest.raises(farandole.NotInitializedError):
        farandole.start_timeline(path)
    farandole.init()


def test_shutdown_ends_it(tmp_path):
    world(2).run(ended_by_shutdown, str(tmp_path / "trace.json"))
    for rank in range(2):
        assert "last" in {each["name"] for each in begins(events_of(tmp_path / f"trace.rank{rank}.json"))}


def stopped_in_a_child(path):
    farandole.init()
    farandole.start_timeline(path)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            farandole.stop_timeline()
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert b"no timeline is being recorded" in os.read(reader, 1000)
    farandole.stop_timeline()


def test_a_forked_child_has_none(tmp_path):
    World(1).run(stopped_in_a_child, str(tmp_path / "t.json"))


def refused(path):
    with pytest.raises(ValueError, match=r"a timeline cannot be written to '/nowhere/x.json': No such file"):
        farandole.start_timeline("/nowhere/x.json")  # the same on all ranks, so that one tells
    with pytest.raises(ValueError, match=r"'.*': it is a folder; name a file in it"):
        farandole.start_timeline(os.path.dirname(path))
    farandole.start_timeline(path)
    farandole.stop_timeline()


def test_a_file_that_cannot_be_made_is_said(tmp_path):
    world(2).run(refused, str(tmp_path / "trace.json"))


def killed(path):
    farandole.start_timeline(path)
    until, steps = time.monotonic() + 0.7 + random.Random(farandole.rank()).random(), 0
    while time.monotonic() < until or steps < 50:
        fnp.allreduce(np.ones(100), name="again")
        steps += 1
    os.kill(os.getpid(), signal.SIGKILL)


def test_it_is_complete_after_sigkill(tmp_path):
    with World(2) as ranks, pytest.raises(RanksFailed):
        ranks.run(killed, str(tmp_path / "trace.json"), timeout=60)
    for rank in range(2):
        events = events_of(tmp_path / f"trace.rank{rank}.json", killed=True)
        assert len(begins(events)) > 10
        assert_well_formed(events)
    assert len(begins(events_of(tmp_path / "trace.json", killed=True))) > 10


# ---- Without a world


def track(rank: int, size: int, *, number: int = 0, epoch: int = 0, local_rank: int = 0) -> Track:
    return Track(number, environment.World(rank, size, local_rank), epoch, 2, "ab12", 0)


@pytest.fixture
def path(tmp_path):
    yield tmp_path / "t.json"
    recording.end()


@pytest.mark.parametrize("before", ["nothing", "a file", "a link"])
def test_the_name_leads_to_the_file_of_rank_0_while_it_is_written(path, before):
    if before == "a file":
        path.write_text("of an earlier run")
    elif before == "a link":
        path.symlink_to("t.rank7.json")
    recording.begin(str(path), False, track(0, 2))
    assert events_of(path)[0]["args"]["name"].startswith("rank 0 ")
    assert recording.end() and not recording.end()
    assert events_of(path) == events_of(path.with_name("t.rank0.json"))
    recording.begin(str(path), False, track(1, 2, number=1))
    assert events_of(path)[0]["pid"] == 0


def test_where_there_are_no_links_the_name_gets_a_copy(path, monkeypatch, caplog):
    monkeypatch.setattr(os, "symlink", Mock(side_effect=OSError(errno.EOPNOTSUPP, "Operation not supported")))
    recording.begin(str(path), False, track(0, 2))
    assert recording.end()
    assert events_of(path) == events_of(path.with_name("t.rank0.json"))
    recording.begin(str(path), False, track(0, 2))
    path.with_name("t.rank0.json").unlink()
    recording.end()
    assert f"in '{path.with_name('t.rank0.json')}', and not in '{path}': No such file" in caplog.text


def test_a_device_stays_what_it_is(path):
    os.mkfifo(path)
    recording.begin(str(path), False, track(0, 2))
    assert recording.end() and path.is_fifo()


def test_it_goes_on_in_the_next_worlds_of_an_elastic_job(path):
    recording.begin(str(path), False, track(2, 3, number=2))
    recording.enter_epoch(track(1, 2, number=2, epoch=1))
    assert not path.exists()
    recording.enter_epoch(track(0, 1, number=2, epoch=3))
    recording.end()
    events = events_of(path.with_name("t.rank2.json"))
    assert [each["args"] for each in events if each["ph"] == "i"] == [
        {"epoch": 1, "rank": 1, "size": 2},
        {"epoch": 3, "rank": 0, "size": 1},
    ]
    assert {each["pid"] for each in events} == {2}, "the number that the process had at the start"
    assert events_of(path) == events, "that of the present rank 0"


def test_a_process_that_joins_begins_with_its_first_world(path, caplog):
    recording.begin_later(str(path), False)
    with pytest.raises(ValueError, match="call stop_timeline"):
        recording.begin_later(str(path), False)
    assert recording.end() and not recording.end()
    recording.begin_later(str(path), False)
    recording.enter_epoch(track(1, 3, number=4, epoch=2))
    recording.end()
    assert events_of(path.with_name("t.rank4.json"))[-1]["args"] == {"epoch": 2, "rank": 1, "size": 3}
    recording.begin_later("/nowhere/t.json", False)
    recording.enter_epoch(track(1, 3, number=5, epoch=3))
    assert "cannot be written to '/nowhere/t.json': No such file" in caplog.text


@pytest.mark.parametrize(
    ("epoch", "known", "hosts", "found"),
    [(0, None, 2, 7), (0, None, 1, 0), (2, None, 2, 107), (2, None, 1, 100), (2, 50, 2, 50)],
)
def test_times_are_those_of_the_first_rank_0_also_for_newcomers(monkeypatch, epoch, known, hosts, found):
    """The present rank 0 is on another host, whose clock is 100 ns ahead of that of the first one."""
    monkeypatch.setattr(life, "_state", SimpleNamespace(epoch=epoch, clock_offset_ns=known))
    monkeypatch.setattr(life.clock, "measure_offset_ns", lambda: 7)
    monkeypatch.setattr(life.clock, "allgather", lambda values, _name: [100, *values])
    assert life._measured_clock_offset_ns(environment.World(1, 2, 0, 2 // hosts)) == found


def test_only_rank_0_needs_the_folder_of_the_setting(caplog):
    with pytest.raises(ValueError, match=r"cannot be written to ./nowhere/t.json.: No such file"):
        recording.begin_at_init("/nowhere/t.json", False, track(0, 4))
    for local_rank in range(2):
        recording.begin_at_init("/nowhere/t.json", False, track(2 + local_rank, 4, local_rank=local_rank))
    assert caplog.text.count("cannot be written to '/nowhere/t.json'") == 1, "once on a host"


def test_the_ranks_have_files_of_their_own():
    assert path_of("/a.b/trace.json", 3, 4) == "/a.b/trace.rank3.json"
    assert path_of("trace", 0, 2) == "trace.rank0"
    assert path_of("trace.json", 0, 1) == "trace.json"


def test_a_timeline_needs_the_name_of_a_file():
    assert file_of("file:///a/t.json") == "/a/t.json"
    for nothing in ("", "/", "trace\0.json"):
        with pytest.raises(ValueError, match="needs the name of a file"):
            file_of(nothing)
    with pytest.raises(ValueError, match=r"not to a URL such as 's3://b/t\.json'"):
        file_of("s3://b/t.json")


@pytest.mark.parametrize("seed", range(20))
def test_offsets_are_found_within_half_a_round(seed):
    """Rank 1's clock is ahead by `ahead`; each round's messages take another while either way."""
    draw = random.Random(seed)
    ahead, now, narrowest = draw.randrange(-(10**12), 10**12), 0, 10**9
    mine, of_rank_0 = [], []
    for _ in range(16):
        entered = [now + draw.randrange(200_000) for _ in range(2)]
        left = [max(entered) + draw.randrange(1_000, 300_000) for _ in range(2)]
        of_rank_0.append((entered[0], left[0]))
        mine.append((entered[1] + ahead, left[1] + ahead))
        narrowest = min(narrowest, left[0] - entered[1] + left[1] - entered[0])
        now = max(left)
    assert abs(offset_ns(mine, of_rank_0) - ahead) <= narrowest / 2


def test_clocks_of_hosts_are_compared_at_init():
    """Two ranks that were told to be on two hosts; their clock is one."""
    code = "import farandole; from farandole._start import world; farandole.init(); print(world.track().offset_ns)"
    with rank_environments(2) as environments:
        hosts = [{"LOCAL_RANK": 0, "LOCAL_SIZE": 1, "CROSS_RANK": rank, "CROSS_SIZE": 2} for rank in range(2)]
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", code],
                env=environment | {f"FARANDOLE_{name}": str(value) for name, value in host.items()},
                stdout=subprocess.PIPE,
                text=True,
            )
            for environment, host in zip(environments, hosts, strict=True)
        ]
        offsets = [int(rank.communicate(timeout=60)[0]) for rank in ranks]
    assert offsets[0] == 0
    assert offsets[1] != 0  # measured, and so not exact
    assert abs(offsets[1]) < 50_000_000

"""Timelines: what is in them, started and stopped at run time, complete whatever happens."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import farandole
import farandole.numpy as fnp
import numpy as np
import pytest
from farandole._runtime.clock import offset_ns
from farandole._runtime.trace_names import path_of
from farandole.testing import RanksFailed, World, rank_environments, world

pytestmark = pytest.mark.timeout(120)


def events_of(path, killed=False):
    text = Path(path).read_text().rstrip()
    return json.loads(text + "]" * (killed and not text.endswith("]")))  # see engine/trace_file.h


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
    with pytest.raises(ValueError, match=r"a timeline cannot be written to '/nowhere/x.rank\d.json': No such file"):
        farandole.start_timeline("/nowhere/x.json")
    farandole.start_timeline(path)
    farandole.stop_timeline()


def test_a_file_that_cannot_be_made_is_said(tmp_path):
    world(2).run(refused, str(tmp_path / "trace.json"))


def killed(path):
    farandole.start_timeline(path)
    until = time.monotonic() + 0.7 + random.Random(farandole.rank()).random()
    while time.monotonic() < until:
        fnp.allreduce(np.ones(100), name="again")
    os.kill(os.getpid(), signal.SIGKILL)


def test_it_is_complete_after_sigkill(tmp_path):
    with World(2) as ranks, pytest.raises(RanksFailed):
        ranks.run(killed, str(tmp_path / "trace.json"), timeout=60)
    for rank in range(2):
        events = events_of(tmp_path / f"trace.rank{rank}.json", killed=True)
        assert len(begins(events)) > 10
        assert_well_formed(events)


def test_the_ranks_have_files_of_their_own():
    assert path_of("/a.b/trace.json", 3, 4) == "/a.b/trace.rank3.json"
    assert path_of("trace", 0, 2) == "trace.rank0"
    assert path_of("trace.json", 0, 1) == "trace.json"
    for nothing in ("", "/", "trace\0.json"):
        with pytest.raises(ValueError, match="needs the name of a file"):
            path_of(nothing, 0, 2)


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
    code = "import farandole; from farandole._start import world; farandole.init(); print(world.clock_offset_ns())"
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

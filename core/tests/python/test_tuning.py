"""Limits that are measured on this machine: who measures, who reads, and what becomes of a file that is none."""

import json
import os
import re
import stat
import threading
from dataclasses import replace

import farandole.numpy as fnp
import numpy as np
import pytest
from farandole._runtime.native import core
from farandole._start import tuning
from farandole.benchmark.table import limits_of
from farandole.testing import RanksFailed, spawn

pytestmark = pytest.mark.timeout(120)

VARIABLE = "FARANDOLE_TUNING"
KNOWN = "2:32768:131072:0:70000"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Where this machine's file is, beside no other."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


def limits_in_use():
    fnp.init()
    assert fnp.allreduce(np.ones(100_000), op=fnp.Sum)[0] == fnp.size()
    return core.tuning()


def run(ranks, home, **more):
    return spawn(ranks, limits_in_use, timeout=100, env={VARIABLE: "", "XDG_CACHE_HOME": str(home), **more})


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_first_job_measures_and_the_next_one_reads(ranks, home):
    first = run(ranks, home)
    assert len(set(first)) == 1 and first[0].startswith(f"{ranks}:")
    assert json.loads(tuning.file().read_text()) == {str(ranks): first[0]}
    assert stat.S_IMODE(tuning.file().stat().st_mode) == 0o600
    written = tuning.file().stat().st_mtime_ns
    assert run(ranks, home) == first
    assert tuning.file().stat().st_mtime_ns == written


def test_a_world_of_one_and_a_variable_measure_nothing(home):
    assert spawn(1, limits_in_use, timeout=60, env={VARIABLE: "", "XDG_CACHE_HOME": str(home)}) == ["0"]
    assert run(2, home, **{VARIABLE: "0"}) == ["0", "0"]
    assert run(2, home, **{VARIABLE: KNOWN}) == [KNOWN, KNOWN]
    assert not list(home.iterdir())


@pytest.mark.parametrize(
    "text", ["", "{", '{"2": "2:32768:13', '{"2": 7}', '{"2": "4:1:1:1:1"}', "[]", '{"2": "2:x:1:1:1"}', "\x00\xff"]
)
def test_a_damaged_file_counts_as_none(text, home):
    tuning.file().parent.mkdir()
    tuning.file().write_text(text, encoding="latin-1")
    assert tuning.of_this_host(2) == ""
    assert tuning.keep(2, KNOWN) == tuning.file()
    assert tuning.of_this_host(2) == KNOWN


def test_numbers_that_no_core_takes_are_measured_again(home):
    tuning.keep(2, "2:1:13:1:1")
    first, second = run(2, home)
    assert first == second == tuning.of_this_host(2) != ""


def test_another_users_file_and_another_machines_count_as_none(home, monkeypatch):
    tuning.keep(2, KNOWN)
    assert tuning.of_this_host(2) == KNOWN
    assert tuning.of_this_host(4) == ""
    path = tuning.file()
    monkeypatch.setattr(tuning, "_processor", lambda: iter(["another model"]))
    assert tuning.file() != path and tuning.of_this_host(2) == ""
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert tuning.of_this_host(2) == ""


def test_a_home_that_cannot_be_written_costs_the_time_only(tmp_path):
    (tmp_path / "file").touch()
    found = run(2, tmp_path / "file")
    assert found[0] == found[1] and found[0].startswith("2:")


def test_a_user_without_a_home_measures(monkeypatch, tmp_path):
    def fail():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(tuning.Path, "home", fail)
    monkeypatch.delenv(VARIABLE, raising=False)
    assert tuning.of_this_host(2) == ""
    assert tuning.keep(2, KNOWN) is None


def test_a_full_disk_leaves_nothing_behind(home, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert tuning.keep(2, KNOWN) is None
    assert not list(tuning.file().parent.iterdir())


def test_where_a_library_carries_sums_nothing_is_measured(home, monkeypatch):
    for backends, found in (("native", ""), ("nccl,native", ""), ("mpi,native", "0"), ("gloo", "0")):
        monkeypatch.setenv("FARANDOLE_BACKEND", backends)
        assert tuning.of_this_host(2) == found


def test_writers_at_once_leave_a_whole_file(home):
    def write(ranks):
        for _ in range(50):
            assert tuning.keep(ranks, f"{ranks}:65536:131072:1:1")
            assert tuning.of_this_host(ranks) in (f"{ranks}:65536:131072:1:1", "")  # "": the other one did not see it

    writers = [threading.Thread(target=write, args=(ranks,)) for ranks in (2, 3, 4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = json.loads(tuning.file().read_text())
    assert set(found) <= {"2", "3", "4"} and len(list(tuning.file().parent.iterdir())) == 1


def ranks_with_files_of_their_own():
    os.environ["XDG_CACHE_HOME"] += os.environ["FARANDOLE_RANK"]
    return limits_in_use()


def test_ranks_that_have_read_different_files_take_rank_zeros(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    for rank, limits in enumerate([KNOWN, "2:65536:524288:1:50000"]):
        monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/of{rank}")
        tuning.keep(2, limits)
    env = {VARIABLE: "", "XDG_CACHE_HOME": f"{tmp_path}/of"}
    assert spawn(2, ranks_with_files_of_their_own, timeout=60, env=env) == [KNOWN, KNOWN]


def ways(**times_us):
    return [tuning.Way(way, 1 << 20, 1, int(way[1:]) << 10, times_ns=[time * 1000]) for way, time in times_us.items()]


def test_a_choice_needs_a_gain_above_the_noise():
    def cell_bytes(*pairs):
        sizes = [tuning.Way("", 32 << 10, 1, 1), tuning.Way("", 64 << 10, 1, 1)]
        cells = [[replace(each, times_ns=[time]) for time in pair] for each, pair in zip(sizes, pairs, strict=True)]
        return tuning._cell_bytes(cells) >> 10

    assert cell_bytes((100, 95), (200, 185)) == 64
    assert cell_bytes((100, 95), (200, 170)) == 32
    assert cell_bytes((100, 80), (200, 300)) == 16
    at_both = [ways(r256=100, r128=98, r64=98, r512=102), ways(r256=100, r128=98, r64=99, r512=103)]
    assert tuning._round_bytes(at_both, 256 << 10) == 256 << 10
    at_both = [ways(r256=100, r128=80, r64=84, r512=102), ways(r256=100, r128=105, r64=103, r512=103)]
    assert tuning._round_bytes(at_both, 256 << 10) == 128 << 10
    for times, overwrites in [((100, 101), 1), ((100, 98), 1), ((100, 90), 0)]:
        assert tuning._overwrites([tuning.Way("", 4096, 1, 1, times_ns=[time]) for time in times], True) == overwrites
    assert [tuning._overwrites([], usually) for usually in (True, False)] == [1, 0]


def test_the_report_says_what_was_chosen():
    said = [limits_of(tuning.Measured("", 1 << 20, 64 << 10, 1 << 18, each, []), 2, None) for each in (0, 1)]
    left = " What they have read in cells, they leave as it is."
    assert [left in text for text in said] == [True, False]
    assert all("up to 1 MiB through cells (above 64 KiB only where they wait for each)" in text for text in said)


def on_too_few_cores_and_on_one_each():
    every = sorted(os.sched_getaffinity(0))
    rank = int(os.environ["FARANDOLE_RANK"])
    found = []
    for cores in (every[:1], every[rank : rank + 1] or every):
        os.sched_setaffinity(0, cores)
        fnp.init()
        found.append(core.info()["shares_cores"])
        fnp.shutdown()
    return found


def test_the_cores_of_all_ranks_are_counted():
    assert spawn(2, on_too_few_cores_and_on_one_each, timeout=60) == [[True, len(os.sched_getaffinity(0)) < 2]] * 2


def ranks_of_several_hosts():
    os.environ["FARANDOLE_ARENAS"] = "0"  # each is a host of its own
    os.environ[VARIABLE] = ["0", KNOWN, "2:65536:524288:1:50000"][int(os.environ["FARANDOLE_RANK"])]
    return limits_in_use()


def test_ranks_of_several_hosts_take_those_of_the_slowest():
    assert spawn(3, ranks_of_several_hosts, timeout=60) == [KNOWN] * 3


def sums_by_all_limits():
    fnp.init()
    sums = set()
    for number, limits in enumerate(["0", f"{fnp.size()}:1:524288:1:1", f"{fnp.size()}:16384:8192:0:1"]):
        core.tune(limits)
        for count in (600, 3_000, 300_000):
            values = np.random.default_rng(fnp.rank()).normal(size=count).astype(np.float32)
            sums.add((count, fnp.allreduce(values, op=fnp.Sum, name=f"of {count} by {number}").tobytes()))
    with pytest.raises(ValueError, match="2:x are no limits"):
        core.tune("2:x")
    return len(sums)


def test_results_have_the_same_bits_by_all_limits():
    for ranks in (2, 3):
        assert spawn(ranks, sums_by_all_limits, timeout=60) == [3] * ranks


def test_a_variable_that_is_none_is_refused():
    for ranks in (1, 2):
        with pytest.raises(RanksFailed, match="FARANDOLE_TUNING=fast is not understood; allowed: 0") as failure:
            spawn(ranks, limits_in_use, timeout=60, env={VARIABLE: "fast"})
        example = re.search(r"such as ([0-9:]+)", str(failure.value))
        assert example and core.are_limits(example[1])

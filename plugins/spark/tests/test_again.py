"""Decisions of elastic jobs: no Spark is needed here, and no PySpark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import farandole
import pytest
from farandole.engine import CommitStore
from farandole_spark import _elastic, _job
from farandole_spark._again import Ledger, would_come_again
from farandole_spark._arguments import Sizes, folder_of, limit_of, sizes_of
from farandole_spark._slots import Slots, fitting


def of_rank(error: Exception) -> Exception:
    error.__cause__ = RuntimeError("the traceback of rank 1")
    return error


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (farandole.FarandoleError("rank 1 on h2 was lost"), False),
        (of_rank(farandole.PeerLostError("rank 1 is gone")), False),
        (of_rank(farandole.DeadlineError("no answer")), False),
        (of_rank(ValueError("x")), True),
        (of_rank(ImportError("x")), True),
        (of_rank(farandole.MismatchError("shapes differ")), True),
        (of_rank(farandole.FarandoleError("rank 1 raised Odd: x")), True),
        (farandole.ArgumentError("num_proc"), True),
        (OSError("the driver's own"), True),
    ],
)
def test_errors_of_the_program_end_the_job(error: Exception, ends: bool) -> None:
    assert would_come_again(error) == ends


def test_without_a_commit_there_is_nothing_to_go_on_from() -> None:
    assert Ledger(None).refusal(0).startswith("No commit was saved before, so the job cannot go on")


def test_the_limit_bounds_the_stages() -> None:
    ledger = Ledger(2)
    assert [ledger.refusal(commits) for commits in (5, 9)] == ["", ""]
    assert ledger.refusal(12) == "The job has begun again 2 times, which is its reset_limit."
    assert "reset_limit" in Ledger(0).refusal(1)


def test_stages_without_a_new_commit_come_to_an_end() -> None:
    ledger = Ledger(None)
    assert [ledger.refusal(commits) for commits in (5, 5, 5, 6, 6, 6)] == [""] * 6
    assert "3 stages in a row were lost without a new commit (the last was number 6)" in ledger.refusal(6)


@pytest.mark.parametrize(
    ("least", "most", "slots", "waited_s", "ranks"),
    [
        (1, 2, Slots(2, 2), 0.0, 2),
        (1, 2, Slots(4, 4), 0.0, 2),
        (1, 2, Slots(1, 1), 0.0, 0),
        (1, 2, Slots(1, 1), 6.0, 1),
        (2, 2, Slots(2, 1), 99.0, 0),
        (2, 4, Slots(3, 3), 6.0, 3),
        (None, None, Slots(3, 3), 6.0, 3),
        (None, None, Slots(0, 0), 99.0, 0),
        (1, 2, Slots(None, None), 0.0, 2),
        (1, 3, Slots(2, None), 6.0, 2),
    ],
)
def test_a_stage_takes_the_slots_that_are_left(
    least: int | None, most: int | None, slots: Slots, waited_s: float, ranks: int
) -> None:
    assert fitting(least, most, slots, waited_s) == ranks


def test_the_numbers_of_ranks_fit_each_other() -> None:
    assert sizes_of(None, None, None) == Sizes(None, None)
    assert sizes_of(4, None, None) == Sizes(4, 4)
    assert sizes_of(4, 2, 8) == Sizes(2, 8)
    for wrong in ((2, 3, None), (4, None, 3), (None, 3, 2)):
        with pytest.raises(farandole.ArgumentError, match="is more than"):
            sizes_of(*wrong)
    with pytest.raises(farandole.ArgumentTypeError, match="min_num_proc must be a whole number"):
        sizes_of(2, "1", None)  # type: ignore[arg-type]
    with pytest.raises(farandole.ArgumentError, match="reset_limit must be at least 0"):
        limit_of(-1)
    with pytest.raises(farandole.ArgumentTypeError, match="reset_limit must be a whole number"):
        limit_of(1.5)  # type: ignore[arg-type]


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    assert folder_of(None) == "" and folder_of(tmp_path) == str(tmp_path)
    for wrong in ("commits", tmp_path / "nothing"):
        with pytest.raises(
            farandole.ArgumentError, match="absolute path of a folder that the driver and all executors"
        ):
            folder_of(wrong)


class _Cluster:
    def __init__(self, *slots: Slots) -> None:
        self._slots = [*slots]

    def setting(self, _name: str) -> str:
        return ""

    def slots(self) -> Slots:
        return self._slots.pop(0) if len(self._slots) > 1 else self._slots[0]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_job, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr("farandole_spark._slots.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("farandole._cluster.driver_log._AGAIN_SECONDS", 0.0)


def test_fewer_slots_than_the_least_are_waited_for(quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = _Cluster(Slots(2, 1), Slots(2, 1), Slots(2, 2))
    assert _elastic._await_ranks(cluster, Sizes(2, 2), float("inf")) == 2  # type: ignore[arg-type]
    assert "farandole: waiting for 2 slots, 1 free" in capsys.readouterr().err
    with pytest.raises(farandole.FarandoleError, match="still waiting for 2 slots, 1 free; free slots, or lower"):
        _elastic._await_ranks(_Cluster(Slots(2, 1)), Sizes(2, 2), 0.0)  # type: ignore[arg-type]


def stages(
    slots: list[Slots], attempt: Callable[..., Any], sizes: Sizes, commit_store: CommitStore, limit: int | None = None
) -> Any:
    return _elastic._stages(_Cluster(*slots), sizes, [60.0, 60.0], Ledger(limit), commit_store, attempt)  # type: ignore[arg-type]


def test_a_lost_stage_is_followed_by_one_with_the_slots_that_are_left(
    quick: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    commit_store = CommitStore(str(tmp_path))
    seen = []

    def attempt(stage: int, ranks: int, _deadline: float) -> list[str]:
        seen.append((stage, ranks))
        if len(seen) == 2:
            return ["done"]
        assert commit_store.folder is not None
        commit_store.folder.prepare()
        commit_store.folder.write(1, 7, [b"state"])
        raise farandole.FarandoleError("rank 1 on h2 was lost.")

    assert stages([Slots(2, 2), Slots(1, 1)], attempt, Sizes(1, 2), commit_store) == ["done"]
    assert seen == [(0, 2), (1, 1)]
    assert "rank 1 on h2 was lost. The job goes on from commit 7 in a new stage." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (farandole.FarandoleError("rank 1 on h2 was lost."), r"rank 1 on h2 was lost\. No commit was saved before"),
        (of_rank(ValueError("no such file")), "^no such file$"),
    ],
)
def test_other_ends_are_the_jobs(quick: None, error: Exception, said: str) -> None:
    def attempt(_stage: int, _ranks: int, _deadline: float) -> list[str]:
        raise error

    with pytest.raises(type(error), match=said):
        stages([Slots(2, 2)], attempt, Sizes(2, 2), CommitStore(""))

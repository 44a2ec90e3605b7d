"""What is said about ranks that begin to train from different parameters."""

import farandole
import pytest
from farandole._start import environment, log, world
from farandole._training.parameter_check import (
    NOT_COMPARED,
    await_broadcast,
    awaits_broadcast,
    checksum,
    compare_parameters,
    warn_about_differences,
)
from farandole.testing import world as world_of

REMEDY = "broadcast_parameters(...)"


@pytest.fixture
def told(monkeypatch):
    """What the rank of this number logs."""

    def of(rank, *args):
        lines = []
        monkeypatch.setattr(world, "rank", lambda: rank)
        monkeypatch.setattr(log.logger, "warning", lines.append)
        warn_about_differences(*args, REMEDY)
        return lines

    return of


@pytest.mark.parametrize(
    ("sums", "named"),
    [
        ({0: [7, 8], 1: [7, 8]}, ""),
        ({0: [7, 8], 1: [7, 9]}, "'b' on rank 1 is not that of rank 0. Call broadcast_parameters(...) before"),
        ({0: [7, 8], 1: [6, 9]}, "'a' on rank 1 is not that of rank 0 (2 parameters differ in all)."),
        ({2: [7, 8], 5: [7, 8], 6: [7, 9], 7: [7, 1]}, "'b' on ranks 6, 7 is not that of rank 2."),
        ({0: [NOT_COMPARED, 8], 1: [1, 8], 2: [2, 8]}, "'a' on rank 2 is not that of rank 1."),
        ({0: [7, NOT_COMPARED], 1: [7, 9]}, ""),
        ({0: [7, 8], 1: [9]}, ""),
        ({rank: [rank + 1, 1] for rank in range(8)}, "'a' on ranks 1, 2, 3, 4, 5 and more is not that of rank 0."),
    ],
)
def test_the_lowest_rank_names_the_first_parameter_that_differs(told, sums, named):
    lines = [line for rank in sums for line in told(rank, ["a", "b"], sums)]
    assert told(min(sums), ["a", "b"], sums) == lines and len(lines) == bool(named)
    assert all(named in line for line in lines)


def test_no_content_is_compared_too():
    assert checksum(memoryview(b"")) != NOT_COMPARED != checksum(memoryview(bytes(1 << 17)))


@pytest.mark.parametrize(("text", "wanted"), [("", True), ("1", True), ("0", False)])
def test_the_setting(monkeypatch, text, wanted):
    monkeypatch.setenv("FARANDOLE_CHECK_PARAMETERS", text)
    assert environment.checks_parameters() == wanted
    monkeypatch.setenv("FARANDOLE_CHECK_PARAMETERS", "yes")
    with pytest.raises(ValueError, match=r"FARANDOLE_CHECK_PARAMETERS='yes' is not understood; allowed: 0 or 1"):
        environment.checks_parameters()


def compared():
    lines = []
    log.logger.warning = lines.append
    for sums in ([3, 4], [3 + world.rank(), -4]):
        compare_parameters("parameters", ["a", "b"], sums, REMEDY)
    del log.logger.warning
    return [line[: line.index(".")] for line in lines]


def test_ranks_exchange_their_sums():
    text = "the ranks start training with different parameters: 'a' on rank 1 is not that of rank 0"
    assert world_of(2).run(compared) == [[text], []]


def followed_by_another_world():
    found = []
    for is_awaited in (True, False, True):
        await_broadcast(is_awaited)
        found.append(awaits_broadcast())
    farandole.shutdown()
    farandole.init()
    return [*found, awaits_broadcast()]


def test_a_broadcast_is_awaited_in_one_world():
    assert world_of(2).run(followed_by_another_world) == [[True, False, True, False]] * 2


def joins():
    before = world.join_count()
    farandole.join()
    return world.join_count() - before


def test_joins_are_counted():
    assert world_of(2).run(joins) == [1, 1]

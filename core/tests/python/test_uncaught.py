"""What an exception that nobody caught prints. Pure, but for the memory that ranks share."""

import os

import farandole
import pytest
from farandole import _uncaught
from farandole._rank_records import RankRecords, make_memory
from farandole._uncaught import Uncaught, translate_errors


def calling(name, function):
    """A function of the module `name` that calls `function`."""
    space = {"__name__": name, "function": function}
    exec(compile("def call():\n    return function()\n", f"{name}.py", "exec"), space)
    return space["call"]


def caught(error, *modules):
    def fail():
        raise error

    call = calling(modules[-1], fail) if modules else fail
    for name in reversed(modules[:-1]):
        call = calling(name, call)
    try:
        call()
    except type(error) as found:
        trace = found.__traceback__
        while trace.tb_frame.f_code.co_name != "call":
            trace = trace.tb_next
        return Uncaught(found, trace)


@pytest.fixture
def in_farandole(monkeypatch):
    """The function that raises, which stands in this file, is Farandole's."""
    monkeypatch.setitem(globals(), "__name__", "farandole.test")


@pytest.mark.parametrize("kind", [farandole.MismatchError, farandole.DeadlineError, farandole.PeerLostError])
@pytest.mark.usefixtures("in_farandole")
def test_our_errors_are_shown_down_to_the_users_line(kind):
    uncaught = caught(kind("the ranks disagree"), "train", "lightning", "farandole.numpy", "contextlib", "farandole.x")
    assert [line.split('"')[1] for line in uncaught.text.splitlines() if "File" in line] == ["train.py", "lightning.py"]
    assert uncaught.text.splitlines()[-1] == f"farandole.{kind.__name__}: the ranks disagree"
    assert uncaught.where == " at lightning.py:2"


@pytest.mark.parametrize("error", [ValueError("no such column"), farandole.FarandoleError("a bug of ours")])
@pytest.mark.usefixtures("in_farandole")
def test_other_errors_are_shown_whole(error):
    text = caught(error, "train", "farandole.numpy").text
    assert '"farandole.numpy.py"' in text and "in fail" in text


@pytest.mark.usefixtures("in_farandole")
def test_a_traceback_without_a_line_of_the_users_is_shown_whole():
    assert "in fail" in caught(farandole.MismatchError("x"), "farandole.numpy").text


def test_one_mistake_is_known_by_its_error_on_all_ranks():
    here = caught(farandole.DeadlineError("allreduce 'x' has waited 3 s on rank 0"), "train")
    there = caught(
        farandole.DeadlineError("broadcast 'y' failed on rank 12: allreduce 'x' has waited 3 s on rank 0"), "x"
    )
    assert (here.mistake, here.reason) == (there.mistake, there.reason)
    others = [caught(ValueError(text), "train") for text in ("a", "a", "b")]
    assert others[0].mistake == others[1].mistake != others[2].mistake


@pytest.mark.usefixtures("in_farandole")
def test_what_a_framework_raises_in_our_place_is_translated(monkeypatch):
    class OfAFramework(Exception):
        pass

    monkeypatch.setattr(_uncaught, "_translations", [])
    translate_errors(lambda error: farandole.MismatchError("ours") if isinstance(error, OfAFramework) else None)
    uncaught = caught(OfAFramework("its own words, then ours"), "train", "farandole.hooks")
    assert uncaught.text.endswith("farandole.MismatchError: ours\n") and "its own words" not in uncaught.text
    assert "hooks" not in uncaught.text
    assert "own words" in caught(RuntimeError("own words"), "train").text


def memory(size):
    descriptor = make_memory(size)
    return descriptor, f"/proc/self/fd/{descriptor}"


def test_the_first_rank_that_asks_tells():
    descriptor, path = memory(3)
    zero, two = RankRecords.open(path, 3), RankRecords.open(path, 3)
    assert two.who_tells(2, ["a", "b"]) == [2, 2]
    assert zero.who_tells(0, ["b", "c"]) == [2, 0]
    assert two.who_tells(2, ["c"]) == [0]
    assert [zero.parting(rank) for rank in range(3)] == [None] * 3
    os.close(descriptor)


def test_where_there_is_no_room_each_rank_tells():
    descriptor, path = memory(2)
    zero, one = RankRecords.open(path, 2), RankRecords.open(path, 2)
    zero.who_tells(0, list(map(str, range(64))))
    assert (zero.who_tells(0, ["more"]), one.who_tells(1, ["more", "63"])) == ([0], [1, 0])
    os.close(descriptor)


def test_of_ranks_that_ask_at_once_one_tells():
    descriptor, path = memory(8)
    start_reader, start = os.pipe()
    answers_reader, answers = os.pipe()
    children = []
    for rank in range(8):
        children.append(os.fork())
        if children[-1] == 0:
            os.close(start)
            os.read(start_reader, 1)
            told = RankRecords.open(path.replace("self", str(os.getppid())), 8).who_tells(rank, ["a"])
            os.write(answers, bytes(told))
            os._exit(0)
    os.close(start)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert len(set(os.read(answers_reader, 100))) == 1
    for each in (descriptor, start_reader, answers_reader, answers):
        os.close(each)

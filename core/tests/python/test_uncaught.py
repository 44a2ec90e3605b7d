"""The output of an exception that nobody caught. Pure, but for the memory that ranks share."""

import os
import sys
from types import SimpleNamespace

import farandole
import pytest
from farandole._runtime import uncaught
from farandole._runtime.uncaught import Uncaught, translate_errors
from farandole._start import ending
from farandole._start.rank_records import RankRecords, make_memory


def calling(name, function, body="    return function()\n"):
    """A function of the module `name` that calls `function`, in line 2 of its file unless `body` says otherwise."""
    space = {"__name__": name, "function": function}
    exec(compile(f"def call():\n{body}", f"{name}.py", "exec"), space)
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


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bad setting"),
        TypeError("no text"),
        farandole.ArgumentError("a bad root"),
        farandole.ArgumentTypeError("no tensor"),
        farandole.NotInitializedError("x"),
    ],
)
@pytest.mark.usefixtures("in_farandole")
def test_a_call_that_we_refuse_on_this_rank_is_shown_down_to_the_users_line(error):
    uncaught = caught(error, "train", "farandole.numpy")
    assert "farandole.numpy" not in uncaught.text and "in fail" not in uncaught.text
    assert uncaught.where == " at train.py:2"
    assert uncaught.mistake == uncaught.text  # another rank may have made another mistake of the same class


@pytest.mark.parametrize(
    "error", [KeyError("a bug of ours"), UnicodeError("a file"), farandole.FarandoleError("a bug of ours")]
)
@pytest.mark.usefixtures("in_farandole")
def test_other_errors_are_shown_whole(error):
    text = caught(error, "train", "farandole.numpy").text
    assert '"farandole.numpy.py"' in text and "in fail" in text


def test_a_type_error_that_no_statement_raises_is_a_bug_of_ours_and_shown_whole():
    add = calling("farandole.numpy", None, "  return None + 1")
    with pytest.raises(TypeError) as found:
        calling("train", add)()
    assert '"farandole.numpy.py"' in Uncaught(found.value, found.value.__traceback__.tb_next).text


@pytest.mark.parametrize("error", [ValueError("no such column"), TypeError("no table")])
def test_what_others_raise_is_shown_whole(error, monkeypatch):
    monkeypatch.setitem(globals(), "__name__", "contextlib")  # no frame of the user's, so that cutting would show
    assert "in fail" in caught(error, "train").text


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

    monkeypatch.setattr(uncaught, "_translations", [])
    translate_errors(lambda error: farandole.MismatchError("ours") if isinstance(error, OfAFramework) else None)
    told = caught(OfAFramework("its own words, then ours"), "train", "farandole.hooks")
    assert told.text.endswith("farandole.MismatchError: ours\n") and "its own words" not in told.text
    assert "hooks" not in told.text
    assert "own words" in caught(RuntimeError("own words"), "train").text


@pytest.fixture
def translates(monkeypatch):
    """Makes `translation` the only one."""

    def use(translation):
        monkeypatch.setattr(uncaught, "_translations", [])
        translate_errors(translation)

    return use


@pytest.mark.parametrize(
    ("kind", "is_whole"),
    [(farandole.FarandoleError, True), (ValueError, False), (farandole.NotInitializedError, False)],
)
@pytest.mark.usefixtures("in_farandole")
def test_the_class_of_a_translated_error_decides_whether_it_is_shown_whole(translates, kind, is_whole):
    translates(lambda error: kind("ours"))
    uncaught = caught(RuntimeError("a framework's words"), "train", "farandole.hooks")
    assert ('"farandole.hooks.py"' in uncaught.text) is is_whole and "ours" in uncaught.text
    assert uncaught.mistake == uncaught.text


def test_a_translated_error_keeps_notes_and_causes(translates):
    def fail():
        try:
            raise KeyError("the context")
        except KeyError:
            error = RuntimeError("a framework's words")
            error.__notes__ = ["a note"]
            raise error from OSError("the cause")

    translates(lambda error: farandole.MismatchError("ours"))
    with pytest.raises(RuntimeError) as found:
        fail()
    uncaught = Uncaught(found.value, None)
    assert "OSError: the cause" in uncaught.text and "KeyError" not in uncaught.text
    assert sys.version_info < (3, 11) or "a note" in uncaught.text
    found.value.__cause__ = None
    found.value.__suppress_context__ = False
    assert "KeyError: 'the context'" in Uncaught(found.value, None).text


BODIES = {  # each calls `function` in line 3, and goes on in line 5
    "finally": "    try:\n        function()\n    finally:\n        pass\n",
    "except": "    try:\n        function()\n    except Exception as error:\n        raise\n",
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.usefixtures("in_farandole")
def test_the_line_that_is_told_is_the_one_that_failed_not_the_one_that_handled_it(body):
    def fail():
        raise farandole.DeadlineError("x")

    with pytest.raises(farandole.DeadlineError) as found:
        calling("train", fail, BODIES[body])()
    assert Uncaught(found.value, found.value.__traceback__.tb_next).where == " at train.py:3"


def memory(size):
    descriptor = make_memory(size)
    return descriptor, f"/proc/self/fd/{descriptor}"


def test_the_first_rank_that_asks_tells():
    descriptor, path = memory(3)
    zero, two = RankRecords.open(path), RankRecords.open(path)
    assert two.who_tells(2, ["a", "b"]) == [2, 2]
    assert zero.who_tells(0, ["b", "c"]) == [2, 0]
    assert two.who_tells(2, ["c"]) == [0]
    assert [zero.parting(rank) for rank in range(3)] == [None] * 3
    os.close(descriptor)


def test_where_there_is_no_room_each_rank_tells():
    descriptor, path = memory(2)
    zero, one = RankRecords.open(path), RankRecords.open(path)
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
            try:
                os.close(start)
                os.read(start_reader, 1)
                told = RankRecords.open(path.replace("self", str(os.getppid()))).who_tells(rank, ["a"])
                os.write(answers, bytes(told))
            finally:
                os._exit(0)  # whatever happens: a second pytest must not go on from here
    os.close(start)
    for child in children:
        os.waitpid(child, 0)
    told = os.read(answers_reader, 100)
    assert (len(told), len(set(told))) == (8, 1)
    for each in (descriptor, start_reader, answers_reader, answers):
        os.close(each)


# ---- The hook


@pytest.fixture
def two(monkeypatch):
    """Two ranks in this process, and `lost`, to which the rank that the core has found lost can be appended."""
    descriptor, path = memory(2)
    lost = []
    monkeypatch.setattr(
        ending, "core", SimpleNamespace(lost_rank=lambda: lost[-1] if lost else None, late_rank=lambda: None)
    )
    ranks = [ending._Teller() for _ in range(2)]
    for rank, teller in enumerate(ranks):
        teller.rank, teller.pid, teller.plain_hook = rank, os.getpid(), sys.__excepthook__
        teller.records = RankRecords.open(path)
    yield SimpleNamespace(ranks=ranks, lost=lost)
    os.close(descriptor)


def culprits(two):
    partings = [two.ranks[0].records.parting(rank) for rank in range(2)]
    return [parting.culprit if parting else "nothing said" for parting in partings]


def test_of_two_ranks_that_raise_alike_only_one_blames_the_other(two, monkeypatch):
    """Rank 1 learns that rank 0 tells of their mistake, and has left before rank 0 goes on."""
    zero, one = two.ranks
    ask = zero.who_tells

    def ask_and_be_overtaken(*things):
        answer = ask(*things)
        one.on_exception(KeyError, KeyError("no such column"), None)
        two.lost.append((1, "rank 1 has left the job"))
        return answer

    monkeypatch.setattr(zero, "who_tells", ask_and_be_overtaken)
    zero.on_exception(KeyError, KeyError("no such column"), None)
    assert culprits(two) == [None, 0]


def test_a_rank_blames_the_one_whose_end_it_had_seen(two, capsys):
    two.lost.append((1, "rank 1 has left the job"))
    two.ranks[0].on_exception(farandole.PeerLostError, farandole.PeerLostError("rank 1 has left the job"), None)
    assert culprits(two) == [1, "nothing said"]
    assert "farandole: rank 0 stops: rank 1 has left the job" in capsys.readouterr().err


def test_an_error_whose_words_cannot_be_had_is_told(two, capsys):
    class Unspeakable(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    two.lost.append((1, "rank 1 has left the job"))
    two.ranks[0].on_exception(Unspeakable, Unspeakable(), None)
    assert culprits(two) == [1, "nothing said"]
    assert "Unspeakable" in capsys.readouterr().err

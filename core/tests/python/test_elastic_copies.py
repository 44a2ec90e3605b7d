"""Commits that are kept outside of the ranks: what a writer gets, and how a job goes on from it."""

import stat

import farandole
import pytest
from farandole import FarandoleError, MismatchError, testing
from farandole._elastic import commit_file, copies, loop
from farandole._elastic.commit_writer import CommitWriter
from farandole.elastic import ObjectState, State, run

pytestmark = pytest.mark.timeout(120)


class Memory:
    """A destination in this process."""

    name = "in memory"

    def __init__(self):
        self.written, self.newest_of = [], {}

    def prepare(self):
        pass

    def write(self, run, commits, pieces):
        self.written.append((run, commits))
        data = commit_file.head(b"", commits, pieces) + b"".join(pieces)
        self.newest_of[run] = commit_file.read(b"", memoryview(data))

    def newest(self, run):
        return self.newest_of.get(run)


@pytest.fixture
def memory():
    """Where commits go."""
    memory = Memory()
    copies.install(CommitWriter(memory))
    return memory


def again():
    """As a new job would begin: no call of elastic.run yet."""
    copies._runs = 0


@pytest.fixture(autouse=True)
def _initialized():
    farandole.init()
    yield
    copies._installed.clear()
    copies._runs = 0
    loop._membership.cache_clear()
    farandole.shutdown()


def test_without_a_folder_nothing_is_copied(monkeypatch):
    monkeypatch.setattr(ObjectState, "_to_copy", None)
    ObjectState(step=0).commit()
    assert not copies.are_kept()


def test_each_commit_is_offered_as_it_was_then(memory):
    state = ObjectState(step=1, losses=[0.5])
    state.commit()
    copies.flush()
    first = memory.newest(0)
    state.step = 2
    state.losses.append(0.25)
    state.commit()
    copies.flush()
    assert memory.written == [(0, 1), (0, 2)]
    other = ObjectState(step=0, losses=None)
    other._from_copy(first.content)
    assert (other.step, other.losses, other._commits) == (1, [0.5], 1)
    other.step = 9
    other.restore()  # it is saved as it came
    assert other.step == 1


def test_a_new_job_goes_on_from_the_copy_and_its_callbacks_are_called(memory):
    def train(state):
        state.step += 7
        state.commit()

    run(train)(ObjectState(step=0, rate=0.4))
    again()
    fresh = ObjectState(step=0, rate=0.1)
    seen = []
    fresh.register_reset_callbacks([lambda: seen.append(fresh.rate), lambda: setattr(fresh, "rate", 0.2)])
    run(lambda state: seen.append((state.step, state.rate, state._commits)))(fresh)
    assert seen == [0.4, (7, 0.2, 1)]


def test_each_run_of_a_program_goes_on_from_its_own_commit(memory):
    def train(state):
        state.step += 1
        state.commit()
        return state.step

    def program():
        return [run(train)(ObjectState(step=first)) for first in (0, 100)]

    assert program() == [1, 101]
    again()
    assert program() == [2, 102]


def test_the_first_job_begins_as_it_is(memory):
    state, called = ObjectState(step=3), []
    state.register_reset_callbacks([lambda: called.append("reset")])
    run(lambda state: called.append(state.step))(state)
    assert called == [3]


def test_a_copy_of_another_state_is_refused():
    content = memoryview(b"".join(ObjectState(step=1)._to_copy()))
    with pytest.raises(
        MismatchError, match=r"which has 'step' of 0 variables, while this rank has 'epoch', 'step' of 0"
    ):
        ObjectState(step=1, epoch=0)._from_copy(content)


def test_a_copy_that_cannot_be_read_is_an_error(memory, monkeypatch):
    def broken(_run):
        raise OSError("Stale file handle")

    monkeypatch.setattr(memory, "newest", broken)
    with pytest.raises(FarandoleError, match=r"commits cannot be saved in memory: Stale file handle"):
        run(lambda state: None)(ObjectState(step=1))


def test_a_setting_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("FARANDOLE_COMMITS", str(tmp_path / "job"))

    def train(state):
        while state.step < 3:
            state.step += 1
            state.commit()
        return state.step

    assert run(train)(ObjectState(step=0)) == 3
    assert stat.S_IMODE((tmp_path / "job").stat().st_mode) == 0o700
    again()
    seen = []
    run(lambda state: seen.append(state.step))(ObjectState(step=0))
    assert seen == [3]


def test_a_folder_that_cannot_be_made_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FARANDOLE_COMMITS", str(tmp_path / "file" / "job"))
    with pytest.raises(FarandoleError, match=r"commits cannot be saved in .*/file/job: .*Not a directory"):
        run(lambda state: None)(ObjectState(step=1))


def test_a_state_of_ones_own_says_that_it_needs_two_more_methods():
    class Own(State):
        def save(self):
            pass

        sync = save

    Own().commit()
    copies.install(CommitWriter(memory := Memory()))
    with pytest.raises(NotImplementedError, match=r"^Own cannot be saved outside .* give it to_copy\(\) and from_copy"):
        run(lambda state: None)(Own())  # before any rank has done something

    class Whole(Own):
        def to_copy(self):
            return [b"mine"]

        def from_copy(self, content):
            self.taken = bytes(content)

    again()
    run(lambda state: state.commit())(Whole())
    again()
    state = Whole()
    run(lambda state: state.commit())(state)
    assert state.taken == b"mine"
    assert memory.written == [(1, 1), (1, 2)]  # later commits of the same job


def test_what_cannot_be_pickled_is_named(memory):
    class Sealed:
        def __deepcopy__(self, memo):
            return self

        def __reduce__(self):
            raise TypeError("sealed")

    with pytest.raises(TypeError, match=r"'it' of the state, a Sealed, cannot be sent"):
        ObjectState(it=Sealed()).commit()


def test_a_newcomer_counts_its_call_as_the_others_do(monkeypatch):
    monkeypatch.setattr(loop.world, "size", lambda: 2)
    monkeypatch.setattr(loop.clock, "allgather", lambda own, name: [True, True, 5, *own])
    assert not loop._are_equal(is_equal=False, has_state=False)
    assert copies.runs() == 5


class Stubborn:
    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("on purpose")


def commit_what_cannot_be_pickled():
    if farandole.rank() == 0:
        copies.install(CommitWriter(Memory()))
    try:
        ObjectState(step=Stubborn()).commit()
    except TypeError as error:
        return str(error)
    finally:
        copies._installed.clear()
    return "nothing"


def test_all_ranks_are_told_of_a_commit_that_cannot_be_kept():
    first, other = testing.world(2).run(commit_what_cannot_be_pickled, timeout=60)
    assert "'step' of the state, a Stubborn, cannot be sent to other ranks (on purpose)" in first
    assert other == f"rank 0 cannot keep this commit outside of the ranks: {first}"

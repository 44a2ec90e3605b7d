"""Commits that are kept outside of the ranks: what a writer gets, and how a job goes on from it."""

import farandole
import pytest
from farandole import FarandoleError, MismatchError
from farandole._elastic import copies, loop
from farandole.elastic import ObjectState, State, run

pytestmark = pytest.mark.timeout(120)


class Memory:
    """A writer of the last copy."""

    def __init__(self, content=None, *, has_earlier=False):
        self.content, self.has_earlier, self.commits = content, has_earlier, []

    def save(self, commits, pieces):
        self.commits.append(commits)
        self.content = memoryview(b"".join(pieces))

    def newest(self):
        return self.content


@pytest.fixture(autouse=True)
def _initialized():
    farandole.init()
    yield
    copies._installed.clear()
    loop._membership.cache_clear()
    farandole.shutdown()


def test_without_a_keeper_nothing_is_copied(monkeypatch):
    monkeypatch.setattr(ObjectState, "_to_copy", None)
    ObjectState(step=0).commit()
    assert not copies.are_kept()


def test_each_commit_is_offered_as_it_was_then():
    writer = Memory()
    copies.install(writer)
    state = ObjectState(step=1, losses=[0.5])
    state.commit()
    first = writer.content
    state.step = 2
    state.losses.append(0.25)
    state.commit()
    assert writer.commits == [1, 2]
    other = ObjectState(step=0, losses=None)
    other._from_copy(first)
    assert (other.step, other.losses, other._commits) == (1, [0.5], 1)
    other.step = 9
    other.restore()  # it is saved as it came
    assert other.step == 1


def test_a_new_job_goes_on_from_the_copy_and_its_callbacks_are_called():
    writer = Memory()
    copies.install(writer)
    state = ObjectState(step=7, rate=0.4)
    state.commit()
    copies.install(Memory(writer.content, has_earlier=True))
    fresh = ObjectState(step=0, rate=0.1)
    seen = []
    fresh.register_reset_callbacks([lambda: seen.append(fresh.rate), lambda: setattr(fresh, "rate", 0.2)])
    run(lambda state: seen.append((state.step, state.rate, state._commits)))(fresh)
    assert seen == [0.4, (7, 0.2, 1)]


def test_the_first_job_begins_as_it_is():
    copies.install(Memory(memoryview(b"nobody reads this")))
    state, called = ObjectState(step=3), []
    state.register_reset_callbacks([lambda: called.append("reset")])
    run(lambda state: called.append(state.step))(state)
    assert called == [3]


def test_a_copy_of_another_state_is_refused():
    content = memoryview(b"".join(ObjectState(step=1)._to_copy()))
    with pytest.raises(MismatchError, match=r"copied with 'step' of 0 variables, and here are 'epoch', 'step' of 0"):
        ObjectState(step=1, epoch=0)._from_copy(content)


def test_a_copy_that_is_gone_or_cannot_be_read_is_told():
    copies.install(Memory(has_earlier=True))
    with pytest.raises(FarandoleError, match="no whole copy of a commit is left"):
        run(lambda state: None)(ObjectState(step=1))

    class Broken(Memory):
        def newest(self):
            raise OSError("Stale file handle")

    copies.install(Broken(has_earlier=True))
    with pytest.raises(FarandoleError, match=r"cannot be read \(Stale file handle\)"):
        run(lambda state: None)(ObjectState(step=1))


def test_a_state_of_ones_own_says_that_it_needs_two_more_methods():
    class Own(State):
        def save(self):
            pass

    Own().commit()
    copies.install(Memory())
    with pytest.raises(NotImplementedError, match=r"^Own cannot be kept outside .* give it to_copy\(\) and from_copy"):
        Own().commit()

    class Whole(Own):
        def to_copy(self):
            return [b"mine"]

        def from_copy(self, content):
            self.taken = bytes(content)

    writer = Memory()
    copies.install(writer)
    state = Whole()
    state.commit()
    writer.has_earlier = True
    assert copies.take_back(state)
    assert state.taken == b"mine"


def test_what_cannot_be_pickled_is_named():
    class Sealed:
        def __deepcopy__(self, memo):
            return self

        def __reduce__(self):
            raise TypeError("sealed")

    copies.install(Memory())
    with pytest.raises(TypeError, match=r"'it' of the state, a Sealed, cannot be sent"):
        ObjectState(it=Sealed()).commit()

"""States of elastic training: what is saved, restored and sent, and what is refused."""

import copy
import pickle
import threading

import farandole
import pytest
from farandole import ArgumentError, ArgumentTypeError, FarandoleError, HostsUpdatedInterrupt
from farandole._elastic import notices
from farandole.elastic import ElasticSampler, ObjectState, State, run
from farandole.testing import world

pytestmark = pytest.mark.timeout(120)


class Alone:
    """In a world of one."""

    @pytest.fixture(autouse=True)
    def _initialized(self):
        farandole.init()
        yield
        farandole.shutdown()


class Counter:
    """Has a state_dict, and stays the object that it is."""

    def __init__(self, count=0):
        self.count, self.loaded = count, 0

    def state_dict(self):
        return {"count": self.count, "more": [1, (2, 3)]}

    def load_state_dict(self, state):
        self.count = state["count"]
        self.loaded += 1


class TestAlone(Alone):
    def test_restore_takes_back_the_last_commit(self):
        counter = Counter(1)
        state = ObjectState(step=1, losses=[1.0], counter=counter, best=None)
        state.commit()
        state.step, counter.count, state.best = 2, 5, "x"
        state.losses.append(2.0)
        state.restore()
        assert (state.step, state.losses, state.best, counter.count) == (1, [1.0], None, 1)
        assert state.counter is counter
        state.losses.append(3.0)  # what was restored is not what was kept
        state.restore()
        assert state.losses == [1.0]
        assert state._commits == 1

    def test_an_attribute_may_become_another_object(self):
        first, second = Counter(1), Counter(2)
        state = ObjectState(it=first)
        state.save()
        state.it = second
        state.restore()
        assert state.it is first
        state.it = second
        state.save()
        second.count = 9
        state.restore()
        assert state.it is second
        assert second.count == 2
        state.it = 3
        state.save()
        state.it = first
        state.restore()
        assert state.it == 3

    def test_a_copy_that_fails_half_way_loses_nothing(self):
        state = ObjectState(a=[1], b=[1])
        state.commit()
        state.a, state.b = [2], threading.Lock()
        with pytest.raises(
            ArgumentTypeError, match=r"^'b' of the state, a lock, cannot be copied \(.*\): leave it out"
        ) as caught:
            state.commit()
        assert caught.value.__cause__ is None and caught.value.__suppress_context__, "the sentence says all"
        assert state._commits == 1
        state.restore()
        assert (state.a, state.b) == ([1], [1])

    def test_restore_without_a_commit_is_an_error(self):
        with pytest.raises(
            FarandoleError, match=r"^this ObjectState was never saved, so there is nothing to go back to"
        ):
            ObjectState(step=0).restore()
        assert not issubclass(FarandoleError, farandole.RecoverableError)

    def test_members_of_the_state_cannot_be_hidden(self):
        with pytest.raises(ArgumentError, match=r"^a state already has a member 'commit'"):
            ObjectState(commit=1)

    def test_a_state_has_no_public_names_but_the_methods_of_horovods(self):
        methods = "check_host_updates commit on_hosts_updated on_reset register_reset_callbacks reset restore save sync"
        assert [name for name in dir(ObjectState(step=0)) if not name.startswith("_")] == sorted(
            [*methods.split(), "step"]
        )

    def test_other_names_are_for_attributes(self):
        class Mine(ObjectState):
            step = 0

        names = ["commits", "to_copy", "from_copy", "names", "handlers", "value", "step", "_step"]
        state = Mine(**dict.fromkeys(names, 1))
        state.commit()
        vars(state).update(dict.fromkeys(names, 2))
        state.restore()
        assert [getattr(state, name) for name in names] == [1] * len(names)
        for name in ("_names", "_commits"):
            with pytest.raises(ArgumentError, match=rf"^a state already has a member '{name}'"):
                ObjectState(**{name: 1})

    def test_a_notice_comes_after_the_copy(self, monkeypatch):
        state = ObjectState(step=0)
        state.commit()
        monkeypatch.setattr(notices._flags, "leaving", True)
        state.step = 1
        with pytest.raises(HostsUpdatedInterrupt):
            state.commit()
        assert state._commits == 2
        state.restore()
        assert state.step == 1

    def test_reset_callbacks_are_called_after_the_reset(self):
        class Mine(State):
            def reset(self):
                called.append("reset")

        called = []
        state = Mine(bcast_object=None, get_rank=None)
        state.register_reset_callbacks([lambda: called.append("first"), lambda: called.append("second")])
        state.on_reset()
        state.on_hosts_updated(1.0, None)
        assert called == ["reset", "first", "second"]

    @pytest.mark.parametrize("name", ["save", "restore", "sync"])
    def test_a_state_of_ones_own_needs_three_methods(self, name):
        with pytest.raises(NotImplementedError, match=rf"State must have a method {name}\(\)"):
            getattr(State(), name)()


# ---- On several ranks


def _synced():
    rank = farandole.rank()
    counter, sampler = Counter(rank), ElasticSampler(range(12), shuffle=False)
    state = ObjectState(step=rank, counter=counter, sampler=sampler, words=["a", rank])
    for _ in range(rank % 2 + 1):  # ranks 1 and 3 have two commits
        state.save()
        state._commits += 1
    sampler.record_batch(0, rank)
    state.sync()
    first = state.step, counter.count, counter.loaded, state.words, state._commits, sampler.processed_num
    state.step, counter.count = -1, -1
    state.restore()
    return first, state.step, counter.count


def test_all_take_the_state_of_the_lowest_rank_with_the_most_commits():
    results = world(4).run(_synced)
    assert [each[0][:2] for each in results] == [(1, 1)] * 4
    assert [each[0][2] for each in results] == [1, 0, 1, 1]  # nothing is loaded on the root
    assert [each[0][3:] for each in results] == [(["a", 1], 2, 4)] * 4
    assert [each[1:] for each in results] == [(1, 1)] * 4


def _of_a_newcomer():
    """Rank 0 has just joined the others, which have not committed yet."""
    state = ObjectState(step=0)
    state.save()
    state._syncs = int(farandole.rank() > 0)
    state.step = 10 * farandole.rank()
    state.sync()
    return state.step, state._commits


def test_a_newcomer_takes_the_state_of_the_others_before_their_first_commit_too():
    assert world(3).run(_of_a_newcomer) == [(10, 0)] * 3


def _joined(given):
    """Three have the same commit, and `given` of them other words; the last one has just joined."""
    words = farandole.rank() if farandole.rank() in given else "x" * 300_000
    state, counter = ObjectState(step=5, words=words, counter=Counter(1)), None
    counter = state.counter
    if farandole.rank() == 3:
        state.step, state.words, counter.count = 0, None, 0
    else:
        state._commits, state._syncs = 4, 1
    state.save()
    state.sync()
    return state.step, state.words if given else len(state.words), counter.count, state._commits, counter.loaded


def test_those_who_have_the_state_take_nothing_when_one_joins():
    assert world(4).run(_joined, ()) == [(5, 300_000, 1, 4, 0)] * 3 + [(5, 300_000, 1, 4, 1)]


def test_what_should_be_equal_and_is_not_comes_from_the_lowest():
    results = world(4).run(_joined, (0, 1))
    assert [each[:4] for each in results] == [(5, 0, 1, 4)] * 4
    assert [each[4] for each in results] == [0, 1, 1, 1]


def _saved_before_the_end():
    """Of a sync at the same commit, only rank 1 has seen the end before a loss, and its copy is steps ahead."""
    state = ObjectState(step=1)
    state.commit()
    if farandole.rank() == 1:
        state.step = 3
        state._syncs += 1
        state.save()
    state.restore()
    state.sync()
    return state.step


def test_a_state_that_was_made_equal_after_the_last_commit_is_the_newer_one():
    assert world(2).run(_saved_before_the_end) == [3, 3]


def _interrupt():
    raise HostsUpdatedInterrupt


def _joined_at_a_commit():
    """Three are interrupted by a commit, and something changes before the fourth has the state."""
    state = ObjectState(step=5, rate=1.0)
    if farandole.rank() < 3:
        notices.check = _interrupt
        with pytest.raises(HostsUpdatedInterrupt):
            state.commit()
        state.rate = 2.0  # as a reset callback does
    else:
        state.save()
    kept = {name: handler._kept for name, handler in state._handlers.items()}
    state.sync()
    has_copied = kept != {name: handler._kept for name, handler in state._handlers.items()}
    live = state.step, state.rate
    state.restore()
    after_restore = state.rate
    state.sync()
    return has_copied, live, after_restore, state.rate


def test_those_that_a_commit_has_interrupted_copy_nothing_when_one_joins():
    results = world(4).run(_joined_at_a_commit)
    assert [each[0] for each in results] == [False] * 3 + [True]
    assert [each[1] for each in results] == [(5, 2.0)] * 4
    assert [each[2] for each in results] == [1.0] * 3 + [2.0]  # the newcomer's copy is the newer one,
    assert [each[3] for each in results] == [2.0] * 4  # and all take it


def _message(make):
    try:
        make().sync()
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def _uneven():
    return _message(lambda: ObjectState(step=0, **({"extra": 1} if farandole.rank() == 1 else {})))


def test_attributes_that_differ_between_ranks_are_told_on_all():
    for message in world(2).run(_uneven):
        assert message.startswith("MismatchError: the ranks' states differ: rank 1 has 'extra', which rank 0 lacks")


def _of_other_kinds():
    return _message(lambda: ObjectState(it=Counter() if farandole.rank() else 1))


def test_attributes_of_other_kinds_are_told_on_all():
    for message in world(2).run(_of_other_kinds):
        assert message.startswith("MismatchError: the ranks' states differ: rank 0 has 'it', which rank 1 lacks")


class Unpicklable:
    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise pickle.PicklingError("no way")


def _not_to_be_pickled():
    return _message(lambda: ObjectState(step=0, it=Unpicklable()))


def test_what_cannot_be_pickled_is_told_on_all():
    for message in world(2).run(_not_to_be_pickled):
        assert message.startswith("ArgumentTypeError: 'it' of the state, a Unpicklable, cannot be sent to other ranks")


def _by_a_function_of_ones_own():
    calls = []

    def send(obj, root_rank=0):
        calls.append(root_rank)
        return farandole.broadcast_object(obj, root_rank)

    state = ObjectState(bcast_object=send, get_rank=farandole.rank, step=farandole.rank())
    state.sync()
    return state.step, calls


def test_the_arguments_of_horovods_state_are_taken():
    assert world(2).run(_by_a_function_of_ones_own) == [(0, [0])] * 2


def test_states_are_not_copied_by_accident():
    state = ObjectState(step=[1])
    assert copy.copy(state).step is state.step


class TestRun(Alone):
    def test_ranks_of_mpi_are_refused(self, monkeypatch):
        monkeypatch.setenv("FARANDOLE_BACKEND", "native,mpi")
        with pytest.raises(ValueError, match="FARANDOLE_BACKEND=native,mpi names mpi, whose ranks cannot change"):
            run(lambda state: None)(ObjectState(step=0))

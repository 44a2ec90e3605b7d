"""Process sets as values, and over several worlds of one process."""

import copy
import os
import pickle
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import farandole
import farandole.numpy as fnp
import numpy as np
import pytest
from farandole import ProcessSet
from farandole.plugin.distributed import add_own_process_set, carried_allreduce, remove_own_process_set
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(120)


def test_a_set_is_its_ranks():
    made = ProcessSet(np.array([3, 1, 3]))
    assert made.ranks == [1, 3]
    assert repr(made) == "ProcessSet([1, 3])"
    for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert again.ranks == [1, 3]
    assert copy.deepcopy(farandole.global_process_set) is farandole.global_process_set
    assert pickle.loads(pickle.dumps(farandole.global_process_set)) is farandole.global_process_set


@pytest.mark.parametrize("call", [lambda: farandole.add_process_set([0]), farandole.get_process_set_ids_and_ranks])
def test_sets_need_a_world(call):
    with pytest.raises(farandole.NotInitializedError, match=r"init\(\)"):
        call()
    assert farandole.global_process_set.ranks == []
    assert farandole.global_process_set.size() is None


def _alone():
    """This process in a world of one, as if it had been started without a launcher."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("FARANDOLE_")}
    farandole.init()
    seen = farandole.size(), farandole.get_process_set_ids_and_ranks()
    errors = []
    for process_set in (ProcessSet([0, 2]), ProcessSet([0])):
        try:
            errors.append(fnp.allreduce(np.ones(1), process_set=process_set).tolist())
        except ValueError as error:
            errors.append(str(error))
    farandole.shutdown()
    os.environ.update(kept)
    return seen, errors


def live_in_several_worlds():
    pair, last = ProcessSet([0, 2]), ProcessSet([2])
    farandole.init(process_sets=[pair])
    farandole.add_process_set(last)
    removed = farandole.add_process_set([1])
    first = farandole.get_process_set_ids_and_ranks()
    assert farandole.remove_process_set(removed)
    farandole.shutdown()
    alone = _alone()
    farandole.init(process_sets=[ProcessSet([0, 1]), ProcessSet([2])])
    second = farandole.get_process_set_ids_and_ranks()
    sums = [fnp.allreduce(np.ones(1), op=fnp.Sum, process_set=s)[0] for s in (pair, last) if s.included()]
    return first, alone, second, sums


def test_sets_outlive_worlds_and_wait_for_one_that_is_large_enough():
    results = spawn(3, live_in_several_worlds, timeout=60)
    for rank, (first, alone, second, sums) in enumerate(results):
        assert first == {0: [0, 1, 2], 1: [0, 2], 2: [2], 3: [1]}
        seen, errors = alone
        assert seen == (1, {0: [0]})
        assert errors == ["ProcessSet([0, 2]) has rank 2, but this world has the ranks 0 to 0 only", [1.0]]
        assert second == {0: [0, 1, 2], 1: [0, 2], 2: [2], 3: [0, 1]}
        assert sums == {0: [2.0], 1: [], 2: [2.0, 1.0]}[rank]


def disagree_at_the_start():
    try:
        farandole.init(process_sets=[[_rank_to_be()]])
    except farandole.MismatchError as error:
        assert not farandole.is_initialized()
        farandole.init()
        return str(error), farandole.get_process_set_ids_and_ranks()
    return None


def _rank_to_be():
    return int(os.environ["FARANDOLE_RANK"])


def test_a_start_with_different_sets_fails_on_all_and_can_be_tried_again():
    for message, sets in spawn(2, disagree_at_the_start, timeout=60):
        assert "rank 0" in message
        assert "(1,)" in message
        assert "test_process_sets.py" in message
        assert sets == {0: [0, 1]}


def one_asks_for_what_cannot_be():
    farandole.init()
    errors = []
    try:
        farandole.add_process_set([0, 9] if farandole.rank() == 1 else [0])
    except ValueError as error:
        errors.append((type(error), str(error)))
    return errors, float(fnp.allreduce(np.ones(1), op=fnp.Sum)[0])


def test_who_goes_on_after_a_refusal_is_in_step_with_the_others():
    for rank, (errors, total) in enumerate(spawn(3, one_asks_for_what_cannot_be, timeout=60)):
        assert total == 3.0
        (kind, message), *others = errors
        assert not others
        assert kind is (farandole.ArgumentError if rank == 1 else farandole.MismatchError)
        assert "a process set cannot have rank 9" in message
        assert rank == 1 or re.search(r"rank 1 \(.*py:\d+\) could not make its call: add_process_set raised", message)


def add_what_one_rank_has_already():
    farandole.init()
    rank = farandole.rank()
    errors = []
    for ranks in ([0] if rank == 0 else [0, 1], [1, 0]):
        try:
            farandole.add_process_set(ranks)
        except ValueError as error:
            errors.append((type(error), str(error)))
    after = farandole.add_process_set([1])
    sums = [fnp.allreduce(np.full(1, rank), op=fnp.Sum, process_set=s)[0] for s in (None, after) if not s or rank]
    return errors, list(farandole.get_process_set_ids_and_ranks().values()), sums


def test_a_set_that_is_there_already_is_refused_on_all_ranks_whatever_the_others_ask_for():
    for rank, (errors, sets, sums) in enumerate(spawn(2, add_what_one_rank_has_already, timeout=60)):
        (kind, message), (plain, already) = errors
        assert kind is farandole.MismatchError
        assert "rank 0" in message and "rank 1" in message
        assert (plain, already) == (farandole.ArgumentError, "process set 0 has the ranks [0, 1] already; use that one")
        assert (sets, sums) == ([[0, 1], [1]], [[1], [1, 1]][rank])


def sums_of_a_set_that_comes_again():
    fnp.init()
    either = farandole.add_process_set([0, 1])
    allreduce = carried_allreduce(fnp._collectives, either, (("blocks", True),), lambda tensors, options: "otherwise")
    blocking = SimpleNamespace(blocks=True)

    def add_up():
        array = np.full(3, fnp.rank() + 1.0)
        assert allreduce([array], blocking) is None
        return array.tolist()

    if fnp.rank() < 2:
        assert add_up() == [3.0] * 3
    assert farandole.remove_process_set(either)
    with pytest.raises(ValueError, match="ProcessSet"):
        add_up()
    farandole.add_process_set([1, 2])
    assert farandole.add_process_set(either) is either
    if fnp.rank() < 2:
        assert add_up() == [3.0] * 3


def test_sums_of_a_plugin_know_the_number_that_a_set_has_now():
    spawn(3, sums_of_a_set_that_comes_again, timeout=60)


def make_groups_without_the_others():
    """Ranks 0 and 2 make their groups in different orders, in threads; rank 3 makes none, and works meanwhile."""
    fnp.init()
    rank = fnp.rank()
    wanted = {0: ["even", "first", "all"], 1: ["first", "all"], 2: ["all", "even"], 3: ["all"]}[rank]
    ranks = {"even": [0, 2], "first": [0, 1], "all": [0, 1, 2, 3]}
    with ThreadPoolExecutor() as threads:
        groups = dict(
            zip(wanted, threads.map(lambda name: add_own_process_set(ranks[name], name), wanted), strict=True)
        )
    sums = {}
    for name in sorted(groups):
        sums[name] = fnp.allreduce(np.full(2, rank + 1.0), op=fnp.Sum, process_set=groups[name]).tolist()
    for name in sorted(groups):
        assert remove_own_process_set(groups[name])
        assert not remove_own_process_set(groups[name])
        with pytest.raises(ValueError, match="not known in this world"):
            fnp.allreduce(np.ones(1), process_set=groups[name])
    return sums, fnp.allreduce(np.ones(1), op=fnp.Sum).tolist()


def test_members_make_and_remove_their_set_without_the_others():
    sums = {"even": [4.0, 4.0], "first": [3.0, 3.0], "all": [10.0, 10.0]}
    for rank, (own, everybody) in enumerate(spawn(4, make_groups_without_the_others, timeout=60)):
        assert own == {name: sums[name] for name in own}
        assert len(own) == [3, 2, 2, 1][rank]
        assert everybody == [4.0]


def disagree_about_a_group():
    fnp.init()
    rank = fnp.rank()
    errors = []
    for ranks in ([0, 1] if rank == 0 else [0, 1, 2], [0, 9] if rank == 0 else [0, 1]):
        if rank in ranks or 9 in ranks:
            try:
                add_own_process_set(ranks, "pair")
            except ValueError as error:
                errors.append((type(error), str(error)))
    return errors, fnp.allreduce(np.ones(1), op=fnp.Sum).tolist()


def test_members_that_give_different_ranks_are_told_so_and_go_on():
    results = spawn(3, disagree_about_a_group, timeout=60)
    for rank, (errors, total) in enumerate(results):
        assert total == [3.0]
        kind, message = errors[0]
        assert kind is farandole.MismatchError
        assert re.search(r"add_process_set 'process set pair': the ranks disagree about its ranks", message)
        assert "has (0, 1)" in message and "has (0, 1, 2)" in message
        assert len(errors) == (1 if rank == 2 else 2)
    assert "cannot have rank 9" in results[0][0][1][1]
    assert "rank 0" in results[1][0][1][1] and "could not make its call" in results[1][0][1][1]


class Interruption(BaseException):
    """Stands for KeyboardInterrupt."""


def interrupted_in(call, *args):
    def interrupt(*_):
        raise Interruption

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(Interruption):
        call(*args)


def make_groups_with_interruptions():
    """Rank 0 is interrupted while it waits for rank 1: many times for a set that it gives up, and then for one more."""
    fnp.init()
    before = None
    for attempt in range(70):  # a rank can be in 63
        if fnp.rank() == 0:
            interrupted_in(add_own_process_set, [0, 1], f"given up {attempt}")
        fnp.barrier()
        if fnp.rank() == 1:
            group = add_own_process_set([0, 1], f"given up {attempt}")
            assert before is None or remove_own_process_set(before)
            before = group
    if fnp.rank() == 0:
        interrupted_in(add_own_process_set, [0, 1], "again")
    fnp.barrier()
    group = add_own_process_set([0, 1], "again")
    assert before is None or remove_own_process_set(before)
    return fnp.allreduce(np.ones(1), op=fnp.Sum, process_set=group).tolist()


def test_a_set_whose_addition_was_interrupted_is_given_up_or_taken_later():
    assert spawn(2, make_groups_with_interruptions, timeout=100) == [[2.0]] * 2


def make_many_groups():
    fnp.init()
    if fnp.rank() == 0:
        for _ in range(1500):
            assert remove_own_process_set(add_own_process_set([0]))
    return fnp.allreduce(np.ones(1), op=fnp.Sum).tolist()


def test_groups_that_come_and_go_do_not_use_anything_up():
    assert spawn(2, make_many_groups, timeout=100) == [[2.0]] * 2

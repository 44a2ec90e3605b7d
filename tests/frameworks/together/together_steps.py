"""The steps of each rank. Each function takes the two frameworks, in one order or the other."""

from __future__ import annotations

import random
import time
from contextlib import suppress

import farandole
from pair import make, module, read, start, start_one, sums, total


def live_twice(first: str, second: str) -> list[bool]:
    """Joined by one, left by the other, and all that the other way round."""
    one, other = module(first), module(second)
    farandole.shutdown()
    told = []
    for join, leave in ((one, other), (other, one)):
        join.init()
        told.append(one.is_initialized() and other.is_initialized())
        told.append((one.rank(), one.size(), one.local_rank()) == (other.rank(), other.size(), other.local_rank()))
        told += [total(each, [one.rank(), 7.0]) == sums(7.0) for each in (first, second)]
        leave.shutdown()
        told.append(not one.is_initialized() and not other.is_initialized())
    farandole.init()
    return told


def share_a_set(first: str, second: str) -> list[bool]:
    """Added by one, used by both, removed by the other."""
    one, other = module(first), module(second)
    some = one.add_process_set([0, 2])
    told = [isinstance(some, other.ProcessSet), other.get_process_set_ids_and_ranks()[some.process_set_id] == [0, 2]]
    if some.included():
        told += [total(each, [farandole.rank()], process_set=some) == [2.0] for each in (first, second)]
    other.remove_process_set(some)
    with suppress(ValueError):
        total(first, [1.0], process_set=some)
        told.append(False)
    return told


def interleave(first: str, second: str) -> bool:
    """Many of both in flight, in another order on every rank; nobody reads a result before all have begun."""
    dice = random.Random(farandole.rank())
    parts = [(framework, part) for framework in (first, second) for part in range(3)]
    dice.shuffle(parts)
    pending = []
    for framework, part in parts:
        values = {f"{framework}.{part}.{k}": [farandole.rank(), 100 * part + k] for k in range(15)}
        pending.append((part, start(framework, values)))
        time.sleep(dice.random() * 0.005)
    dice.shuffle(pending)
    return all(finish() == [sums(100 * part + k) for k in range(15)] for part, finish in pending)


def be_one_job(first: str, second: str) -> list[float]:
    """Some ranks by one, the others by the other."""
    return total((first, second)[farandole.rank() % 2], [farandole.rank(), 5.0], name="metric")


def take_turns(first: str, second: str) -> bool:
    """Calls without a name are paired by the program's order over both."""
    right = True
    for k in range(40):
        time.sleep(random.Random(farandole.rank() * 1000 + k).random() * 0.002)
        results = [(each, module(each).allreduce(make(each, [k, i]), op=farandole.Sum))
                   for i, each in enumerate((first, second, first))]  # fmt: skip
        right &= all(read(result) == [k * 3, i * 3] for i, (_, result) in enumerate(results))
    return right


def take_one_name(first: str, second: str) -> str:
    """Rank 0's error for a name that `first` has in flight already, in a sum to which the others have not come yet."""
    text = ""
    finish = start_one(first, [farandole.rank(), 1.0], "loss") if farandole.rank() == 0 else None
    if finish:
        time.sleep(0.3)  # MXNet and TensorFlow begin it by threads of theirs
        try:
            total(second, [0.0, 1.0], name="loss")
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
    farandole.broadcast_object(None, 0, name="go on")
    finish = finish or start_one(first, [farandole.rank(), 1.0], "loss")
    assert finish() == sums(1.0)
    assert total(second, [farandole.rank(), 2.0], name="loss") == sums(2.0)
    return text

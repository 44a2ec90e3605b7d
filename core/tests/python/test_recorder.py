"""The calls that a framework's recorder gets, so that its tensors remember where they came from."""

import farandole.numpy as fnp
import numpy as np
import pytest
from farandole.plugin import Collectives, Kind
from farandole.testing import world

pytestmark = pytest.mark.timeout(120)

NEW = {
    "allreduce": lambda c, x: c.allreduce(x, op=fnp.Sum),
    "allreduce_async": lambda c, x: c.allreduce_async(x, op=fnp.Sum).wait(),
    "grouped_allreduce": lambda c, x: c.grouped_allreduce([np.zeros(1), x])[1],
    "grouped_allreduce_async": lambda c, x: c.grouped_allreduce_async([x, x]).wait()[0],
    "broadcast": lambda c, x: c.broadcast(x, 0),
    "broadcast_async": lambda c, x: c.broadcast_async(x, 0).wait(),
    "allgather": lambda c, x: c.allgather(x),
    "allgather_async": lambda c, x: c.allgather_async(x).wait(),
    "grouped_allgather": lambda c, x: c.grouped_allgather([x])[0],
    "alltoall": lambda c, x: c.alltoall(x),
    "alltoall_with_splits": lambda c, x: c.alltoall(x, [1, 3])[0],
    "reducescatter": lambda c, x: c.reducescatter(x),
    "grouped_reducescatter": lambda c, x: c.grouped_reducescatter([x])[0],
}
IN_PLACE = {
    "allreduce_": lambda c, x: c.allreduce_(x),
    "allreduce_async_": lambda c, x: c.allreduce_async_(x).wait(),
    "grouped_allreduce_": lambda c, x: c.grouped_allreduce_([x])[0],
    "broadcast_": lambda c, x: c.broadcast_(x, 0),
    "broadcast_async_": lambda c, x: c.broadcast_async_(x, 0).wait(),
}


class Tenfold:
    """Wants what begins with a 7, and gives it ten times."""

    def __init__(self):
        self.told = []

    def wants(self, source):
        return source[0] == 7

    def record(self, kind, sources, parameters, splits):
        def remember(results):
            self.told.append((kind, len(sources), parameters[0], list(splits), len(results)))
            return [10 * each for each in results]

        return remember


def ask():
    recorder = Tenfold()
    recording, plain = Collectives(fnp._collectives.adapter, recorder), fnp._collectives
    rank = float(fnp.rank())
    for strided in (False, True):
        wanted = np.array([7, rank, 2, 3.0]) if not strided else np.array([[7, rank, 2, 3.0]] * 2).T[:, 0]
        other = wanted + 1
        for name, call in NEW.items():
            told = len(recorder.told)
            assert call(recording, wanted).tolist() == (10 * call(plain, wanted)).tolist(), name
            assert len(recorder.told) == told + 1, name
            assert call(recording, other).tolist() == call(plain, other).tolist(), name
            assert len(recorder.told) == told + 1, name
        for name, call in IN_PLACE.items():
            assert call(recording, wanted.copy()).tolist() == call(plain, wanted.copy()).tolist(), name
    del recorder.told[:]
    handle = recording.alltoall_async(wanted, [1, 3], name="rows")
    assert recorder.told == []
    received = handle.wait()[1]
    handle.wait()
    assert recorder.told == [(Kind.ALLTOALL, 1, "rows", [1, 3], 2)]
    recording.alltoall(wanted)
    assert recorder.told[1:] == [(Kind.ALLTOALL, 1, "", [], 2)]
    return (received // 10).tolist()


def test_new_tensors_of_what_it_wants_are_recorded_and_nothing_else_is():
    assert world(2).run(ask, timeout=60) == [[1, 1], [3, 3]]

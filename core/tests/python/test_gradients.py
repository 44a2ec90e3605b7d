"""When gradients are submitted; over collectives that only note what they are asked."""

import threading
import time

import numpy as np
import pytest
from farandole import MismatchError, ProcessSet, Sum
from farandole.numpy import Compression, _ArrayAdapter
from farandole.plugin import GradientReducer


class Noted:
    """Collectives that add 1 when waited for."""

    def __init__(self, failing=()):
        self.adapter, self.Compression = _ArrayAdapter(), Compression
        self.calls, self.failing = [], failing

    def allreduce_async_(self, tensor, average, name, op, prescale, postscale, process_set):
        self.calls.append((name, op, prescale, postscale, process_set))
        return Pending(lambda: self._finish(name, [tensor])[0])

    def grouped_allreduce_async_(self, tensors, average, name, op, prescale, postscale, process_set):
        self.calls.append((name, len(tensors)))
        return Pending(lambda: self._finish(name, list(tensors)))

    def _finish(self, name, tensors):
        if name in self.failing:
            raise MismatchError(name)
        for tensor in tensors:
            tensor += 1
        return tensors

    @property
    def names(self):
        return [call[0] for call in self.calls]


class Pending:
    def __init__(self, finish):
        self.wait = finish

    def map(self, function):
        return Pending(lambda: function(self.wait()))


@pytest.fixture
def gradients():
    return [np.full(2, float(i), np.float32) for i in range(4)]


def test_each_gradient_goes_as_soon_as_it_is_ready(gradients):
    noted = Noted()
    reducer = GradientReducer(noted, list("abcd"))
    reducer.ready(2, gradients[2])
    assert noted.names == ["gradient.c"]
    assert reducer.submitted_bytes == 8
    assert reducer.in_flight
    reducer.finish(range(4), gradients.__getitem__)
    assert noted.names == ["gradient.c", "gradient.a", "gradient.b", "gradient.d"]
    assert [g[0] for g in gradients] == [1, 2, 3, 4]
    assert not reducer.in_flight


def test_gradients_wait_for_all_passes(gradients):
    noted = Noted()
    reducer = GradientReducer(noted, ["a"], passes=3)
    for expected in ([], [], ["gradient.a"]):
        assert reducer.ready(0, gradients[0]) == bool(expected)
        assert noted.names == expected
    with pytest.raises(ValueError, match=r"'a' was computed again.*backward_passes_per_step is 3"):
        reducer.ready(0, gradients[0])
    reducer.finish([0], gradients.__getitem__)
    reducer.ready(0, gradients[0])
    assert noted.names == ["gradient.a"]


def test_a_group_goes_when_its_last_member_is_ready(gradients):
    noted = Noted()
    reducer = GradientReducer(noted, list("abcd"), groups=[[0, 3], [1]])
    for index in (3, 1, 2):
        reducer.ready(index, gradients[index])
    assert noted.calls[0][0] == "gradient.b"
    assert noted.names == ["gradient.b", "gradient.c"]
    reducer.ready(0, gradients[0])
    assert noted.calls[-1] == ("gradients.a", 2)
    reducer.finish(range(4), gradients.__getitem__)
    assert [g[0] for g in gradients] == [1, 2, 3, 4]


def test_a_group_of_which_a_member_is_frozen_goes_at_the_end(gradients):
    noted = Noted()
    reducer = GradientReducer(noted, list("abcd"), groups=[[0, 1, 2, 3]])
    reducer.ready(0, gradients[0])
    assert reducer.in_flight
    reducer.finish([0, 2], gradients.__getitem__)
    assert noted.calls == [("gradients.a", 2)]
    assert [g[0] for g in gradients] == [1, 1, 3, 3]


def test_compressed_gradients_come_back_as_they_were(gradients):
    reducer = GradientReducer(Noted(), list("abcd"), compression=Compression.fp16)
    reducer.ready(1, gradients[1])
    assert reducer.submitted_bytes == 4
    reducer.finish([1], gradients.__getitem__)
    assert gradients[1].dtype == np.float32
    assert gradients[1][0] == 2


def test_the_first_error_is_raised_after_all_are_complete(gradients):
    reducer = GradientReducer(Noted(failing=["gradient.a", "gradient.b"]), list("abcd"))
    with pytest.raises(MismatchError, match=r"gradient\.a"):
        reducer.finish(range(4), gradients.__getitem__)
    assert gradients[3][0] == 4
    assert not reducer.in_flight


def test_groups_after_one_that_failed_are_waited_for(gradients):
    reducer = GradientReducer(Noted(failing=["gradients.a"]), list("abcd"), groups=[[0, 1], [2, 3]])
    with pytest.raises(MismatchError, match=r"gradients\.a"):
        reducer.finish(range(4), gradients.__getitem__)
    assert [gradient[0] for gradient in gradients] == [0, 1, 3, 4]
    assert not reducer.in_flight


def test_what_cannot_be_written_back_is_told_after_all_others_are(gradients):
    class OneBroken:
        def compress(self, tensor):
            return tensor + 0, tensor[0]

        def decompress(self, tensor, first):
            if first == 0:
                raise ValueError("cannot decompress")
            return tensor

    for groups in ([], [[0, 1], [2, 3]]):
        reducer = GradientReducer(Noted(), list("abcd"), compression=OneBroken(), groups=groups)
        last = gradients[3][0]
        with pytest.raises(ValueError, match="cannot decompress"):
            reducer.finish(range(4), gradients.__getitem__)
        assert (gradients[0][0], gradients[3][0]) == (0, last + 1)
        assert not reducer.in_flight


def test_predivision_the_reduction_and_the_set_are_handed_on(gradients):
    noted = Noted()
    GradientReducer(noted, ["a"], predivide_factor=2.0).ready(0, gradients[0])
    GradientReducer(noted, ["b"], op=Sum).ready(0, gradients[0])
    GradientReducer(noted, ["c"], process_set=ProcessSet([0])).ready(0, gradients[0])
    assert noted.calls[0][2:] == (0.5, 2.0, None)
    assert noted.calls[1][1] is Sum
    assert noted.calls[2][4].ranks == [0]


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (["a", "b", "a"], {}, "unique.*a"),
        (["a", "b"], {"groups": [[0], [0, 1]]}, "more than one group"),
        (["a"], {"passes": 0}, "backward_passes_per_step=0"),
        (["a"], {"predivide_factor": 2.0, "op": Sum}, "needs op=Average"),
    ],
)
def test_nonsense_is_refused(names, options, words):
    with pytest.raises(ValueError, match=words):
        GradientReducer(Noted(), names, **options)


def test_gradients_can_be_added_between_steps(gradients):
    noted = Noted()
    reducer = GradientReducer(noted, ["a", "b"], groups=[[0, 1]])
    reducer.ready(0, gradients[0])
    with pytest.raises(ValueError, match="before adding parameters"):
        reducer.add(["c"])
    reducer.finish([0, 1], gradients.__getitem__)
    with pytest.raises(ValueError, match=r"unique.*b"):
        reducer.add(["c", "b"])
    reducer.add(["c", "d"])
    reducer.ready(3, gradients[3])
    reducer.finish(range(4), gradients.__getitem__)
    assert noted.names == ["gradients.a", "gradient.d", "gradients.a", "gradient.c"]


def test_an_interrupted_wait_can_be_taken_up_again(gradients):
    class Interrupted(Noted):
        def _finish(self, name, tensors):
            if self.failing:
                self.failing.pop()
                raise KeyboardInterrupt
            return super()._finish(name, tensors)

    noted = Interrupted(failing=["once"])
    reducer = GradientReducer(noted, list("ab"))
    reducer.ready(1, gradients[1])
    with pytest.raises(KeyboardInterrupt):
        reducer.finish([0, 1], gradients.__getitem__)
    assert reducer.in_flight
    reducer.finish([0, 1], gradients.__getitem__)
    assert noted.names == ["gradient.b", "gradient.a"] and not reducer.in_flight
    assert [gradients[0][0], gradients[1][0]] == [1, 2]


def test_what_cannot_be_submitted_is_told_after_all_others_are_complete(gradients):
    class Refusing(Noted):
        def allreduce_async_(self, tensor, average, name, *how):
            if name == "gradient.b":
                raise ValueError("complex")
            return super().allreduce_async_(tensor, average, name, *how)

    reducer = GradientReducer(Refusing(), list("abc"))
    reducer.ready(2, gradients[2])
    for _ in range(2):
        with pytest.raises(ValueError, match="complex"):
            reducer.finish(range(3), gradients.__getitem__)
        assert not reducer.in_flight
    assert [gradient[0] for gradient in gradients] == [2, 1, 4, 3]  # all but b, twice


def test_sparse_gradients_go_another_way_even_out_of_a_group(gradients):
    noted, sent = Noted(), []

    class WithSparse(GradientReducer):
        is_sparse = staticmethod(lambda gradient: gradient is gradients[1])

        def start_sparse(self, index, gradient, name):
            sent.append(name)
            return Pending(lambda: gradient), 100

    reducer = WithSparse(noted, list("abc"), groups=[[0, 1, 2]])
    for index in range(3):
        reducer.ready(index, gradients[index])
    assert (sent, noted.calls, reducer.submitted_bytes) == (["gradient.b"], [("gradients.a", 2)], 116)
    reducer.finish(range(3), gradients.__getitem__)
    assert [gradient[0] for gradient in gradients[:3]] == [1, 1, 3]


def test_what_is_held_goes_at_the_end_without_what_was_withdrawn(gradients):
    noted = Noted()
    reducer = GradientReducer(noted, list("abcd"), groups=[[0, 1]])
    reducer.hold()
    for index in (0, 1, 3):
        reducer.ready(index, gradients[index])
    with pytest.raises(ValueError, match="'d' was computed again"):
        reducer.ready(3, gradients[3])
    assert (noted.names, reducer.in_flight, reducer.holds) == ([], True, True)
    assert reducer.operation_of(1) == ("gradients.a", [0, 1])
    assert reducer.operation_of(3) == ("gradient.d", [3])
    reducer.withdraw([2, 3])
    reducer.finish([0, 1, 2], gradients.__getitem__)
    assert noted.names == ["gradient.c", "gradients.a"]
    reducer.ready(3, gradients[3])
    assert noted.names[2:] == ["gradient.d"]


class TakesTime(dict):
    """In which another thread goes on."""

    def __getitem__(self, key):
        time.sleep(0.002)
        return super().__getitem__(key)


def test_threads_may_report_gradients_at_once():
    """As autograd's, of which there is one per device: the last two members of a group come at the same moment."""
    pairs = 20
    names = [f"p{i}" for i in range(2 * pairs)]
    values = [np.zeros(2, np.float32) for _ in names]
    groups = [[2 * i, 2 * i + 1] for i in range(pairs)]
    noted, meet, errors = Noted(), threading.Barrier(2), []
    reducer = GradientReducer(noted, names, groups=groups)
    reducer.is_sparse = lambda _: time.sleep(0.002)
    reducer._group_of = TakesTime(reducer._group_of)

    def report(first):
        try:
            for i in range(first, 2 * pairs, 2):
                meet.wait(30)
                reducer.ready(i, values[i])
        except Exception as error:
            errors.append(error)
            meet.abort()

    threads = [threading.Thread(target=report, args=[first]) for first in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(noted.names) == sorted(f"gradients.p{2 * i}" for i in range(pairs))
    assert reducer.submitted_bytes == 2 * pairs * 8

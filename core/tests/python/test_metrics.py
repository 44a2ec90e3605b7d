"""average_metrics: one number per name for all ranks."""

import math

import farandole.numpy as hvd
import numpy as np
import pytest
from farandole.testing import world

pytestmark = pytest.mark.timeout(60)


def rejected(metrics, weight=1.0):
    """The error that this rank gets; the job goes on."""
    with pytest.raises(hvd.FarandoleError) as caught:
        hvd.average_metrics(metrics, weight=weight)
    assert hvd.average_metrics({"then": hvd.rank()}) == {"then": (hvd.size() - 1) / 2}
    return caught.type, str(caught.value)


@pytest.mark.parametrize("ranks", [1, 3])
def test_averages_are_equal_on_all_ranks_and_keep_the_ranks_own_order(ranks):
    def averages():
        names = ["loss", "accuracy"][:: 1 if hvd.rank() % 2 else -1]
        values = {"loss": 0.1 * hvd.rank(), "accuracy": np.float32(hvd.rank())}
        found = hvd.average_metrics({name: values[name] for name in names})
        assert list(found) == names
        return found["loss"], found["accuracy"]

    results = world(ranks).run(averages)
    assert set(results) == {(sum(0.1 * rank for rank in range(ranks)) / ranks, (ranks - 1) / 2)}


def test_every_kind_of_number_is_taken_and_becomes_a_float():
    kinds = {"int": 2, "bool": True, "array": np.full((1, 1), 4.0), "scalar": np.int64(5), "nan": math.nan}
    found = world(2).run(lambda: hvd.average_metrics(kinds))[1]
    assert math.isnan(found.pop("nan"))
    assert found == {"int": 2.0, "bool": 1.0, "array": 4.0, "scalar": 5.0}
    assert all(type(value) is float for value in found.values())


def test_a_number_alone_is_averaged():
    assert world(2).run(lambda: hvd.average_metrics(hvd.rank() * 3)) == [1.5, 1.5]


def test_weights_count_samples_and_a_rank_without_any_does_not_count():
    def weighted():
        return hvd.average_metrics({"loss": [2.0, 6.0, math.nan][hvd.rank()]}, weight=[3, 1, 0][hvd.rank()])

    assert world(3).run(weighted) == [{"loss": 3.0}] * 3


def test_a_process_set_averages_among_its_ranks():
    def among_two():
        two = hvd.add_process_set([0, 2])
        found = hvd.average_metrics(hvd.rank(), process_set=two) if two.included() else None
        hvd.remove_process_set(two)
        return found

    assert world(3).run(among_two) == [1.0, None, 1.0]


def test_other_names_are_an_error_on_all_ranks():
    first, second = world(2).run(lambda: rejected({"loss": 1.0} if hvd.rank() else {"loss": 1.0, "accuracy": 1.0}))
    assert first == second == (hvd.MismatchError, first[1])
    assert "rank 0 has accuracy, loss, and rank 1 has loss; give all ranks the same names" in first[1]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.ones(3), "'loss' is a ndarray of shape (3,): reduce tensors of several elements with allreduce"),
        ("0.5", "'loss' is a str"),
        (1j, "'loss' is a complex"),
    ],
    ids=str,
)
def test_a_value_that_is_no_number_is_an_error_on_all_ranks(bad, words):
    first, second = world(2).run(lambda: rejected({"loss": bad if hvd.rank() else 1.0}))
    assert second[0] is hvd.ArgumentTypeError and words in second[1]
    assert first[0] is hvd.MismatchError and f"rank 1 has no metrics to average: {second[1]}" == first[1]


def test_a_weight_below_zero_is_refused_and_so_are_weights_that_are_all_zero():
    first, second = world(2).run(lambda: rejected(1.0, weight=-hvd.rank()))
    assert second[0] is hvd.ArgumentError and "a weight from 0 on" in second[1] and first[0] is hvd.MismatchError
    assert [kind for kind, _ in world(2).run(lambda: rejected(1.0, weight=0))] == [hvd.MismatchError] * 2

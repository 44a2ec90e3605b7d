"""A call that only some ranks can make fails on all of them, and the next calls match."""

import farandole_torch as hvd
import pytest
import refusals
import torch
from farandole.testing import world

pytestmark = pytest.mark.timeout(120)


def perform_what_is_drawn(calls):
    first = hvd.add_process_set([0])
    program = refusals.drawn(seed=4, calls=calls, ranks=2)
    wrong = refusals.perform(hvd, torch.full, program, {(0,): first, (0, 1): None})
    assert hvd.remove_process_set(first)
    return wrong


def test_random_programs_match_a_model_of_one_process():
    for wrong in world(2).run(perform_what_is_drawn, 200):
        assert not wrong, "\n".join(wrong[:5])


def sparse_on_one_rank():
    sparse = torch.sparse_coo_tensor([[hvd.rank()]], [1.0], (3,))
    error = None
    try:
        hvd.sparse_allreduce_async(sparse.to_dense() if hvd.rank() else sparse, op=hvd.Sum)()
    except ValueError as raised:
        error = raised
    total = hvd.sparse_allreduce_async(sparse, op=hvd.Sum)().to_dense().tolist()
    return type(error), str(error), total


def test_a_dense_tensor_for_a_sparse_one_fails_on_both_ranks():
    first, second = world(2).run(sparse_on_one_rank)
    assert (first[0], second[0]) == (hvd.MismatchError, hvd.ArgumentError)
    assert "rank 1 (" in first[1] and "sparse_allreduce_async raised ArgumentError" in first[1]
    assert first[2] == second[2] == [1.0, 1.0, 0.0]

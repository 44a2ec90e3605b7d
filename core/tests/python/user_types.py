"""A user's program with what only `farandole.numpy` has. Read by type checkers, see type_checks.py; never run."""

import farandole.numpy as hvd
from farandole.numpy import Array
from typing_extensions import assert_type


def sparse(indices: Array, values: Array) -> None:
    assert_type(hvd.sparse_allreduce((indices, values)), tuple[Array, Array])
    assert_type(hvd.sparse_allreduce_async((indices, values), hvd.Sum), hvd.Handle[tuple[Array, Array]])
    assert_type(hvd.join(), int)
    assert_type(hvd.Compression.fp16.compress(values)[0], Array)
    mean = hvd.persistent_allreduce(values, "values", op=hvd.Sum)
    assert_type((mean(), mean.tensor, mean.start().wait()), tuple[Array, Array, Array])

import farandole_mxnet
import mxnet as mx
import numpy as np
import pytest
from farandole.testing import conformance, world

ASYNCHRONOUS = {  # MXNet's engine is asynchronous by itself: no operation returns a handle
    "persistent_allreduce",  # each call would read memory that the engine has yet to write
    *("allgather_async", "allreduce_async", "allreduce_async_", "alltoall_async", "broadcast_async"),
    *("broadcast_async_", "grouped_allgather_async", "grouped_allreduce_async", "grouped_allreduce_async_"),
    *("grouped_reducescatter_async", "reducescatter_async", "sparse_allreduce", "sparse_allreduce_async"),
}


def make(values, shape, dtype):
    mx.util.set_np_shape(True)  # else MXNet has neither scalars nor arrays without elements
    return mx.nd.array(np.array(values, dtype).reshape(shape), dtype=dtype)


@pytest.fixture(scope="module", autouse=True)
def _worlds_of_their_own():
    """The switches that `make` sets stay on, so the processes must not be used by other tests."""
    yield
    for ranks in conformance.RANKS:
        world(ranks).close()


def settle():  # errors are raised where somebody waits
    mx.nd.waitall()


SUBJECT = conformance.Subject(
    module=farandole_mxnet,
    make=make,
    values=lambda tensor: tensor.asnumpy().flatten().tolist(),
    unsupported=lambda: mx.nd.sparse.zeros("row_sparse", (2, 2)),
    settle=settle,
    dtypes=("uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bool"),
    absent=frozenset(ASYNCHRONOUS),
)
test_conformance = conformance.tests(SUBJECT)

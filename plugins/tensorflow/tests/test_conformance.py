import farandole_tensorflow
import tensorflow as tf
from farandole.testing import conformance

ELSEWHERE = {  # tensors cannot be changed in place, and graphs are asynchronous by themselves: no handles
    "persistent_allreduce",
    *("allgather_async", "allreduce_", "allreduce_async", "allreduce_async_", "alltoall_async", "broadcast_async"),
    *("broadcast_async_", "grouped_allgather_async", "grouped_allreduce_", "grouped_allreduce_async"),
    *("grouped_allreduce_async_", "grouped_reducescatter_async", "reducescatter_async", "sparse_allreduce"),
    *("sparse_allreduce_async", "broadcast_parameters"),
}


WIDE = {"float": "float64", "uint": "uint64", "complex": "complex128"}


def make(values, shape, dtype):
    wide = next((kind for mark, kind in WIDE.items() if mark in dtype), "int64")
    return tf.reshape(tf.cast(tf.constant(values, wide), dtype), shape)


DTYPES = (
    *("uint8", "int8", "uint16", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "bool"),
    *("uint32", "uint64", "complex64", "complex128"),
)
SUBJECT = conformance.Subject(
    module=farandole_tensorflow,
    make=make,
    values=lambda tensor: tf.reshape(tensor, [-1]).numpy().tolist(),
    unsupported=lambda: tf.fill([3], "text"),
    dtypes=DTYPES,
    absent=frozenset(ELSEWHERE),
)
test_conformance = conformance.tests(SUBJECT)

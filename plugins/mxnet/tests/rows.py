"""The common part of the tests of Horovod's API; the ranks can import this."""

import inspect
from functools import wraps

import farandole_mxnet as hvd
import mxnet as mx
import pytest


def finished(function):
    """A row as the ranks perform it: nothing is left for the next one."""

    @wraps(function)
    def perform():
        function()
        mx.nd.waitall()
        hvd.barrier()

    return perform


def array(values, dtype="float32"):
    return mx.nd.array(values, dtype=dtype)


def numbers(tensor):
    return tensor.asnumpy().tolist()


def parameters(function):
    return [
        name if each.default is inspect.Parameter.empty else (name, each.default)
        for name, each in inspect.signature(function).parameters.items()
    ]


def raises(kind, call, *words):
    """Fail unless `call`, or waiting for it, raises `kind` with all `words`, and the job goes on."""
    with pytest.raises(kind) as caught:
        call()
        mx.nd.waitall()
    for word in words:
        assert str(word) in str(caught.value), str(caught.value)
    assert numbers(hvd.allreduce(array([1.0]), op=hvd.Sum)) == [hvd.size()], "the job does not go on"

"""The two frameworks that are here, and what a rank does with both."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

import farandole
import numpy as np

FRAMEWORKS = [name for name in ("torch", "mxnet", "tensorflow") if importlib.util.find_spec(f"farandole_{name}")]
RANKS = 3

_R = TypeVar("_R")
Finish = Callable[[], list[list[float]]]


@cache
def module(framework: str) -> ModuleType:
    """The plugin. All are imported in the order of the list, since MXNet cannot be loaded after TensorFlow."""
    for name in FRAMEWORKS:
        importlib.import_module(f"farandole_{name}")
    return importlib.import_module(f"farandole_{framework}")


def make(framework: str, values: Sequence[float]) -> Any:
    """The framework's vector of float64."""
    array = np.array(values, np.float64)
    if framework == "torch":
        import torch

        return torch.from_numpy(array)
    if framework == "mxnet":
        import mxnet

        return mxnet.nd.array(array, dtype="float64")
    import tensorflow

    return tensorflow.constant(array)


def read(tensor: Any) -> list[float]:
    return (tensor.asnumpy() if hasattr(tensor, "asnumpy") else tensor.numpy()).tolist()


def total(framework: str, values: Sequence[float], **words: Any) -> list[float]:
    hvd = module(framework)
    return read(hvd.allreduce(make(framework, values), op=hvd.Sum, **words))


def start_one(framework: str, values: Sequence[float], name: str) -> Callable[[], list[float]]:
    """Begin a sum outside of graphs, and return at once; what is returned waits for it."""
    if framework == "tensorflow":
        return _in_a_thread(lambda: total(framework, values, name=name))
    finish = start(framework, {name: values})
    return lambda: finish()[0]


def start(framework: str, vectors: dict[str, Sequence[float]]) -> Finish:
    """Begin a sum of each vector under its name, and return at once; what is returned waits for the sums."""
    hvd = module(framework)
    tensors = {name: make(framework, values) for name, values in vectors.items()}
    if framework == "torch":
        handles = [hvd.allreduce_async(tensor, name=name, op=hvd.Sum) for name, tensor in tensors.items()]
        return lambda: [read(hvd.synchronize(handle)) for handle in handles]
    if framework == "mxnet":
        results = [hvd.allreduce(tensor, name=name, op=hvd.Sum) for name, tensor in tensors.items()]
        return lambda: [read(result) for result in results]
    return _in_a_thread(lambda: [read(each) for each in _graph(tensors)])


def _graph(tensors: dict[str, Any]) -> list[Any]:
    """All sums as nodes of one graph, none of which waits for another."""
    import tensorflow

    hvd = module("tensorflow")
    return tensorflow.function(lambda: [hvd.allreduce(each, name=name, op=hvd.Sum) for name, each in tensors.items()])()


def _in_a_thread(action: Callable[[], _R]) -> Callable[[], _R]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(action)
    pool.shutdown(wait=False)
    return future.result


def sums(value: float) -> list[float]:
    """Over the ranks, where each gives [its rank, value]."""
    return [sum(range(farandole.size())), value * farandole.size()]

"""The frameworks as this suite sees them. Which one is here is found by its plugin; numpy always is."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import farandole.numpy as fnp
import numpy as np
from calls import Call, calls

FRAMEWORKS = [name for name in ("torch", "mxnet", "tensorflow") if importlib.util.find_spec(f"farandole_{name}")]
WAYS = {  # what to call them -> how the names of the functions end
    "numpy": {"": ""},
    "torch": {"new tensors": "", "handles": "_async", "in place": "_", "handles, in place": "_async_"},
    "mxnet": {"new arrays": "", "in place": "_"},
    "tensorflow": {"eagerly": "", "in a function": ""},
}
LACKING = {"mxnet": ("uint16", "int16", "uint32", "uint64", "bfloat16")}  # element types
_SENT = {"fp16": "float16", "bf16": "bfloat16"}

Perform = Callable[[list[Any]], list[list[Any]]]


@dataclass(frozen=True)
class Face:
    name: str
    module: ModuleType  # with the names that Horovod's users know
    make: Callable[[np.ndarray], Any]  # a tensor with these bits
    read: Callable[[Any], np.ndarray]  # its bits; bfloat16 may come as uint16
    trainers: dict[str, Callable[..., list[Any]]] = field(default_factory=dict)  # see test_training
    within: dict[str, Callable[[Perform, list[Any]], list[list[Any]]]] = field(default_factory=dict)  # for some ways


NUMPY = Face("numpy", fnp, lambda array: array, np.asarray)


@cache
def face(framework: str) -> Face:
    return importlib.import_module(f"face_of_{framework}").FACE


@cache
def reference(dtype: str) -> dict[Call, list[np.ndarray]]:
    """The results of numpy's API on this rank for all its calls. Collective."""
    mine = [call for call in calls(dtype) if fnp.rank() in call.members]
    return dict(zip(mine, performed(NUMPY, "", mine), strict=True))


def offers(face: Face, way: str, call: Call) -> bool:
    form, sent = WAYS[face.name][way], _SENT.get(call.compression, call.dtype)
    offered = hasattr(face.module, call.operation + form) and not (form and call.compression)
    return offered and sent not in LACKING.get(face.name, ())


def performed(face: Face, way: str, mine: list[Call]) -> list[list[np.ndarray]]:
    """Make the calls in that way, all before the first result is read; the results of each."""

    def perform(tensors: list[Any]) -> list[list[Any]]:
        results = [_start(face, way, call, each) for call, each in zip(mine, tensors, strict=True)]
        return [_listed(face, each) for each in results]

    made = [[face.make(call.data(tensor, fnp.rank())) for tensor in range(len(call.shapes))] for call in mine]
    results = face.within[way](perform, made) if way in face.within else perform(made)
    return [[face.read(each) for each in tensors] for tensors in results]


def _start(face: Face, way: str, call: Call, tensors: list[Any]) -> Any:
    words: dict[str, Any] = {"name": f"{face.name}.{way}.{call.dtype}.{call.number}"}
    if len(call.members) < fnp.size():
        words["process_set"] = fnp.ProcessSet(call.members)
    if call.reduces:
        words |= {"op": getattr(face.module, call.op), "prescale_factor": call.prescale}
        words |= {"postscale_factor": call.postscale}
    if call.compression:
        words["compression"] = getattr(face.module.Compression, call.compression)
    if call.operation == "broadcast":
        words["root_rank"] = call.root
    if call.operation == "alltoall":
        words["splits"] = call.splits(fnp.rank())
    function = getattr(face.module, call.operation + WAYS[face.name][way])
    return function(tensors if call.operation.startswith("grouped") else tensors[0], **words)


def _listed(face: Face, result: Any) -> list[Any]:
    if isinstance(result, face.module.Handle):
        result = face.module.synchronize(result)
    return list(result) if isinstance(result, list | tuple) else [result]


def join() -> None:
    """Have the process sets that calls name."""
    for members in ((0, 2), (1,)):
        if fnp.ProcessSet(members).process_set_id is None:
            fnp.add_process_set(members)

"""The native part, which makes collectives operations of MXNet's engine; see csrc/call.h."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mxnet as mx
from farandole import ArgumentTypeError, is_initialized
from farandole.plugin import Kind, Parameters
from farandole.plugin.native import api_address, call_site, check_types, takes_device_memory

from farandole_mxnet._errors import error_of
from farandole_mxnet._private import library_path, version

NDArray = Any  # mxnet.nd.NDArray; MXNet is not read by the type checker

_ON_DEVICE, _INVALID, _NOT_INITIALIZED = -1, 1, 5
_IS_NAIVE = mx.util.getenv("MXNET_ENGINE_TYPE") == "NaiveEngine"  # an operation runs, and fails, in the push
_SLICE_MS = 100  # between two looks for Ctrl-C


def _check_version() -> None:
    if not 10901 <= version() < 20000:
        raise ImportError(
            f"farandole-mxnet works with MXNet 1.9.1, and this is {mx.__version__}, whose engine is called otherwise: "
            "python -m pip install mxnet==1.9.1"
        )


def _opened() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(__file__).with_name("libfarandole_mxnet.so")))
    pointers = ctypes.POINTER(ctypes.c_void_p)
    integer, number, text = ctypes.c_int32, ctypes.c_double, ctypes.c_char_p
    library.farandole_mxnet_push.argtypes = [
        *(integer, integer, pointers, pointers, text, integer, integer, number, number, integer, text),
        *(integer, integer, integer),
    ]
    library.farandole_mxnet_text.restype = ctypes.c_char_p
    library.farandole_mxnet_await_begun.argtypes = [ctypes.c_int64]
    library.farandole_mxnet_await_ended.argtypes = [ctypes.c_int64]
    library.farandole_mxnet_open.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    if library.farandole_mxnet_open(library_path().encode(), api_address()):
        raise ImportError(library.farandole_mxnet_text().decode())
    return library


def _make_room_for_errors() -> None:
    """Let MXNet's list of errors have its memory before anything fails: it grows without a lock (csrc/errors.h).

    Waits for what MXNet's engine has to do, and raises what failed there before and nobody has read.
    """
    mx.nd.waitall()
    scratch = mx.nd.empty((1,))
    if _library.farandole_mxnet_make_room_for_errors(scratch.handle):
        raise ImportError(_library.farandole_mxnet_text().decode())
    with contextlib.suppress(mx.base.MXNetError):
        mx.nd.waitall()


_check_version()
_library = _opened()
_make_room_for_errors()


def push(
    kind: Kind,
    sources: Sequence[NDArray],
    targets: Sequence[NDArray],
    parameters: Parameters,
    priority: int,
    is_gradient: bool = False,
) -> bool:
    """Begin a collective that reads `sources` and writes `targets`, the same arrays for one in place. Never waits.

    Arrays that are all on one GPU go to the core as they lie, where the world has a backend for that and the results
    are not the core's to allocate. False, and nothing is begun, for others on a GPU. Raises for misuse that can be seen
    at once; everything else is raised by MXNet when somebody waits for a target.
    """
    name, reduce, root, prescale, postscale, process_set = parameters
    inputs, outputs = _handles(sources), _handles(targets)
    if not is_initialized():
        raise error_of(_NOT_INITIALIZED, "farandole is not initialized; call init() first")
    try:
        code = _library.farandole_mxnet_push(
            *(kind, len(inputs), inputs, outputs, name.encode(), reduce, root, prescale, postscale, process_set),
            *(call_site().encode(), priority, is_gradient, takes_device_memory()),
        )
    except (AttributeError, ctypes.ArgumentError):
        check_types(parameters)
        if not hasattr(priority, "__index__"):
            raise ArgumentTypeError(f"priority must be a whole number, not {priority!r}") from None
        raise
    if code and code != _ON_DEVICE:
        error = error_of(code, _text())
        error.others_know = code != _INVALID or _IS_NAIVE  # type: ignore[attr-defined]  # else nothing has begun
        raise error
    return bool(code == 0)


def raise_failure() -> None:
    """Raise what ended the training, if anything has: MXNet raises an error once, but later steps must not go on."""
    code = _library.farandole_mxnet_failure()
    if code:
        raise error_of(code, _text())


def await_begun() -> None:
    """Return once everything that was pushed has been begun: what is begun next comes after it on every rank."""
    while not _library.farandole_mxnet_await_begun(_SLICE_MS):
        pass


def end(limit_s: float) -> str | None:
    """Give what was pushed some time to end, then let nothing begin that has not; forget failures.

    Returns why gradients were lost, if any were.
    """
    until = time.monotonic() + limit_s
    while not _library.farandole_mxnet_await_ended(_SLICE_MS) and time.monotonic() < until:
        pass
    lost = bool(_library.farandole_mxnet_lost_gradient() and _library.farandole_mxnet_failure())
    reason = _text() if lost else None
    _library.farandole_mxnet_close()
    return reason


def _handles(arrays: Sequence[NDArray]) -> Any:
    try:
        return (ctypes.c_void_p * len(arrays))(*[array.handle.value for array in arrays])
    except AttributeError:
        wrong = next(array for array in arrays if not isinstance(array, mx.nd.NDArray))
        raise ArgumentTypeError(f"expected an mxnet NDArray, not {type(wrong).__name__}") from None


def _text() -> str:
    return str(_library.farandole_mxnet_text().decode())

"""The native part: the collectives as operations of TensorFlow; see csrc/operations.h."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import tensorflow as tf
from farandole.plugin.native import api_address, environment_default, may_take_device_memory

_DEVICE = "FARANDOLE_TENSORFLOW_DEVICE"
OLDEST = (2, 13)  # kernels that end later can be written since


def _check_version() -> None:
    version = tf.version.VERSION
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(
            f"farandole-tensorflow works with TensorFlow {oldest} and later, and this is {version}: "
            f"python -m pip install 'tensorflow>={oldest}'"
        )


def _loaded(path: str) -> Any:
    """The operations. The library reads the variable meanwhile: what TensorFlow is to hand over as it lies on a device.

    Users may have set it; else that is GPUs' tensors, where the settings list a backend that takes them there.
    """
    with environment_default(_DEVICE, "GPU" if may_take_device_memory() else ""):
        return tf.load_op_library(path)


def _opened() -> tuple[Any, ctypes.CDLL]:
    path = str(Path(__file__).with_name("libfarandole_tensorflow.so"))
    operations = _loaded(path)  # first: TensorFlow must see what is registered while it is loaded
    library = ctypes.CDLL(path)
    library.farandole_tensorflow_problem.restype = ctypes.c_char_p
    library.farandole_tensorflow_use_xla.restype = ctypes.c_char_p
    library.farandole_tensorflow_open.argtypes = [ctypes.c_void_p]
    if problem := library.farandole_tensorflow_problem().decode():
        raise ImportError(f"farandole-tensorflow cannot be used (TensorFlow {tf.version.VERSION}): {problem}")
    if not library.farandole_tensorflow_open(api_address()):
        raise ImportError("farandole and farandole-tensorflow do not fit; install the same version of both")
    return operations, library


_check_version()
operations, _library = _opened()


def is_asynchronous() -> bool:
    """Return whether operations leave TensorFlow's threads while they wait for the other ranks.

    They do not where TensorFlow was built with another C++ library than its wheels for Linux are.
    """
    return bool(_library.farandole_tensorflow_is_asynchronous())


def call_from_xla() -> str:
    """Make our operations known to XLA; "" or why that cannot be."""
    return str(_library.farandole_tensorflow_use_xla().decode())


def block() -> None:
    """From now on they do not; for tests."""
    _library.farandole_tensorflow_block()

"""Farandole for Keras, on the framework that Keras uses; the counterpart of horovod.keras.

    import farandole.keras as hvd

The module has the names of `farandole_torch.keras` if Keras runs on PyTorch, and those of
`farandole_tensorflow.keras` if Keras runs on TensorFlow. KERAS_BACKEND selects the framework when Keras is first
imported.

This is the only module of the core that imports Keras and a plugin. No other module of the core imports it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

_BACKENDS = ("torch", "tensorflow")  # the Keras backends that have a plugin
_REMEDY = "set the environment variable KERAS_BACKEND=torch or KERAS_BACKEND=tensorflow before the program starts"


def _backend() -> str:
    """Return the framework that Keras runs on. Raises ImportError with the remedy if Keras cannot be imported."""
    try:
        keras = import_module("keras")
    except ImportError as error:  # also of the framework that Keras would use
        remedy = (
            "python -m pip install 'keras>=3'" if error.name == "keras" else f"install what Keras runs on, or {_REMEDY}"
        )
        raise ImportError(f"farandole.keras cannot import Keras ({error}): {remedy}") from error
    return str(keras.backend.backend())


def _plugin(backend: str) -> Any:
    """Return the module for Keras on this framework. Raises ImportError with the remedy if there is none."""
    if backend not in _BACKENDS:
        raise ImportError(f"farandole.keras is for Keras on PyTorch or TensorFlow, and Keras uses {backend}: {_REMEDY}")
    package = f"farandole_{backend}"
    try:
        return import_module(f"{package}.keras")
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ImportError(
            f"farandole.keras needs {package}, since Keras uses {backend}: python -m pip install farandole-{backend}"
        ) from error


_module = _plugin(_backend())
sys.modules[f"{__name__}.callbacks"] = _module.callbacks  # import farandole.keras.callbacks
sys.modules[f"{__name__}.elastic"] = _module.elastic


def __getattr__(name: str) -> Any:  # also of __all__
    return getattr(_module, name)


def __dir__() -> list[str]:
    return dir(_module)

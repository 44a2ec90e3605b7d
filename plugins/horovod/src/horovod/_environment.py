"""The installed packages and the variables HOROVOD_*. No other file here reads the environment."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from typing import TypeVar

from farandole.launch.horovod import COUNTERPARTS

F = TypeVar("F", bound=Callable[..., object])
_NEVER_WARN = "31536000"  # seconds: a year
_LEVELS = {"trace": "debug", "fatal": "error"}  # where the names differ
_FALSE = {"", "0", "false"}
_NUMBERS = {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_START_TIMEOUT", "HOROVOD_GLOO_TIMEOUT_SECONDS"}
_NUMBERS |= {"HOROVOD_ELASTIC_TIMEOUT"}
_NUMBERS |= {"HOROVOD_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"}


def check_alone() -> None:
    """Raise ImportError if Horovod itself is installed, too: both put their files into one folder."""
    try:
        theirs = metadata.version("horovod")
    except metadata.PackageNotFoundError:
        return
    if not theirs.endswith("+farandole"):
        raise ImportError(
            f"Horovod {theirs} and farandole-horovod are both installed and have mixed their files: python -m pip "
            "uninstall -y horovod farandole-horovod, then python -m pip install farandole-horovod",
            name="horovod",
        )


def check_data_service() -> None:
    """Raise RuntimeError if FARANDOLE_REQUIRE_KEY asks for keys, which TensorFlow's servers do not know."""
    if os.environ.get("FARANDOLE_REQUIRE_KEY", "0") not in ("", "0"):
        raise RuntimeError(
            "FARANDOLE_REQUIRE_KEY is set, and TensorFlow's data service cannot check keys: it admits the hosts of "
            "processes that have proved one. Unset the variable where every user of these hosts is trusted"
        )


@contextmanager
def needing(distribution: str) -> Iterator[None]:
    """Imports a plugin. Raises ImportError, which says how to install it, where it is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != distribution.replace("-", "_"):
            raise
        module = distribution.replace("farandole-", "horovod.")
        message = f"{module} needs {distribution}: python -m pip install {distribution}"
        raise ImportError(message, name=error.name) from error


def translated(environment: Mapping[str, str]) -> dict[str, str]:
    """Horovod's settings, as Farandole's; without those of which Farandole's own is set.

    Raises:
        ValueError: one that must be a number is none.
    """
    found: dict[str, str] = {}
    for name, variable in COUNTERPARTS.items():
        text = environment.get(name, "").strip()
        value = _value(name, text) if text else ""
        if value and variable not in environment:
            found.setdefault(variable, value)
    return found


def _value(name: str, text: str) -> str:
    """A value of Horovod's setting as one of Farandole's; "" where Farandole needs none."""
    if name == "HOROVOD_STALL_CHECK_DISABLE":
        return "" if text.lower() in _FALSE else _NEVER_WARN
    if name == "HOROVOD_LOG_LEVEL":
        return _LEVELS.get(text.lower(), text.lower())
    if name == "HOROVOD_TIMELINE":
        if text.upper() == "DYNAMIC":  # start_timeline works without a setting
            return ""
        return text if "://" in text else os.path.abspath(text)
    if name == "HOROVOD_TIMELINE_MARK_CYCLES":
        return "0" if text.lower() in _FALSE else "1"
    if name in _NUMBERS:
        try:
            float(text)
        except ValueError:
            raise ValueError(f"{name}={text} must be a number") from None
    return text


def translate_settings() -> None:
    """Sets Farandole's variables in this process by Horovod's."""
    os.environ.update(translated(os.environ))


def variables_with(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's variables with these settings of Horovod's and what all of them mean here."""
    variables = {**os.environ, **settings}
    return {**variables, **translated(settings), **translated(variables)}


def obey(settings: Mapping[str, str]) -> None:
    """Sets these settings of Horovod's and what they mean here, for the processes that this one starts."""
    os.environ.update(variables_with(settings))


def reading_settings(init: F) -> F:
    """`init` of a plugin, which then obeys HOROVOD_FUSION_THRESHOLD and its like, too."""

    @functools.wraps(init)
    def reading(*args: object, **kwargs: object) -> object:
        translate_settings()
        return init(*args, **kwargs)

    return reading  # type: ignore[return-value]


@contextmanager
def with_variables(**variables: str | None) -> Iterator[None]:
    """Sets these variables within the context; those that are None stay as they are."""
    earlier = {name: os.environ.get(name) for name, value in variables.items() if value is not None}
    os.environ.update({name: value for name, value in variables.items() if value is not None})
    try:
        yield
    finally:
        for name, value in earlier.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

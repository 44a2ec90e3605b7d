"""The file of horovodrun's --config-file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from horovod.runner._options import OPTIONS

_KEYS = {option.config: option for option in OPTIONS if option.config}
_OWN_KEYS = {"controller", "stall_check.enabled"}  # whose values decide which option they are


class FileError(ValueError):
    """The file cannot be used; the message is one sentence for the user."""


def _text_of(path: str, option: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{option} {path} cannot be read: {error}") from error


def options(path: str) -> dict[str, Any]:
    """A file of --config-file -> the options that it stands for, as `parse_args` has them."""
    import yaml

    try:
        contents = yaml.safe_load(_text_of(path, "--config-file"))
    except yaml.YAMLError as error:
        raise FileError(f"--config-file {path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(contents, dict):
        raise FileError(f"--config-file {path} must have keys such as params: and timeline:")
    found: dict[str, Any] = {}
    for key, value in _flat(contents):
        found |= _option(path, key, value)
    return found


def _flat(contents: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in contents.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", each) for inner, each in value.items())
        else:
            yield str(key), value


def _option(path: str, key: str, value: Any) -> dict[str, Any]:
    if key == "controller":
        if value not in ("gloo", "mpi"):
            raise FileError(f"--config-file {path} has controller: {value}; write gloo or mpi")
        return {str(value): True}
    if key == "stall_check.enabled":
        return {} if value else {"no_stall_check": True}
    option = _KEYS.get(key)
    if option is None:
        known = ", ".join(sorted({*_KEYS, *_OWN_KEYS}))
        raise FileError(f"--config-file {path} has {key}, which is no key of Horovod's: {known}")
    if value is None or (not option.metavar and not value):
        return {}
    try:
        return {option.key: option.check(str(value)) if option.metavar else True}
    except ValueError as error:
        raise FileError(f"--config-file {path}: {key} {error}") from None

"""Reads files that users write for the launcher, as text and as YAML; each failure is one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from farandole.launch.spec import SpecError

T = TypeVar("T")


def read_text(path: Path, where: str, kind: str, most_bytes: int) -> str:
    """Return the text of a file. Raises SpecError.

    Args:
        path: of the file.
        where: what messages begin with: `--config-file run.toml`.
        kind: of the file, for the message about one that has more than `most_bytes`: a device, or a wrong file.
        most_bytes: a larger file is an error.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise SpecError(f"{where} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(content) > most_bytes:
        size = f"{most_bytes >> 20} MiB" if most_bytes >> 20 else f"{most_bytes >> 10} KiB"
        raise SpecError(f"{where} is no {kind}: it has more than {size}.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{where}, line {line}: it must be UTF-8.") from error


def parse_yaml(where: str, parse: Callable[[Any], T], otherwise: str = "") -> T:
    """Return `parse(yaml)`, with PyYAML's module. Raises SpecError if that fails or PyYAML is missing.

    Args:
        where: what messages begin with.
        parse: must not run what the file asks for: yaml.safe_load, or yaml.compose with yaml.SafeLoader.
        otherwise: what else the user may do without PyYAML.
    """
    try:
        import yaml
    except ImportError as error:
        install = f"{sys.executable} -m pip install pyyaml"
        raise SpecError(f"{where} is YAML, which needs PyYAML: {install}{otherwise}.") from error
    try:
        return parse(yaml)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SpecError(f"{where}{line}: it is not YAML: {error.problem}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2024-99-99
        raise SpecError(f"{where} is not YAML: {str(error) or 'it is nested too deeply'}.") from error

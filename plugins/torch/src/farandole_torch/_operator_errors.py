"""Our exceptions for what operators of torch.ops.farandole raise: kernels can only raise a RuntimeError."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from farandole import FarandoleError
from farandole.plugin.native import ERROR_TYPES, translate_errors

_natives: list[ctypes.CDLL] = []  # one, once the operators are there


@contextmanager
def as_ours() -> Iterator[None]:
    """Raise our own exception, such as MismatchError, in place of the RuntimeError of an operator within the block.

    Example:
        >>> with operators.as_ours():
        ...     torch.ops.farandole.all_reduce_(torch.ones(2), hvd.Max, operators.group_id())
    """
    try:
        yield
    except RuntimeError as error:
        ours = _ours(error)
        if ours is None:
            raise
        raise ours from None


def use(native: ctypes.CDLL) -> None:
    """Ask this library for the codes of errors."""
    _natives.append(native)
    translate_errors(_ours)


def _ours(error: BaseException) -> FarandoleError | None:
    """Our exception, with the core's sentence alone, if `error` is a RuntimeError that an operator has raised."""
    if not _natives or not isinstance(error, RuntimeError) or isinstance(error, FarandoleError):
        return None
    code = _natives[0].farandole_torch_code_of(str(error).encode())
    return ERROR_TYPES.get(code, FarandoleError)(_natives[0].farandole_torch_text().decode()) if code else None

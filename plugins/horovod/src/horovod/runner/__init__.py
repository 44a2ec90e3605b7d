"""The command horovodrun, and the function `run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horovod._later import not_implemented


def run(func: Callable[..., Any], args: Any = (), kwargs: Any = None, num_proc: int = 1, **options: Any) -> list[Any]:
    """Not there yet: runs `func` as the ranks of a job.

    Raises:
        NotImplementedError: always, with the way that there is.
    """
    raise not_implemented("horovod.run")

"""A warning where the ranks begin to train from different parameters of Gluon."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from farandole import ProcessSet
from farandole.plugin import is_alone
from farandole.plugin.parameter_check import NOT_COMPARED, checks_parameters, checksum, compare_parameters, world_number

_REMEDY = "broadcast_parameters(net.collect_params(), root_rank=0)"

# By the parameters' names, since load_states, perhaps on one rank only, puts another optimizer in an optimizer's place.
_compared: set[tuple[int, str, tuple[str, ...]]] = set()


def compare_before_first_step(
    subject: Any, parameters: Iterable[Any], process_set: ProcessSet | None, prefix: str = ""
) -> None:
    """Compare them with those of the other ranks, once in each world. Collective then, and blocks.

    subject: the optimizer or trainer, which keeps in `_farandole_compared` in which world that was.
    """
    number = world_number()
    if subject._farandole_compared == number:
        return
    subject._farandole_compared = number
    trained = [each for each in parameters if each.grad_req != "null"]
    names = tuple(each.name for each in trained)
    key = number, repr(process_set), names
    if key in _compared or is_alone(process_set):
        return
    _compared.add(key)
    wanted = checks_parameters()
    sums = [_checksum(each) if wanted else NOT_COMPARED for each in trained]
    compare_parameters(f"parameters.compared.{prefix}", names, sums, _REMEDY, process_set)


def _checksum(parameter: Any) -> int:
    try:
        values = parameter.data().asnumpy()
    except RuntimeError:  # no forward pass has used it yet, or its values are in sparse rows
        return NOT_COMPARED
    return checksum(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

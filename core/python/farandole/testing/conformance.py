"""The suite that every plugin must pass, as tests for pytest. A plugin's tests/test_conformance.py is this:

import torch
import farandole_torch
from farandole.testing import conformance

SUBJECT = conformance.Subject(
    module=farandole_torch,
    make=lambda values, shape, dtype: torch.tensor(values, dtype=getattr(torch, dtype)).reshape(shape),
    values=lambda tensor: tensor.flatten().tolist(),
)
test_conformance = conformance.tests(SUBJECT)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType

from farandole.testing import (
    _checks_of_gathering,
    _checks_of_misuse,
    _checks_of_reducing,
    _checks_of_scattering,
    _checks_of_sets,
)
from farandole.testing._face import ALL_DTYPES, Face, Subject
from farandole.testing._world import by_value, world

__all__ = ["ALL_DTYPES", "RANKS", "Subject", "checks", "perform", "tests"]

RANKS = (1, 2, 3, 4)


Check = Callable[[Face], None]


def checks(subject: Subject) -> list[Check]:
    """The checks that apply: all functions of these modules whose names the plugin offers."""
    modules = (_checks_of_reducing, _checks_of_gathering, _checks_of_scattering, _checks_of_sets, _checks_of_misuse)
    found = [each for module in modules for each in vars(module).values() if isinstance(each, FunctionType)]
    own = [each for each in found if "_checks_of_" in each.__module__ and not each.__name__.startswith("_")]
    return [check for check in own if not getattr(check, "needs", frozenset()) & subject.absent]


def tests(subject: Subject, ranks: Sequence[int] = RANKS, timeout: float = 120.0) -> Callable[..., None]:
    """A pytest function, parametrized by world size and check; assign it to a name that begins with test_."""
    import pytest

    functions = subject.make, subject.values, subject.shape, subject.strided, subject.unsupported, subject.settle
    cases = [(size, check) for size in ranks for check in checks(subject)]

    @pytest.mark.parametrize(("size", "check"), cases, ids=[f"{check.__name__}-{size}" for size, check in cases])
    def test(size: int, check: Check) -> None:
        with by_value(*functions):
            world(size).run(perform, check.__module__, check.__name__, subject, timeout=timeout)

    return test


def perform(module: str, name: str, subject: Subject) -> None:
    """Run one check on this rank."""
    import importlib

    check: Check = getattr(importlib.import_module(module), name)
    if not subject.module.is_initialized():
        subject.module.init()
    check(Face(subject))

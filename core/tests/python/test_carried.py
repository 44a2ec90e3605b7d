"""The allreduce of a library that Farandole carries: which calls the core performs, and which it hands on."""

import ctypes
from types import SimpleNamespace

import farandole.numpy as fnp
import numpy as np
import pytest
from farandole._api import earlier
from farandole._runtime.native import core
from farandole.plugin.distributed import carried_allreduce
from farandole.testing import spawn

WANTED = (("blocks", True), ("op", "SUM"))
BLOCKING_SUM = SimpleNamespace(blocks=True, op="SUM")


def otherwise(*given, **named):
    return given, named


class _Refuses:
    def __eq__(self, other):
        raise RuntimeError("not to be compared")

    __hash__ = None

    @property
    def blocks(self):
        raise RuntimeError("not to be asked")


def calls():
    fnp.init()
    factor, allreduce = float(fnp.size()), carried_allreduce(fnp._collectives, None, WANTED, otherwise)
    array = np.arange(3.0)
    for turn in range(3):
        assert allreduce([array], BLOCKING_SUM) is None
        assert array.tolist() == [each * factor ** (turn + 1) for each in range(3)]
    assert allreduce([array], options=BLOCKING_SUM) == (([array],), {"options": BLOCKING_SUM})
    other_tensors = [(array,), [], [array, array], [[1.0]], [array.view(np.recarray)], [np.ones((3, 2)).T]]
    others = [(tensors, BLOCKING_SUM) for tensors in other_tensors]
    for options in (None, SimpleNamespace(blocks=False, op="SUM"), SimpleNamespace(blocks=True, op="MAX")):
        others.append(([array], options))
    for given in [*others, ([array],), ()]:
        assert allreduce(*given)[0] == given
    for options in (_Refuses(), SimpleNamespace(blocks=_Refuses(), op="SUM")):
        with pytest.raises(RuntimeError, match="not to be"):
            allreduce([array], options)
    earlier.before_unnamed(lambda: None)  # which the core does not call
    assert allreduce([array], BLOCKING_SUM) == (([array], BLOCKING_SUM), {})


def calls_with_an_image():
    class Flags(ctypes.Structure):
        """Options in C; the object has a pointer to them behind its head."""

        _fields_ = (("op", ctypes.c_int8), ("blocks", ctypes.c_int8))

    fnp.init()
    image = Flags, object.__basicsize__, bytes([1, 0]), bytes([1, 7])
    allreduce = carried_allreduce(fnp._collectives, None, WANTED, otherwise, image)
    array = np.arange(3.0)
    assert allreduce([array], Flags(op=7, blocks=1)) is None
    assert array.tolist() == [each * fnp.size() for each in range(3)]
    for options in (Flags(op=7), Flags(op=6, blocks=1)):
        assert allreduce([array], options) == (([array], options), {})
    assert allreduce([array], BLOCKING_SUM) is None  # of another class, whose attributes are read
    assert allreduce([array], None) == (([array], None), {})


def test_an_image_spares_reading_attributes():
    spawn(2, calls_with_an_image, timeout=60)


def test_the_core_takes_blocking_sums_of_one_array_that_it_can_use():
    spawn(2, calls, timeout=60)


def test_a_call_needs_its_terms():
    for given in [(), (1,), ((1, 2),)]:
        with pytest.raises(TypeError, match="the terms"):
            core.carry(*given)

"""Two frameworks in one process share one core: one world, one set of names, and no second copy."""

import subprocess
import sys

import pytest
import together_steps
from farandole.testing import spawn, world
from pair import FRAMEWORKS, RANKS

pytestmark = pytest.mark.timeout(180)

ORDERS = [tuple(FRAMEWORKS), tuple(reversed(FRAMEWORKS))]
both_orders = pytest.mark.parametrize("order", ORDERS, ids="-".join)


def test_two_frameworks_are_here():
    assert len(FRAMEWORKS) == 2


@both_orders
def test_one_joins_and_the_other_leaves(order):
    assert world(RANKS).run(together_steps.live_twice, *order, timeout=120) == [[True] * 10] * RANKS


@both_orders
def test_a_process_set_of_one_is_usable_in_the_other(order):
    assert all(map(all, world(RANKS).run(together_steps.share_a_set, *order, timeout=120)))


@both_orders
def test_operations_of_both_are_in_flight_at_once(order):
    assert world(RANKS).run(together_steps.interleave, *order, timeout=120) == [True] * RANKS


def test_ranks_of_one_job_may_use_different_frameworks():
    assert world(RANKS).run(together_steps.be_one_job, *FRAMEWORKS) == [[3.0, 15.0]] * RANKS


@both_orders
def test_calls_without_a_name_are_paired_by_the_order_over_both(order):
    assert world(RANKS).run(together_steps.take_turns, *order) == [True] * RANKS


@both_orders
def test_a_name_is_in_flight_once_whatever_the_framework(order):
    text, *_ = world(RANKS).run(together_steps.take_one_name, *order)
    assert "'loss'" in text, text
    assert "in flight" in text, text


def lines_of(script, code):
    script.write_text(code)
    return spawn(1, script, timeout=120)[0].splitlines()


def test_a_second_copy_of_the_core_is_refused_in_one_sentence_and_the_first_stays(tmp_path):
    plugins = [f"farandole_{name}" for name in FRAMEWORKS]
    first, second = lines_of(
        tmp_path / "script.py",
        f"""
import importlib.util, shutil
import {", ".join(plugins)}
from farandole import _core
copy = shutil.copy(_core.__file__, {str(tmp_path)!r})
spec = importlib.util.spec_from_file_location("other._core", copy)
try:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
except ImportError as error:
    print(len(str(error).splitlines()), _core.__file__ in str(error), copy in str(error), "twice" in str(error))
{plugins[0]}.init()
print({plugins[1]}.size())
""",
    )[-2:]
    assert (first, second) == ("1 True True True", "1")


if {"mxnet", "tensorflow"} <= {*FRAMEWORKS}:

    def test_mxnet_after_tensorflow_is_refused_before_it_crashes():
        code = "import tensorflow\ntry: import farandole_mxnet\nexcept ImportError as error: print(error)"
        command = [sys.executable, "-W", "ignore", "-c", code]  # in a process of its own, which has imported neither
        said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
        assert "put `import mxnet` before `import tensorflow`" in said[-1]

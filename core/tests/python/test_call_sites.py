"""Where the user's program called, as messages show it."""

import os
import time
import warnings
import weakref

import farandole.numpy as fnp
import numpy as np
import pytest
from farandole import MismatchError
from farandole._runtime.call_sites import call_site, register_plugin
from farandole._runtime.native import core
from farandole.testing import spawn, world

pytestmark = pytest.mark.timeout(120)


def _asked():
    return core.call_site(1)


def test_the_caller_is_named_by_file_and_line(tmp_path, monkeypatch):
    first = test_the_caller_is_named_by_file_and_line.__code__.co_firstlineno
    here = _asked()
    monkeypatch.chdir(tmp_path)
    assert here.endswith(f"test_call_sites.py:{first + 2}")
    assert _asked() == f"test_call_sites.py:{first + 5}"


def test_files_below_the_working_directory_are_named_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "script", "asked": _asked}
    path = os.path.join(os.getcwd(), "jobs", "train.py")
    exec(compile("\n\nsite = asked()\n", path, "exec"), space)
    assert space["site"] == os.path.join("jobs", "train.py:3")


@pytest.mark.parametrize("module", ["farandole_torch._operations", "farandole", "someones_framework.hooks"])
def test_our_own_frames_and_the_frameworks_are_passed_over(module):
    register_plugin("farandole_torch._adapter", "someones_framework")
    space = {"__name__": module, "asked": _asked}
    exec(compile("def call():\n    return asked()\n", "inside.py", "exec"), space)
    assert os.path.basename(space["call"]()).startswith("test_call_sites.py:")


def test_a_users_module_may_have_a_name_that_begins_as_ours():
    space = {"__name__": "farandole_of_mine.train", "asked": _asked}
    exec(compile("\n\nsite = asked()\n", "mine.py", "exec"), space)
    assert space["site"] == "mine.py:3"


def test_an_interrupt_while_the_place_is_sought_is_raised_and_the_place_found_the_next_time():
    interrupts = [KeyboardInterrupt, TimeoutError]

    def interrupted(frame, callee):
        if interrupts:
            raise interrupts.pop(0)
        return call_site(frame, callee)

    core.set_site_function(interrupted)
    try:
        asked = []
        for _ in range(3):
            try:
                asked.append(_asked())
            except (KeyboardInterrupt, TimeoutError) as interrupt:
                asked.append(type(interrupt))
        assert asked[:2] == [KeyboardInterrupt, TimeoutError]
        assert os.path.basename(asked[2]).startswith("test_call_sites.py:")
    finally:
        core.set_site_function(call_site)


@pytest.mark.parametrize("name", ["save_checkpoint", "allreduce_", "grouped_allgather_async", "_begin"])
def test_a_function_that_is_no_single_operation_is_named(name):
    space = {"__name__": "farandole.some", "asked": _asked}
    exec(compile(f"def {name}():\n    return asked()\n", "inside.py", "exec"), space)
    site = space[name]()
    assert os.path.basename(site.rpartition(" at ")[2]).startswith("test_call_sites.py:")
    assert site.partition(" at ")[0] == (name if name == "save_checkpoint" else site)


def test_lines_of_one_function_are_told_apart_and_code_made_on_the_way_is_bounded():
    sites = [
        _asked(),
        _asked(),
    ]
    assert sites[0] != sites[1]
    codes = weakref.WeakSet()
    for i in range(5000):
        space = {"__name__": "script", "asked": _asked}
        code = compile("site = asked()", f"made{i}.py", "exec")
        codes.add(code)
        exec(code, space)
        assert space["site"] == f"made{i}.py:1"
    assert len(codes) <= 4096 + 1


def disagree():
    calls = {
        "allreduce": lambda n: fnp.allreduce(np.ones(n), name="a"),
        "async": lambda n: fnp.allreduce_async(np.ones(n), name="b").wait(),
        "in place": lambda n: fnp.allreduce_(np.ones(n), name="c"),
        "grouped": lambda n: fnp.grouped_allreduce([np.ones(n)], name="d"),
        "broadcast": lambda n: fnp.broadcast(np.ones(n), 0, name="e"),
        "allgather": lambda n: fnp.allgather(np.ones((1, n)), name="f"),
        "alltoall": lambda n: fnp.alltoall(np.ones((2, n)), name="g"),
        "reducescatter": lambda n: fnp.reducescatter(np.ones((2, n)), name="h"),
        "sparse": lambda n: fnp.sparse_allreduce((np.ones(1), np.ones((1, n))), name="i"),
        "parameters": lambda n: fnp.broadcast_parameters({"j": np.ones(n)}),
        "set": lambda n: fnp.add_process_set([n - 1]),
    }
    messages = {}
    for name, call in calls.items():
        try:
            call(fnp.rank() + 1)
        except MismatchError as error:
            messages[name] = str(error), call.__code__.co_firstlineno
    assert list(messages) == list(calls)
    return messages


def test_mismatches_name_both_places():
    for rank_messages in world(2).run(disagree, timeout=60):
        for name, (message, line) in rank_messages.items():
            assert message.count(f"test_call_sites.py:{line})") == 2, (name, message)


def use_the_legacy_average():
    fnp.init()
    array = np.ones(3)
    calls = [
        lambda: fnp.allreduce(array, average=True),
        lambda: fnp.allreduce_(array, average=True),
        lambda: fnp.allreduce_async(array, average=True).wait(),
        lambda: fnp.grouped_allreduce([array], average=True),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert [(each.filename, each.lineno) for each in caught] == [(__file__, call.__code__.co_firstlineno)]


def test_a_warning_points_at_the_users_line():
    spawn(1, use_the_legacy_average, timeout=60)


def test_it_costs_little():
    """Loosely: the bound is ten times what is measured on an idle machine."""

    def seconds(function):
        start = time.perf_counter()
        for _ in range(2000):
            function()
        return (time.perf_counter() - start) / 2000

    assert min(seconds(_asked) for _ in range(10)) < 5e-6

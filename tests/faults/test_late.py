"""Warnings about a rank that is late, and the error that ends its job, from real ranks."""

import ctypes
import os
import re
import time
from pathlib import Path

import farandole
import farandole.numpy as fnp
import numpy as np
import pytest
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(100)

LATE = 2


def begin(folder):
    """Write this rank's warnings to a file there, and start together."""
    fnp.init()
    os.dup2(os.open(Path(folder, str(fnp.rank())), os.O_WRONLY | os.O_CREAT), 2)
    fnp.barrier()


def said(folder):
    """What all ranks have written."""
    return "".join(path.read_text() for path in sorted(Path(folder).iterdir()))


def begin_40_operations():
    handles = [fnp.allreduce_async(np.ones(3), op=fnp.Sum, name=f"w{number}") for number in range(40)]
    return [handle.wait()[0] for handle in handles]


def wait_here_for(folder, text, count):
    until = time.monotonic() + 30
    while said(folder).count(text) < count and time.monotonic() < until:
        time.sleep(0.05)


def one_is_late(folder, warnings):
    begin(folder)
    if fnp.rank() == LATE:
        wait_here_for(folder, "that is where rank 2", warnings)
    assert begin_40_operations() == [3.0] * 40


@pytest.mark.parametrize(("shares_memory", "warnings"), [("1", 1), ("0", 2)])
def test_one_rank_of_each_machine_tells_who_is_late_and_where(tmp_path, shares_memory, warnings):
    env = {"FARANDOLE_WARN_AFTER": "1", "FARANDOLE_ARENAS": shares_memory}
    spawn(3, one_is_late, str(tmp_path), warnings, timeout=60, env=env)
    text = said(tmp_path)
    kept = r"rank 2 \([^)]*\) has kept \d+ operations, the first of them allreduce 'w0', waiting for "
    assert len(re.findall(kept, text)) == text.count(" waiting for ") == warnings, text
    assert text.count("that is where rank 2") == text.count(" in wait_here_for") == warnings, text


def one_never_comes(folder):
    begin(folder)
    if fnp.rank() == LATE:
        return wait_here_for(folder, "has given up", 2)
    with pytest.raises(farandole.DeadlineError) as caught:
        fnp.allreduce(np.ones(3), name="w")
    os.write(2, b"has given up\n")
    return str(caught.value)


@pytest.mark.parametrize("shares_memory", ["0", "1"])
def test_the_error_of_every_rank_tells_where_the_late_one_was(tmp_path, shares_memory):
    env = {"FARANDOLE_WARN_AFTER": "1", "FARANDOLE_TIMEOUT": "3", "FARANDOLE_ARENAS": shares_memory}
    for text in spawn(3, one_never_comes, str(tmp_path), timeout=60, env=env)[:LATE]:
        assert len(re.findall(r"rank 2 was last seen in File \"\S+\", line \d+ in wait_here_for", text)) == 1, text


def keep_pythons_lock_in_here():
    return ctypes.PyDLL(None).sleep(3)  # what is left of it where a signal interrupts it


def one_keeps_pythons_lock(folder):
    begin(folder)
    left = keep_pythons_lock_in_here() if fnp.rank() == LATE else 0
    begin_40_operations()
    return left


def test_a_rank_that_keeps_pythons_lock_is_shown_and_its_call_is_not_interrupted(tmp_path):
    left = spawn(3, one_keeps_pythons_lock, str(tmp_path), timeout=60, env={"FARANDOLE_WARN_AFTER": "1"})
    text = said(tmp_path)
    assert text.count("no thread here gets Python's lock") == text.count("in keep_pythons_lock_in_here") == 1, text
    assert left == [0, 0, 0]

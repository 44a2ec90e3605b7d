"""The wheels as users get them: in an empty environment, no compiler in reach."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from wheels import WHEELS, Empty, check_native_part, strangers_in, wheel_of


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Empty:
    """Farandole and what it depends on, no more."""
    empty = Empty(tmp_path_factory.mktemp("bare"))
    empty.install(str(wheel_of("farandole")))
    return empty


@pytest.fixture
def with_numpy(bare: Empty) -> Iterator[Empty]:
    """numpy is lent by the environment of this test, and so is PyTorch, large as it is."""
    with bare.borrowing():
        yield bare


@pytest.fixture(scope="module")
def with_plugin(bare: Empty) -> Empty:
    bare.install("--no-deps", str(wheel_of("farandole_torch")))
    return bare


@pytest.fixture
def with_torch(with_plugin: Empty, with_numpy: Empty) -> Empty:
    return with_numpy


def test_no_compiler_is_in_reach(bare: Empty) -> None:
    for name in ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "ninja", "nvcc"):
        assert shutil.which(name, path=str(bare.bin)) is None


def test_it_is_imported_without_numpy(bare: Empty) -> None:
    code = "import importlib.util, farandole; print(farandole.__version__, importlib.util.find_spec('numpy'))"
    assert bare.run("python", "-c", code).split() == [wheel_of("farandole").name.split("-")[1], "None"]


def test_the_command_is_there(bare: Empty) -> None:
    assert bare.run("farandole", "--version").startswith("farandole ")


def test_a_world_of_one_needs_no_launcher(bare: Empty) -> None:
    code = "import farandole as f; f.init(); f.barrier(); print(f.rank(), f.size()); f.shutdown()"
    assert bare.run("python", "-c", code).split() == ["0", "1"]


def test_the_module_is_linked_to_no_framework_and_no_communication_library(bare: Empty) -> None:
    code = "import farandole._core; print(open('/proc/self/maps').read())"
    mapped = {Path(line.split()[-1]).name for line in bare.run("python", "-c", code).splitlines() if "/" in line}
    assert any(name.startswith("_core.") for name in mapped)
    assert [name for name in mapped if re.match(r"lib(?:nccl|mpi|gloo|cuda|cudart|torch|tensorflow|mxnet)", name)] == []


def test_two_ranks_add_numpy_arrays(with_numpy: Empty, tmp_path: Path) -> None:
    script = tmp_path / "add.py"
    script.write_text("""
import sys
import farandole.numpy as fnp
import numpy

assert fnp.__file__.startswith(sys.prefix), fnp
fnp.init()
total = fnp.allreduce(numpy.arange(1000, dtype=numpy.float32) + fnp.rank(), op=fnp.Sum)
assert total.tolist() == [2.0 * i + 1.0 for i in range(1000)], total
print("sum is right on", fnp.rank(), "of", fnp.size())
fnp.shutdown()
""")
    output = with_numpy.run("farandole", "run", "-np", "2", "python", str(script))
    assert "sum is right on 0 of 2" in output
    assert "sum is right on 1 of 2" in output


def test_one_binary_of_the_plugin_serves_every_python_and_needs_nothing_but_the_system(tmp_path: Path) -> None:
    check_native_part("farandole_torch", tmp_path)


def test_two_ranks_average_torch_tensors(with_torch: Empty, tmp_path: Path) -> None:
    script = tmp_path / "average.py"
    script.write_text("""
import sys
import farandole
import farandole_torch as hvd
import torch

assert farandole.__file__.startswith(sys.prefix) and hvd.__file__.startswith(sys.prefix), (farandole, hvd)
hvd.init()
mean = hvd.allreduce(torch.arange(1000, dtype=torch.float32) + 2 * hvd.rank())
assert mean.tolist() == [i + 1.0 for i in range(1000)], mean
from farandole_torch import operators
torch.ops.farandole.all_reduce_(mean, hvd.Max, operators.group_id())
assert mean.tolist() == [i + 1.0 for i in range(1000)], mean
print("mean is right on", hvd.rank(), "of", hvd.size())
hvd.shutdown()
""")
    output = with_torch.run("farandole", "run", "-np", "2", "python", str(script))
    assert "mean is right on 0 of 2" in output
    assert "mean is right on 1 of 2" in output


TYPED = [path for path in WHEELS if "horovod" not in path.name]  # as Horovod has no types, its stand-in has none


@pytest.mark.parametrize("wheel", TYPED, ids=lambda path: path.name.split("-")[0])
def test_a_wheel_carries_types_and_no_sources(wheel: Path) -> None:
    assert strangers_in(wheel) == []


def test_a_wheel_of_the_core_is_of_this_python() -> None:
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert f"-{tag}-{tag}-linux_" in wheel_of("farandole").name.replace("manylinux", "linux")

"""The wheel for MXNet as users get it: in an empty environment, no compiler in reach."""

from __future__ import annotations

import platform
import re
import subprocess
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from wheels import Empty, strangers_in, wheel_of

SYSTEM = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2"}
SYSTEM |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def with_mxnet(tmp_path_factory: pytest.TempPathFactory) -> Empty:
    """What `pip install farandole farandole-mxnet` brings, MXNet and the numpy that it needs included."""
    empty = Empty(tmp_path_factory.mktemp("mxnet"))
    empty.install(str(wheel_of("farandole")), str(wheel_of("farandole_mxnet")))
    return empty


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (member,) = [name for name in zipfile.ZipFile(wheel_of("farandole_mxnet")).namelist() if ".so" in name]
    return Path(zipfile.ZipFile(wheel_of("farandole_mxnet")).extract(member, folder))


def output_of(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_one_binary_serves_every_python(library: Path) -> None:
    name = wheel_of("farandole_mxnet").name.replace("manylinux", "linux")
    assert re.fullmatch(rf"farandole_mxnet-[\d.]+-py3-none-linux_\w*{platform.machine()}\.whl", name), name
    assert library.name == "libfarandole_mxnet.so"


def test_it_carries_types_and_no_sources() -> None:
    assert strangers_in(wheel_of("farandole_mxnet")) == []


def test_the_native_part_needs_nothing_but_the_system(library: Path) -> None:
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "--dynamic", "--wide", library)))
    assert "libstdc++.so.6" in needed
    assert needed - SYSTEM == set()


def test_the_native_part_shows_its_own_functions_only(library: Path) -> None:
    lines = output_of("nm", "--dynamic", "--defined-only", library).splitlines()
    shown = [line.split()[-1] for line in lines if line.split()[-2] in "TDBR"]
    assert "farandole_mxnet_push" in shown
    assert [name for name in shown if not name.startswith("farandole_mxnet_")] == []
    wanted = output_of("nm", "--dynamic", "--undefined-only", library)
    assert not re.search(r"\b(?:farandole_|Py|MX[A-Z])", wanted), wanted


def test_it_asks_for_the_core_and_the_numpy_that_fit() -> None:
    wheel = zipfile.ZipFile(wheel_of("farandole_mxnet"))
    (member,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    wanted = Parser().parsestr(wheel.read(member).decode()).get_all("Requires-Dist")
    assert sorted(wanted) == ["farandole==0.1.*", "mxnet<2,>=1.9.1", "numpy<1.24"]


def test_two_ranks_train_with_what_pip_installs(with_mxnet: Empty, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("""
import sys
import farandole
import farandole_mxnet as hvd
import mxnet as mx

assert farandole.__file__.startswith(sys.prefix) and hvd.__file__.startswith(sys.prefix), (farandole, hvd)
hvd.init()
weight = mx.gluon.Parameter("weight", shape=(1000,))
weight.initialize(mx.init.Zero())
optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))
trainer = mx.gluon.Trainer([weight], optimizer, kvstore=None)
with mx.autograd.record():
    loss = (weight.data() * (mx.nd.arange(1000) + 2 * hvd.rank())).sum()
loss.backward()
trainer.step(1)
assert weight.data().asnumpy().tolist() == [-i - 1.0 for i in range(1000)], weight.data()
print("step is right on", hvd.rank(), "of", hvd.size())
hvd.shutdown()
""")
    output = with_mxnet.run("farandole", "run", "-np", "2", "python", str(script))
    assert "step is right on 0 of 2" in output
    assert "step is right on 1 of 2" in output


def test_doctor_finds_nothing_to_mend_about_it(with_mxnet: Empty) -> None:
    said = with_mxnet.run("farandole", "doctor")
    assert re.search(r"OK +mxnet +1\.9\.1", said), said
    assert re.search(r"OK +plugin mxnet +farandole-mxnet", said), said

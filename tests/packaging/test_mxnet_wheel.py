"""The wheel for MXNet as users get it: in an empty environment, no compiler in reach.

FARANDOLE_LONG=1: MXNet and its numpy come by pip, too. By default those that are here are lent: noxfile.py has let pip
install them with this wheel, so pip has found that its requirements can be met.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from wheels import Empty, check_native_part, requirements_of, strangers_in, wheel_of

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def with_mxnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Empty]:
    """The packages that `pip install farandole farandole-mxnet` brings, MXNet and the numpy that it needs included."""
    empty = Empty(tmp_path_factory.mktemp("mxnet"))
    wheels = [str(wheel_of("farandole")), str(wheel_of("farandole_mxnet"))]
    if os.environ.get("FARANDOLE_LONG"):
        empty.install(*wheels)
        yield empty
        return
    empty.install("--no-deps", *wheels)
    with empty.borrowing():
        yield empty


def test_one_binary_serves_every_python_and_needs_nothing_but_the_system(tmp_path: Path) -> None:
    check_native_part("farandole_mxnet", tmp_path)


def test_it_carries_types_and_no_sources() -> None:
    assert strangers_in(wheel_of("farandole_mxnet")) == []


def test_it_asks_for_the_core_and_the_numpy_that_fit() -> None:
    assert requirements_of(wheel_of("farandole_mxnet")) == ["farandole==0.1.*", "mxnet<2,>=1.9.1", "numpy<1.24"]


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

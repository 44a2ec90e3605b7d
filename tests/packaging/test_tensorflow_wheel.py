"""The wheel for TensorFlow as users get it: in an empty environment, no compiler in reach."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from wheels import Empty, check_native_part, requirements_of, strangers_in, wheel_of

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def without_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Empty:
    """The packages that `pip install farandole farandole-tensorflow` brings."""
    empty = Empty(tmp_path_factory.mktemp("tensorflow"))
    empty.install(str(wheel_of("farandole")), str(wheel_of("farandole_tensorflow")))
    return empty


@pytest.fixture
def with_tensorflow(without_tensorflow: Empty) -> Iterator[Empty]:
    """The same, beside the TensorFlow that is here: it is 250 MB."""
    with without_tensorflow.borrowing() as empty:
        yield empty


def test_one_binary_serves_every_python_and_needs_nothing_but_the_system(tmp_path: Path) -> None:
    check_native_part("farandole_tensorflow", tmp_path)


def test_it_carries_types_and_no_sources() -> None:
    assert strangers_in(wheel_of("farandole_tensorflow")) == []


def test_it_asks_for_the_core_that_fits_and_leaves_the_choice_of_tensorflow() -> None:
    assert requirements_of(wheel_of("farandole_tensorflow")) == ["farandole==0.1.*"]


def test_two_ranks_compute_with_what_pip_installs(with_tensorflow: Empty, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("""
import sys
import farandole
import farandole_tensorflow as hvd
import tensorflow as tf

assert farandole.__file__.startswith(sys.prefix) and hvd.__file__.startswith(sys.prefix), (farandole, hvd)
hvd.init()
weight = tf.Variable(tf.fill([1000], float(hvd.rank())))
hvd.broadcast_variables([weight], root_rank=0)

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * x)
    weight.assign_sub(hvd.allreduce(tape.gradient(loss, weight)))

step(tf.range(1000, dtype=tf.float32) + 2 * hvd.rank())
assert weight.numpy().tolist() == [-i - 1.0 for i in range(1000)], weight
print("step is right on", hvd.rank(), "of", hvd.size())
hvd.shutdown()
""")
    output = with_tensorflow.run("farandole", "run", "-np", "2", "python", str(script))
    assert "step is right on 0 of 2" in output
    assert "step is right on 1 of 2" in output


def test_doctor_finds_nothing_to_mend_about_it(with_tensorflow: Empty) -> None:
    said = with_tensorflow.run("farandole", "doctor")
    assert re.search(r"OK +tensorflow +2\.", said), said
    assert re.search(r"OK +plugin tensorflow +farandole-tensorflow", said), said


def test_without_tensorflow_it_says_what_to_install(without_tensorflow: Empty) -> None:
    code = "try: import farandole_tensorflow\nexcept ImportError as error: print(error)"
    assert "python -m pip install tensorflow" in without_tensorflow.run("python", "-c", code)

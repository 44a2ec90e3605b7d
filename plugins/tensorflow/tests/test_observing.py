"""Scalars for TensorBoard."""

import farandole_tensorflow as hvd
import pytest
import tensorflow as tf
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)


def scalars_in(folder):
    """(step, value) of the scalars that one step writes."""
    writer = tf.summary.create_file_writer(folder)
    scalars = hvd.StepScalars(writer, every=2)
    for _ in range(4):
        scalars.step()
    writer.close()
    (file,) = tf.io.gfile.glob(f"{folder}/*")
    values = [
        (event.step, value) for event in tf.compat.v1.train.summary_iterator(file) for value in event.summary.value
    ]
    assert {(value.tag, value.metadata.plugin_data.plugin_name) for _, value in values} == {
        ("farandole/step_seconds", "scalars")
    }
    return [(step, float(tf.make_ndarray(value.tensor))) for step, value in values]


def test_scalars_go_to_a_writer_of_tf_summary(tmp_path):
    (found,) = world(1).run(scalars_in, str(tmp_path))
    assert [step for step, _ in found] == [2, 4]
    assert all(0 < value < 10 for _, value in found)

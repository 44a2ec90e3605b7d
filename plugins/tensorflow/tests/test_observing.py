"""A profile of TensorFlow beside the timeline of the ranks; scalars for TensorBoard."""

import farandole_tensorflow as hvd
import pytest
import tensorflow as tf
from farandole.testing import world
from spans import check_operations_within_spans

pytestmark = pytest.mark.timeout(180)


def recorded_twice(folder):
    """By us and by TensorFlow."""
    hvd.start_timeline(f"{folder}/t.json")
    tf.profiler.experimental.start(f"{folder}/{hvd.rank()}")
    for number in range(3):
        with tf.profiler.experimental.Trace(f"around {number}"):
            hvd.allreduce(tf.ones(100_000), name=f"inside {number}")
    tf.profiler.experimental.stop()
    hvd.stop_timeline()


def test_a_profile_beside_the_timeline_has_its_times(tmp_path):
    """Of both ranks, within a millisecond."""
    world(2).run(recorded_twice, str(tmp_path))
    files = [str(next((tmp_path / str(rank)).rglob("*.xplane.pb"))) for rank in range(2)]
    profiles = [f"{rank}={file}" for rank, file in enumerate(files)]
    check_operations_within_spans(tmp_path / "t.json", profiles, count=3)


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

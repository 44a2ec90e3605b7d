"""A profile of TensorFlow beside the timeline of the ranks; scalars for TensorBoard."""

import json
import subprocess
import sys

import farandole_tensorflow as hvd
import pytest
import tensorflow as tf
from farandole.testing import world

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
    profiles = [f"--profile={rank}={file}" for rank, file in enumerate(files)]
    command = [sys.executable, "-m", "farandole.launch", "timeline", str(tmp_path / "t.json"), *profiles]
    subprocess.run(command, check=True, timeout=60)
    events = json.loads((tmp_path / "t.json").read_text())
    begins = {(each["pid"], each["name"]): each for each in events if each["ph"] in "Xb"}
    ends = {(each["pid"], each["name"]): each["ts"] for each in events if each["ph"] == "e"}
    for rank in range(2):
        for number in range(3):
            around, inside = begins[rank, f"around {number}"], begins[rank, f"inside {number}"]
            assert around["ts"] - 1000 <= inside["ts"]
            assert ends[rank, f"inside {number}"] <= around["ts"] + around["dur"] + 1000


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

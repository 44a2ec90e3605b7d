"""A data service of horovod.tensorflow.data whose workers run on two hosts, for a rank on a third."""

import sys

import pytest

pytestmark = pytest.mark.timeout(600)

TRAIN = """
import socket, sys
import horovod.tensorflow as hvd
import tensorflow as tf
from horovod.tensorflow.data.compute_service import TfDataServiceConfig

config = TfDataServiceConfig.read(sys.argv[1], wait_for_file_creation=True)
client = config.compute_client()
ports = [client.wait_for_dispatcher_registration(0, 60).partition("://")[2]]
data = tf.data.Dataset.range(100).map(lambda number: number + 1).send_to_data_service(config, rank=0)
print("sum", sum(int(each) for each in data.as_numpy_iterator()), "dispatcher", *ports, flush=True)
if sys.argv[2] == "end":
    client.shutdown()
"""
STRANGER = """
import socket, sys
host, port = sys.argv[1].split(":")
try:
    socket.create_connection((host, int(port)), timeout=3)
    print("connected")
except TimeoutError:
    print("no answer")
"""


def test_workers_on_two_hosts_serve_a_third_and_no_other(lab, launch, tmp_path):
    hosts = lab.hosts(4)
    file = tmp_path / "service.json"
    worker = [sys.executable, "-m", "horovod.tensorflow.data.compute_worker", file]
    job = launch(hosts, "-np", 2, "-H", "h0:1,h1:1", "--", *worker)
    for name, text in (("train.py", TRAIN), ("stranger.py", STRANGER)):
        (tmp_path / name).write_text(text)

    def train(word):
        done = hosts[2].run([sys.executable, tmp_path / "train.py", file, word], timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first = train("go on")
    assert first[:2] == ["sum", "5050"]
    assert first[3].startswith(f"{hosts[0].address}:")
    told = hosts[3].run([sys.executable, tmp_path / "stranger.py", first[3]], timeout=60).stdout
    assert told == "no answer\n"
    train("end")
    code, _, errors = job.finish(timeout=120)
    assert code == 0, errors

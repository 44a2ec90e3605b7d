"""horovod.tensorflow.data: workers prepare data, ranks get them, and nobody else can connect."""

import contextlib
import socket
import stat
import subprocess
import sys
import threading
import time

import horovod.tensorflow as hvd
import pytest
import tensorflow as tf
from farandole._start.connection import hear, prove, say
from farandole._start.frames import message
from farandole.engine import FAILURES, connect
from horovod.runner.common.service import compute_service
from horovod.runner.common.service.compute_service import ComputeClient, ComputeService
from horovod.runner.common.util import secret
from horovod.runner.common.util.timeout import TimeoutException
from horovod.tensorflow.data import _packet_filter
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, send_to_data_service, tf_data_service
from horovod.tensorflow.data.compute_worker import main

pytestmark = pytest.mark.timeout(120)
KEY = b"k" * 32


@contextlib.contextmanager
def service(dispatchers=1, workers=1, side="compute", timeout=60):
    """A service without workers, on this host."""
    compute = ComputeService(dispatchers, workers, KEY, ["lo"])
    try:
        yield TfDataServiceConfig(dispatchers, workers, side, compute.addresses(), KEY, timeout)
    finally:
        compute.shutdown()


@contextlib.contextmanager
def worker(folder, side):
    """The config of a worker that `main` runs in a thread."""
    file = str(folder / "service.json")
    running = threading.Thread(target=main, args=(1, side, file, 30), daemon=True)
    running.start()
    config = TfDataServiceConfig.read(file, wait_for_file_creation=True)
    yield config
    config.compute_client().shutdown()
    running.join(30)
    assert not running.is_alive()


def elements(dataset):
    return sorted(int(each) for each in dataset.as_numpy_iterator())


# ---- The programs ----------------------------------------------------------------------------------------------------


def test_two_workers_share_the_elements_or_have_all_of_them_each(tmp_path):
    file = tmp_path / "service.json"
    program = [sys.executable, "-m", "horovod.tensorflow.data.compute_worker", str(file)]
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", "-H", "localhost:2", *program]
    with subprocess.Popen(command) as running:
        config = TfDataServiceConfig.read(str(file), wait_for_file_creation=True)
        assert (config.dispatchers, config.workers_per_dispatcher, config.timeout) == (1, 2, 60)
        client = config.compute_client()
        client.wait_for_dispatcher_worker_registration(0, 60)
        doubled = tf.data.Dataset.range(100).map(lambda number: 2 * number)
        assert elements(doubled.send_to_data_service(config, rank=0)) == list(range(0, 200, 2))
        both = doubled.send_to_data_service(config, rank=0, processing_mode="parallel_epochs")
        assert elements(both) == sorted([*range(0, 200, 2)] * 2)
        client.shutdown()
        assert running.wait(30) == 0


def test_ranks_share_a_data_set(tmp_path):
    with worker(tmp_path, "compute") as config:
        data = tf.data.Dataset.range(100)
        parts = [iter(data.send_to_data_service(config, rank, 2, reuse_dataset=True)) for rank in (0, 1)]
        found = []
        for part in parts:
            found += [int(each) for each in part]
        assert sorted(found) == list(range(100))


def test_ranks_get_elements_in_turn(tmp_path):
    with worker(tmp_path, "compute") as config:
        data = tf.data.Dataset.range(20).repeat()
        options = {"reuse_dataset": True, "round_robin": True, "processing_mode": "parallel_epochs"}
        parts = [iter(send_to_data_service(data, config, rank, 2, **options)) for rank in (0, 1)]
        found = [[], []]

        def take(rank):
            found[rank] += [int(next(parts[rank])) for _ in range(10)]

        threads = [threading.Thread(target=take, args=(rank,)) for rank in (0, 1)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(found[0] + found[1]) == list(range(20))


def test_a_dispatcher_can_run_in_the_rank_that_trains(tmp_path):
    with worker(tmp_path, "training") as config:
        with pytest.raises(RuntimeError, match="tf_data_service"):
            tf.data.Dataset.range(10).send_to_data_service(config, rank=0)
        with tf_data_service(config, rank=0) as address:
            distribute = tf.data.experimental.service.distribute("distributed_epoch", address)
            assert elements(tf.data.Dataset.range(10).apply(distribute)) == list(range(10))
            port = int(address.rpartition(":")[2])
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=5)  # the dispatcher has stopped


def test_the_file_of_an_earlier_service_is_replaced_and_the_own_one_removed(tmp_path):
    file = tmp_path / "service.json"
    earlier = TfDataServiceConfig(1, 1, "compute", {"lo": [("127.0.0.1", 5)]}, KEY, 7)
    earlier.write(str(file))
    hvd.init()
    with pytest.raises(ValueError, match="cannot be shared out"):
        main(2, "compute", str(file), 30)
    assert not file.exists()
    with worker(tmp_path, "compute") as config:
        assert config.key != KEY
    assert not file.exists()


def test_workers_that_cannot_be_shared_out_are_refused(tmp_path):
    hvd.init()
    with pytest.raises(ValueError, match="1 workers cannot be shared out evenly to 2 dispatchers"):
        main(2, "compute", str(tmp_path / "service.json"), 30)


# ---- The service -----------------------------------------------------------------------------------------------------


def test_a_config_is_the_same_after_its_file_which_others_cannot_read(tmp_path):
    config = TfDataServiceConfig(2, 3, "compute", {"lo": [("127.0.0.1", 5)]}, secret.make_secret_key(), 7)
    file = tmp_path / "service.json"
    config.write(str(file))
    assert TfDataServiceConfig.read(str(file)) == config
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert TfDataServiceConfig.from_dict(config.to_dict()) == config
    assert config.key.hex() not in repr(config) and str(config.key) not in repr(config)


@pytest.mark.parametrize("counts", [(0, 1), (1, 0), (-1, 1)])
def test_numbers_that_are_not_positive_are_refused(counts):
    with pytest.raises(ValueError, match="must be positive"):
        ComputeService(*counts, KEY)


def test_who_waits_continues_once_all_are_there():
    with service(dispatchers=2, workers=2) as config:
        client, found = config.compute_client(), []

        def wait():
            found.append(client.wait_for_dispatcher_registration(1, 30))
            client.wait_for_dispatcher_worker_registration(1, 30)
            found.append("all")

        waiting = threading.Thread(target=wait)
        waiting.start()
        client.register_dispatcher(1, "grpc://one")
        client.register_dispatcher(1, "grpc://one")  # again
        for worker_id in (0, 0):
            client.register_worker_for_dispatcher(1, worker_id)
        client.register_worker_for_dispatcher(0, 5)
        with pytest.raises(TimeoutException, match=r"no 2 workers of dispatcher 1 after 0\.2 s"):
            client.wait_for_dispatcher_worker_registration(1, 0.2)
        client.register_worker_for_dispatcher(1, 1)
        waiting.join(30)
        assert found == ["grpc://one", "all"]
        with pytest.raises(ValueError, match="dispatcher 1 is registered at grpc://one"):
            client.register_dispatcher(1, "grpc://two")
        with pytest.raises(IndexError, match="between 0 and 1, not 2"):
            client.register_worker_for_dispatcher(2, 0)
        with pytest.raises(TimeoutException, match=r"no dispatcher 0 after 0\.2 s"):
            client.wait_for_dispatcher_registration(0, 0.2)


def test_all_ranks_of_one_dispatcher_wait_for_its_workers():
    with service(dispatchers=1) as config:
        client = config.compute_client()
        client.register_worker_for_dispatcher(0, 0)
        client.wait_for_dispatcher_worker_registration(5, 10)


def test_the_end_reaches_who_waits_for_it():
    with service() as config:
        client, times = config.compute_client(), []

        def wait():
            client.wait_for_shutdown()
            times.append(time.monotonic())

        waiting = [threading.Thread(target=wait) for _ in range(3)]
        for each in waiting:
            each.start()
        config.compute_client().shutdown()
        for each in waiting:
            each.join(30)
        assert len(times) == 3
    with pytest.raises(FAILURES):
        client.shutdown()


# ---- Strangers -------------------------------------------------------------------------------------------------------


def test_who_lacks_the_key_gets_no_answer():
    with service() as config:
        with pytest.raises(ConnectionError, match=r"no compute service answers at 127\.0\.0\.1:"):
            ComputeClient(config.addresses, b"x" * 32)
        (endpoint,) = config.addresses["lo"]
        with socket.create_connection(endpoint, timeout=10) as stranger:
            stranger.sendall(b"\0" * 200)
            heard = b"".join(iter(lambda: stranger.recv(1024), b""))
        assert len(heard) < 100  # a hello that does not depend on the key
        config.compute_client().register_worker_for_dispatcher(0, 0)


def test_a_request_without_sense_does_not_end_the_service():
    with service() as config:
        (endpoint,) = config.addresses["lo"]
        for frame in (b"\xff" * 100, message("nonsense"), message("register_worker", dispatcher_id=0)):
            with connect(endpoint, KEY) as made, contextlib.suppress(ConnectionResetError):
                made.sendall(frame)
                assert made.recv(10) == b""
        config.compute_client().register_worker_for_dispatcher(0, 0)


def can_connect(source, port, family=socket.AF_INET):
    with socket.socket(family) as caller:
        caller.settimeout(0.5)
        caller.bind((source, 0))
        try:
            caller.connect(("::1" if family == socket.AF_INET6 else "127.0.0.1", port))
        except TimeoutError:
            return False
        return True


def test_only_admitted_hosts_connect_to_a_port():
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        (inode,) = [inode for inode, each in _packet_filter.listeners().items() if each == port]
        _packet_filter.admit([inode], ["127.0.0.2", "127.0.1.0/24"])
        sources = {f"127.0.{part}": can_connect(f"127.0.{part}", port) for part in ("0.1", "0.2", "0.3", "1.7", "2.7")}
        assert [source for source, admitted in sources.items() if admitted] == ["127.0.0.2", "127.0.1.7"]
        assert can_connect("::1", port, socket.AF_INET6)
        _packet_filter.admit([inode], ["127.0.0.3"])
        assert (can_connect("127.0.0.2", port), can_connect("127.0.0.3", port)) == (False, True)


def test_nobody_connects_to_a_held_port_before_its_server_has_a_filter():
    with contextlib.ExitStack() as servers:
        with _packet_filter.held_port() as port:
            for _ in range(2):  # as gRPC makes them
                server = servers.enter_context(socket.socket(socket.AF_INET6))
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                server.bind(("::", port))
                server.listen()
            assert not any(can_connect(f"127.0.0.{number}", port) for number in range(1, 5))
            inodes = [inode for inode, each in _packet_filter.listeners().items() if each == port]
            _packet_filter.admit(inodes, ["127.0.0.1"])
        assert [can_connect(source, port) for source in ("127.0.0.1", "127.0.0.2")] == [True, False]


SO_GET_FILTER = 26  # the length of what it returns is the number of instructions


def test_each_server_of_tensorflow_has_a_filter(tmp_path):
    earlier = _packet_filter.listeners()
    with worker(tmp_path, "compute") as config:
        config.compute_client().wait_for_dispatcher_worker_registration(0, 60)
        ports = {port: [] for inode, port in _packet_filter.listeners().items() if inode not in earlier}
        for _, each in _packet_filter._listening():
            ports.get(each.getsockname()[1], []).append(len(each.getsockopt(socket.SOL_SOCKET, SO_GET_FILTER, 1024)))
        (service_port,) = [port for _, port in config.addresses["lo"]]
        assert ports.pop(service_port) == [0]
        assert len(ports) == 2 and all(numbers and min(numbers) > 10 for numbers in ports.values())


@contextlib.contextmanager
def another_host(config, addresses=()):
    """A connection of another host that waits for the dispatcher."""
    (endpoint,) = config.addresses["lo"]
    with socket.socket() as other:
        other.bind(("127.0.0.9", 0))
        other.connect(endpoint)
        prove(other, KEY, is_listener=False)
        say(other, "await_dispatcher", dispatcher_id=0, timeout=30, addresses=[*addresses])
        other.settimeout(30)
        yield other


def test_a_waiting_client_continues_once_the_servers_admit_its_addresses(monkeypatch):
    monkeypatch.setattr(compute_service, "_own_addresses", lambda: ["10.0.0.1"])
    with service() as config:
        client, admitted, may_continue = config.compute_client(), [], threading.Event()

        def admit(hosts):
            admitted.append(hosts)
            assert len(hosts) == 2 or may_continue.wait(30)

        client.follow(admit)
        client.register_dispatcher(0, "grpc://here")
        with another_host(config, ["10.0.0.9", "10.1.0.9"]) as other:
            other.settimeout(0.3)
            with pytest.raises(TimeoutError):
                other.recv(1, socket.MSG_PEEK)
            may_continue.set()
            other.settimeout(30)
            assert hear(other)["address"] == "grpc://here"
        first = ["127.0.0.1", "10.0.0.1"]
        assert admitted == [first, [*first, "127.0.0.9", "10.0.0.9", "10.1.0.9"]]


def test_a_client_that_a_server_cannot_admit_is_told():
    with service() as config:
        client, others = config.compute_client(), []

        def admit(hosts):
            if "127.0.0.9" in hosts:
                raise OSError("no memory")

        client.follow(admit)
        client.register_dispatcher(0, "grpc://here")
        for _ in range(2):
            with another_host(config) as other:
                others.append(hear(other))
        assert [each["kind"] for each in others] == ["ConnectionError"] * 2
        assert others[0]["text"] == "a server on 127.0.0.1 cannot admit this host: no memory"
        assert client.wait_for_dispatcher_registration(0, 10) == "grpc://here"  # this host is admitted


def test_servers_without_keys_are_refused_where_keys_are_asked_for(monkeypatch):
    monkeypatch.setenv("FARANDOLE_REQUIRE_KEY", "1")
    with service() as config, pytest.raises(RuntimeError, match="FARANDOLE_REQUIRE_KEY is set"):
        config.compute_client()
        tf.data.Dataset.range(1).send_to_data_service(config, rank=0)

"""The store of `init_method="farandole://"`: what torch's own does, for ranks of this job alone."""

import socket
import threading
import time
from datetime import timedelta

import farandole_torch as hvd
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from farandole.plugin.distributed import connect, connection_key, hear
from farandole.testing import spawn, world
from versions import needs

pytestmark = [pytest.mark.timeout(120), needs(2, 7, "what the backend needs")]


def opened():
    import farandole_torch.distributed  # noqa: F401

    store, rank, size = next(dist.rendezvous("farandole://"))
    assert (rank, size) == (hvd.rank(), hvd.size())
    return store


def fails(error, words, call, *arguments):
    """The call raises this, in one sentence that names the rank."""
    with pytest.raises(error) as caught:
        call(*arguments)
    text = str(caught.value)
    assert words in text and f"rank {hvd.rank()}: " in text and "\n" not in text, text


def do_everything(store):
    """The calls of a store, by every rank at once."""
    rank, size = hvd.rank(), hvd.size()
    store.set(f"of {rank}", f"value {rank}")
    assert [store.get(f"of {each}") for each in range(size)] == [f"value {each}".encode() for each in range(size)]
    store.multi_set([f"{rank} a", f"{rank} b"], [b"\0\xff", b""])
    assert store.multi_get([f"{size - 1} b", "0 a"]) == [b"", b"\0\xff"]
    store.add("sum", rank + 1)
    store.add("come", 1)
    while store.add("come", 0) < size:
        time.sleep(0.01)
    assert store.get("sum") == str(size * (size + 1) // 2).encode()
    store.append("letters", "ab")
    hvd.barrier()
    assert store.get("letters") == b"ab" * size
    store.wait(["sum", "letters"], timedelta(seconds=5))
    assert store.check(["sum", "letters"]) and not store.check(["sum", "nothing"])
    winner = store.compare_set("first", "", str(rank))
    assert store.get("first") == winner
    assert store.compare_set("first", "nobody's", "other") == winner
    hvd.barrier()
    if rank == 0:
        assert store.compare_set("first", winner, "next") == b"next"
        keys = store.num_keys()
        assert store.delete_key("sum") and not store.delete_key("sum") and store.num_keys() == keys - 1
    hvd.barrier()
    assert not store.check(["sum"])
    large = bytes(range(256)) * 4096
    if rank == size - 1:
        store.set("large", large)
    assert store.get("large") == large


def queues(store):
    rank, size = hvd.rank(), hvd.size()
    store.queue_push("queue", f"{rank}")
    hvd.barrier()
    assert store.queue_len("queue") == size
    hvd.barrier()
    popped = hvd.allgather_object(store.queue_pop("queue"))
    assert sorted(popped) == [str(each).encode() for each in range(size)] and store.queue_len("queue") == 0
    fails(dist.DistStoreError, "no rank has set 'queue' within 0 s", store.queue_pop, "queue", False)


def calls():
    store = opened()
    do_everything(store)
    do_everything(dist.PrefixStore("below", store.clone()))  # by way of C++
    assert {"large", "below/large"} <= {*store.list_keys()}
    queues(store)


def waits():
    store, rank, last = opened(), hvd.rank(), hvd.size() - 1
    brief = timedelta(seconds=0.2)
    fails(dist.DistStoreError, "no rank has set 'nothing' within 0.2 s", store.wait, ["nothing"], brief)
    fails(dist.DistStoreError, "'a/nothing' within 0.2 s", dist.PrefixStore("a", store).wait, ["nothing"], brief)
    other = store.clone()
    other.set_timeout(brief)
    assert store.timeout > brief
    fails(dist.DistStoreError, "get('nothing')", other.get, "nothing")
    got = []
    waiter = threading.Thread(target=lambda: got.append(store.get("late")))
    waiter.start()
    store.set(f"meanwhile {rank}", "")  # while another thread waits
    store.wait([f"meanwhile {each}" for each in range(last + 1)])
    assert not got
    hvd.barrier()
    if rank == last:
        store.set("late", "now")
    waiter.join()
    assert got == [b"now"]


def misuse():
    store = opened()
    fails(TypeError, "a value is a string or bytes, not dict", store.set, "key", {})
    fails(ValueError, "a value may have 64 MiB, not 67108865 bytes", store.set, "key", b"0" * ((64 << 20) + 1))
    store.set("word", "no number")
    fails(ValueError, "add('word') of the store of torch.distributed: its value is not a number", store.add, "word", 1)
    assert store.get("word") == b"no number"


def strangers():
    """Those without the key of this job change nothing, and one with it says what makes no sense."""
    store = opened()
    place = hvd.broadcast_object(store._keeper.place, root_rank=0)
    if hvd.rank() == 1:
        with pytest.raises((OSError, Exception), match="key of this job"):
            connect(place, b"of another job".ljust(32, b"\0"))
        with socket.create_connection(place) as stranger:
            stranger.sendall(b"\0" * 4096)
        with connect(place, connection_key("torch.distributed")) as garbled:
            garbled.sendall(b"\0\0\0\5\1[[[[[")
            with pytest.raises(OSError, match="ended the connection"):
                hear(garbled)
    hvd.barrier()
    store.add("come", 1)
    hvd.barrier()
    assert store.get("come") == str(hvd.size()).encode()


def users(folder):
    """What PyTorch itself does with a store."""
    import farandole_torch.distributed  # noqa: F401

    for _ in range(2):
        dist.init_process_group("farandole", init_method="farandole://")
        rank, size = dist.get_rank(), dist.get_world_size()
        gloo = dist.new_group(backend="gloo")
        ones = torch.ones(3)
        dist.all_reduce(ones, group=gloo)
        assert ones.tolist() == [size] * 3
        found = [None] * size
        dist.all_gather_object(found, {"rank": rank})
        assert found == [{"rank": each} for each in range(size)]
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        model(torch.ones(1, 2)).sum().backward()
        dist.checkpoint.save({"weight": torch.arange(4.0), "rank": [rank]}, checkpoint_id=folder)
        loaded = {"weight": torch.zeros(4), "rank": [None]}
        dist.checkpoint.load(loaded, checkpoint_id=folder)
        assert loaded["weight"].tolist() == [0, 1, 2, 3]
        dist.barrier()
        dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [1, 3])
def test_calls(ranks):
    world(ranks).run(calls)


def test_a_wait_ends_in_time_and_holds_up_no_other_call():
    world(3).run(waits)


def test_what_no_value_can_be():
    world(2).run(misuse)


def test_strangers_are_refused():
    world(2).run(strangers)


def test_what_pytorch_does_with_a_store(tmp_path):
    spawn(2, users, tmp_path, timeout=60)  # other tests leave a default group


def test_a_dead_server_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()

    def ask():
        from farandole_torch._store import Store, _Client

        store = Store(_Client(place, b"0" * 32), 1)
        fails(dist.DistNetworkError, "rank 0, which keeps it, does not answer (", store.get, "key")

    world(1).run(ask)

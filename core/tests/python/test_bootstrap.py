"""Which place and which address ranks have that meet by telling each other where they are: pure but for the channel."""

import threading

import pytest
from farandole._start import bootstrap
from farandole._start.bootstrap import Offer, choose, exchange_addresses, place
from farandole._start.environment import World


def offers(*hosts):
    return [Offer(host, host, tuple(addresses)) for host, addresses in hosts]


def test_hosts_are_numbered_by_their_lowest_rank():
    hosts = ["b", "a", "b", "c", "b"]
    worlds = [place(rank, hosts, "MPI") for rank in range(5)]
    assert worlds[0] == World(0, 5, 0, 3, 0, 3, launcher="MPI")
    assert [(each.local_rank, each.local_size) for each in worlds] == [(0, 3), (0, 1), (1, 3), (0, 1), (2, 3)]
    assert [(each.cross_rank, each.cross_size) for each in worlds] == [(0, 3), (1, 3), (0, 1), (2, 3), (0, 1)]


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        # A network that all have, though others come first.
        (
            [("a", ["10.1.0.5/16", "192.168.7.1/24"]), ("b", ["10.2.0.5/16", "192.168.7.2/24"])],
            ["192.168.7.1", "192.168.7.2"],
        ),
        # The bridge that every host's containers have connects no hosts.
        ([("a", ["172.17.0.1/16", "10.0.0.1/24"]), ("b", ["172.17.0.1/16", "10.0.0.2/24"])], ["10.0.0.1", "10.0.0.2"]),
        # Link-local addresses only look like a common network; routers connect the other addresses.
        (
            [("a", ["169.254.3.1/16", "10.1.0.5/16"]), ("b", ["169.254.9.9/16", "10.2.0.5/16"])],
            ["10.1.0.5", "10.2.0.5"],
        ),
        ([("a", ["169.254.3.1"]), ("b", ["169.254.9.9"])], ["169.254.3.1", "169.254.9.9"]),  # unless one is told so
        # Connected by routers.
        ([("a", ["10.1.0.5/16"]), ("b", ["10.2.0.5/16"])], ["10.1.0.5", "10.2.0.5"]),
        # FARANDOLE_ADDRESS of a host counts first, as an address or a name, even if two hosts have the same one.
        ([("a", ["10.0.0.1/24", "10.9.0.1/24"]), ("b", ["10.9.0.2"])], ["10.9.0.1", "10.9.0.2"]),
        ([("a", ["node-a"]), ("b", ["10.9.0.2/24"])], ["node-a", "10.9.0.2"]),
        ([("a", ["127.0.0.1"]), ("b", ["127.0.0.1"])], ["127.0.0.1", "127.0.0.1"]),
        ([("a", ["2001:db8::1/64"]), ("b", ["2001:db8::2/64"])], ["[2001:db8::1]", "[2001:db8::2]"]),
        # Ranks of one host have one address.
        (
            [("a", ["10.0.0.1/24"]), ("a", ["10.0.0.1/24"]), ("b", ["10.0.0.2/24"])],
            ["10.0.0.1", "10.0.0.1", "10.0.0.2"],
        ),
    ],
)
def test_the_first_network_that_all_hosts_have_is_taken(found, chosen):
    assert choose(offers(*found)) == chosen


def test_a_host_without_an_address_of_its_own_is_named():
    with pytest.raises(ValueError, match=r"rank 1 is on b, which has no address .*found: none.*FARANDOLE_ADDRESS"):
        choose(offers(("a", ["10.0.0.1/24"]), ("b", [])))
    with pytest.raises(ValueError, match=r"rank 0 is on a, .*found: 172\.17\.0\.1/16"):
        choose(offers(("a", ["172.17.0.1/16"]), ("b", ["172.17.0.1/16"])))


class Table:
    """An exchange among threads."""

    def __init__(self, size):
        self._said, self._barrier = [b""] * size, threading.Barrier(size, timeout=20)

    def of(self, rank):
        def exchange(mine):
            self._barrier.wait()
            self._said[rank] = mine
            self._barrier.wait()
            return list(self._said)

        return exchange


def meet_all(size, key_file_of=lambda rank: ""):
    table, results = Table(size), [None] * size

    def run(rank):
        try:
            results[rank] = exchange_addresses(rank, size, "MPI", key_file_of(rank), table.of(rank))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    return results


def test_on_one_host_no_port_is_opened():
    found = meet_all(3)
    assert [each.world.local_size for each in found] == [3, 3, 3]
    assert found[0].store.startswith("unix:farandole-") and {each.store for each in found} == {found[0].store}
    assert len(found[0].key) == 32 and {each.key for each in found} == {found[0].key}
    assert [(each.address, each.listener) for each in found] == [("", -1)] * 3
    assert meet_all(3)[0].key != found[0].key


def test_a_world_of_one_tells_nobody():
    assert exchange_addresses(0, 1, "MPI", "", None) == bootstrap.Rendezvous(World(launcher="MPI"))


def key_in(folder):
    path = folder / "key"
    path.touch(mode=0o600)
    path.write_bytes(b"k" * 32)
    return path


@pytest.mark.parametrize(("owner", "other"), [(0, 1), (1, 0)])
def test_a_key_file_that_some_ranks_lack_is_an_error_of_all(owner, other, tmp_path):
    path = str(key_in(tmp_path))
    found = meet_all(3, lambda rank: path if rank == owner else "")
    assert [type(each) for each in found] == [ValueError] * 3, found
    for each in found:
        assert f"rank {owner} on " in str(each) and f"but rank {other} on " in str(each), each
        assert "mpirun -x FARANDOLE_KEY_FILE" in str(each)


def test_a_key_of_a_file_is_not_told(tmp_path):
    path = key_in(tmp_path)
    said = []
    exchange_addresses(0, 2, "MPI", str(path), lambda mine: said.append(mine) or [mine, said[0]])
    assert b'"key": ""' in said[1]

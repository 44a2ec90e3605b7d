"""Connects ranks that can already exchange some bytes, for example through MPI: hosts, rank 0's address, the key.

    every rank                                   exchange 1: host, addresses, whether it has a key file
    choose one address for each rank             pure, with the same result on all ranks
    rank 0: listens there, makes the key         exchange 2: the store and the key, or the reason of a failure

The key is as secret as the channel of the exchange. With FARANDOLE_KEY_FILE it is not sent.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from farandole._runtime.native import core
from farandole._start import environment, key_exchange, this_host

Exchange = Callable[[bytes], list[bytes]]
"""What every rank says, by rank. Collective."""


@dataclass(frozen=True)
class Rendezvous:
    """This process's place, and what the core needs to connect to the other ranks."""

    world: environment.World
    store: str = ""
    key: bytes = b""
    address: str = ""  # where other machines reach this rank; "" if all ranks are on one machine
    listener: int = -1  # on rank 0: the descriptor that listens at a tcp store


@dataclass(frozen=True)
class Offer:
    """What a rank says about itself. An address that the user gave has no prefix length: "10.0.0.7"."""

    host: str  # for people
    identity: str  # equal for ranks of one host
    addresses: tuple[str, ...]
    has_key: bool = False  # from FARANDOLE_KEY_FILE


def exchange_addresses(rank: int, size: int, launcher: str, key_file: str, exchange: Exchange) -> Rendezvous:
    """Exchange addresses and the key among `size` ranks. Collective.

    `key_file` has the job's key; if it is "", rank 0 makes one, and `exchange` sends it. Raises ValueError, on all
    ranks, if hosts do not reach each other or only some ranks have a key file, and OSError if rank 0 cannot listen.
    """
    if size == 1:
        return Rendezvous(environment.World(launcher=launcher))
    offers = [_read(text) for text in exchange(json.dumps(asdict(_own_offer(bool(key_file)))).encode())]
    _check_keys(offers)
    world = place(rank, [offer.identity for offer in offers], launcher)
    addresses = choose(offers) if world.local_size < size else [""] * size
    listener, content = _begin(addresses[0], bool(key_file)) if rank == 0 else (-1, b"")
    try:
        answer = json.loads(exchange(content)[0])
        key = key_exchange.read_key(key_file) if key_file else bytes.fromhex(answer.get("key", ""))
    except BaseException:
        _close(listener)
        raise
    if "error" in answer:
        raise OSError(f"rank 0 cannot listen for the other ranks: {answer['error']}")
    return Rendezvous(world, answer["store"], key, addresses[rank], listener)


def job_on_one_host(exchange: Exchange) -> str:
    """Return a name that is unique to this job and equal on all ranks, or "" on several hosts. Collective."""
    mine = f"{os.urandom(16).hex()} {this_host.identity()}"
    words = [word.decode().partition(" ") for word in exchange(mine.encode())]
    return words[0][0] if len({identity for _, _, identity in words}) == 1 else ""


MakeExchange = Callable[[int, int, float], Exchange]
"""Of a rank, the number of ranks and the seconds that they have to come."""

_of_plugins: dict[str, MakeExchange] = {}


def register_exchange(launcher: str, make: MakeExchange) -> None:
    """Register how ranks that `launcher` has started on several hosts exchange some bytes. Plugins call this."""
    _of_plugins[launcher] = make


def through_launcher(rank: int, size: int, launcher: str, timeout_s: float) -> Exchange:
    """Return the exchange through the launcher that started the ranks on several hosts.

    Raises ValueError if no imported plugin has registered the launcher, or if srun has made no channel. The exchange
    raises DeadlineError if some ranks do not come in time.
    """
    if launcher in _of_plugins:
        return _of_plugins[launcher](rank, size, timeout_s)
    if launcher == environment.TORCHRUN:
        raise ValueError(
            f"{launcher} started {size} ranks on several hosts: import farandole_torch before init(), since ranks meet "
            "in torch's store there"
        )
    if launcher == environment.SRUN and "mpi" not in environment.backends():  # MPI needs Slurm's PMI-2 for itself
        return _through_slurm(rank, size, timeout_s)
    return _through_mpi(rank, size, launcher, timeout_s)


def _through_slurm(rank: int, size: int, timeout_s: float) -> Exchange:
    from farandole._start import pmi2, slurm  # only srun needs these, and `import farandole` should be fast

    found = environment.pmi2()
    if found is None:
        raise ValueError(slurm.no_channel(size))
    descriptor, job = found
    return pmi2.exchange_of(pmi2.Step(rank, size, job, descriptor), timeout_s)


def _through_mpi(rank: int, size: int, launcher: str, timeout_s: float) -> Exchange:
    # The start of MPI waits for all ranks, so nobody can know which is missing.
    return key_exchange.through_library(rank, size, launcher, timeout_s, lambda mine: core.exchange(rank, size, mine))


def place(rank: int, hosts: Sequence[str], launcher: str) -> environment.World:
    """Return a rank's place, if rank r is on hosts[r]. Hosts are numbered by their lowest rank."""
    on_mine = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    local_rank = on_mine.index(rank)
    level = [host for host in dict.fromkeys(hosts) if hosts.count(host) > local_rank]
    return environment.World(
        rank=rank,
        size=len(hosts),
        local_rank=local_rank,
        local_size=len(on_mine),
        cross_rank=level.index(hosts[rank]),
        cross_size=len(level),
        launcher=launcher,
    )


def choose(offers: Sequence[Offer]) -> list[str]:
    """Choose an address for each rank: the first network of rank 0 in which every other rank has an address.

    If there is none, routers are assumed to connect the hosts, and each rank's first address is taken. Addresses that
    two hosts have in common, such as those of container bridges, are ignored. So are those of 169.254.0.0/16, such as
    the ones between a host and its management board, which look like one network but are not. Raises ValueError.
    """
    usable = [_usable(offer, offers) for offer in offers]
    for rank, found in enumerate(usable):
        if not found:
            raise ValueError(
                f"rank {rank} is on {offers[rank].host}, which has no address that the other hosts could reach "
                f"(found: {', '.join(offers[rank].addresses) or 'none'}); set FARANDOLE_ADDRESS there to the one that "
                "they do reach"
            )
    for first in usable[0]:
        near = [next((each for each in found if _are_neighbours(first, each)), None) for found in usable]
        if all(near):
            return [_bare(first), *(_bare(each) for each in near[1:] if each)]
    return [_bare(found[0]) for found in usable]


def _usable(offer: Offer, offers: Sequence[Offer]) -> list[str]:
    elsewhere = {each for other in offers if other.identity != offer.identity for each in other.addresses}
    return [each for each in offer.addresses if "/" not in each or (each not in elsewhere and not _is_of_a_cable(each))]


def _is_of_a_cable(address: str) -> bool:
    return ipaddress.ip_interface(address).ip.is_link_local


def _are_neighbours(one: str, other: str) -> bool:
    try:
        first, second = ipaddress.ip_interface(one), ipaddress.ip_interface(other)
    except ValueError:  # a host name that the user gave
        return True
    return first.ip in second.network or second.ip in first.network


def _bare(address: str) -> str:
    """Return the address as endpoints contain it: "10.0.0.7", "[2001:db8::7]"."""
    alone = address.partition("/")[0]
    return f"[{alone}]" if ":" in alone and not alone.startswith("[") else alone


def _check_keys(offers: Sequence[Offer]) -> None:
    """Raise ValueError if only some ranks have a key file, for example because the launcher dropped the variable."""
    by_file = [rank for rank, offer in enumerate(offers) if offer.has_key]
    others = [rank for rank, offer in enumerate(offers) if not offer.has_key]
    if by_file and others:
        raise ValueError(
            f"rank {by_file[0]} on {offers[by_file[0]].host} has FARANDOLE_KEY_FILE, but rank {others[0]} on "
            f"{offers[others[0]].host} has not: set it for all ranks (mpirun -x FARANDOLE_KEY_FILE of Open MPI, "
            "-genvlist of MPICH pass it on), or for none"
        )


def _own_offer(has_key: bool) -> Offer:
    given = environment.address()
    addresses = (given,) if given else tuple(core.host_addresses())
    return Offer(socket.gethostname(), this_host.identity(), addresses, has_key)


def _read(text: bytes) -> Offer:
    content = json.loads(text)
    return Offer(content["host"], content["identity"], tuple(content["addresses"]), content["has_key"])


def _begin(address: str, has_key: bool) -> tuple[int, bytes]:
    """Start to listen on rank 0. Returns the listener, and the message about it to the other ranks."""
    key = "" if has_key else os.urandom(key_exchange.KEY_BYTES).hex()
    if not address:
        return -1, json.dumps({"store": key_exchange.store_name(), "key": key}).encode()
    try:
        listener, store = core.listen(f"tcp:{address}:0")
    except Exception as error:
        return -1, json.dumps({"error": f"{error}; set FARANDOLE_ADDRESS there to another of its addresses"}).encode()
    return listener, json.dumps({"store": store, "key": key}).encode()


def _close(listener: int) -> None:
    if listener >= 0:
        os.close(listener)

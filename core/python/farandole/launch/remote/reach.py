"""Chooses the address at which each host is reached by all others. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

Reached = Mapping[int, Collection[tuple[int, str]]]
"""Host -> the hosts and addresses that it has reached."""


class ReachError(ValueError):
    """Some hosts do not reach each other; the message is one sentence for the user."""


@dataclass(frozen=True)
class Address:
    """An address of a host, and the interface that has it."""

    interface: str
    address: str  # "10.0.0.7", "2001:db8::7"


def candidates(found: Sequence[Address], interfaces: Collection[str] = ()) -> list[str]:
    """The addresses that other hosts may reach, those of `interfaces` only if some are named; IPv4 first.

    Loopback leads nowhere, and addresses of a cable (169.254.0.0/16, fe80::/10) need the name of an interface.
    """
    usable = []
    for each in found:
        number = ipaddress.ip_address(each.address)
        named = not interfaces or each.interface in interfaces
        if named and not (number.is_loopback or number.is_link_local or number.is_unspecified):
            usable.append((number.version, each.address))
    return [address for _, address in sorted(usable, key=lambda pair: pair[0])]


def choose(hosts: Sequence[str], offered: Sequence[Sequence[str]], reached: Reached) -> list[str]:
    """For each host the first of its addresses that every other host has reached.

    Args:
        hosts: their names, for messages.
        offered: the addresses of each.
        reached: what each has reached.

    Raises:
        ReachError: there is none for some host.
    """
    chosen = []
    for index in range(len(hosts)):
        good = shared(index, offered[index], reached)
        if not good:
            raise ReachError("; ".join(why_none(index, hosts, offered[index], reached)))
        chosen.append(good[0])
    return chosen


def shared(index: int, offered: Sequence[str], reached: Reached) -> list[str]:
    """Those of the addresses `offered` by host `index` that every other host has reached."""
    others = [other for other in reached if other != index]
    return [each for each in offered if all((index, each) in reached[other] for other in others)]


def why_none(index: int, hosts: Sequence[str], offered: Sequence[str], reached: Reached) -> tuple[str, str]:
    """The cause and the remedy where `shared` finds none."""
    name = hosts[index]
    if not offered:
        return f"{name} has no address for other hosts on these interfaces", "name others with --network-interfaces."
    deaf = [hosts[other] for other in reached if other != index and not any(to == index for to, _ in reached[other])]
    who = ", ".join(deaf[:4]) + (f" and {len(deaf) - 4} more" if len(deaf) > 4 else "")
    tried = ", ".join(offered)
    if deaf:
        remedy = "look for a firewall between them, or name a network that they share with --network-interfaces."
        return f"{who} cannot connect to {name} ({tried})", remedy
    return (
        f"no address of {name} ({tried}) is reached by all other hosts",
        "--network-interfaces names a network that is.",
    )

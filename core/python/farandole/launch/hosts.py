"""The hosts of -H and of a file of --hostfile. Pure, but for `read_hostfile`.

A host becomes an argument of ssh, so names are checked strictly: RFC 1123 and inner underscores, as container names
have them, or an address; before it perhaps `user@`. Nothing that passes begins with `-` or has a character that a shell
or ssh's settings would interpret.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from farandole.launch.files import read_text
from farandole.launch.messages import one_line, shown
from farandole.launch.spec import SpecError

MAX_RANKS = 65536  # a guard against a slip of the finger, not a promise
MAX_FILE_BYTES = 4 << 20  # a larger file is a device or a wrong file
LOCAL_HOST = "localhost"
_LONGEST_NAME = 253
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_USER = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,31}")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")  # as a last label, it makes the resolver read an address
_ITEM = re.compile(r"(?P<host>[^\[\]:]*\[[^\[\]]*\]|[^\[\]:]*)(?::(?P<slots>.*))?", re.DOTALL)
_SLOTS = re.compile(r"(?P<key>(?:max[_-])?slots)=(?P<count>.*)", re.DOTALL)


@dataclass(frozen=True)
class HostSlots:
    """A host and its number of slots. `host`: `user@name`, the name or the address, without brackets."""

    host: str
    count: int


@dataclass(frozen=True)
class HostList:
    """The hosts that a user listed, and where: `-H h1:4` or `--hostfile FILE`."""

    slots: tuple[HostSlots, ...]
    origin: str


def parse_count(text: str, what: str) -> int:
    """Parse a positive whole number written in digits; `what` names the number in the error."""
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise SpecError(f"{what} must be a positive whole number, not {shown(text)}.")
    if int(text) > MAX_RANKS:
        raise SpecError(f"{what} must be at most {MAX_RANKS}, not {text}.")
    return int(text)


def bracketed(host: str) -> str:
    """Return the host as written before a port: an IPv6 address is put in brackets."""
    return f"[{host}]" if ":" in host else host


def check_host(text: str) -> str:
    """`name`, `address` or `[address]`, each perhaps after `user@` -> the same without brackets. Raises SpecError."""
    user, at, host = text.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise SpecError(f"{shown(text)} must begin with a user's name, of letters, digits and ._-, before its @.")
    if host.startswith("[") and host.endswith("]"):
        return f"{user}{at}{_address(host[1:-1], ipaddress.IPv6Address)}"
    labels = host.split(".")
    if len(host) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        allowed = "letters, digits, inner hyphens and underscores, with dots between"
        raise SpecError(f"{shown(text)} is no name of a host: {allowed}.")
    if _NUMBER.fullmatch(labels[-1]):
        _address(host, ipaddress.IPv4Address)
    return text


def _address(text: str, kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]) -> str:
    try:
        address = kind(text if "%" not in text else "")  # a zone differs between hosts
    except ValueError:
        raise SpecError(f"{shown(text)} is neither the name nor the address of a host.") from None
    if address.is_unspecified or address.is_multicast:
        raise SpecError(f"{shown(text)} is not the address of one host.")
    return text


def name_of(host: str) -> str:
    """Return the canonical spelling of a checked host, without its user. Equal spellings mean the same host."""
    name = host.rpartition("@")[2].lower()
    if ":" not in name and not name[-1:].isdigit():
        return name
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    return str(getattr(address, "ipv4_mapped", None) or address)


def is_address(host: str) -> bool:
    """Return whether the host is an address rather than a name."""
    name = name_of(host)
    return ":" in name or bool(_NUMBER.fullmatch(name.rpartition(".")[2]))


def is_local(host: str, local_names: Collection[str]) -> bool:
    """Return whether a checked host is this machine. `local_names`: this machine's names and addresses, lower case."""
    name = name_of(host)
    return name in local_names or (is_address(name) and ipaddress.ip_address(name).is_loopback)


def parse_hosts(text: str) -> HostList:
    """`h0:4,h1,[fd00::1]:2` -> 4 slots on h0, 1 on h1, 2 on fd00::1. A comma may end the list."""
    origin = f"-H {text}" if len(text) <= 60 else f"-H {text[:57]}..."
    slots = _unique(("-H", _item(each, "-H")) for each in split_list(text))
    return HostList(tuple(slots), one_line(origin))


def split_list(text: str) -> list[str]:
    """Split a list at its commas; it may end with a comma."""
    items = [each.strip(" ") for each in text.split(",")]
    return items[:-1] if len(items) > 1 and not items[-1] else items


def _item(text: str, where: str, default: int = 1) -> HostSlots:
    """`host:slots`, or `host` for the default number of slots."""
    match = _ITEM.fullmatch(text)
    if match is None or not match["host"]:
        raise SpecError(f"{where} wants host:slots, as in localhost:4, not {shown(text)}.")
    host, slots = match["host"], match["slots"]
    if slots is not None and ":" in slots and "[" not in host:
        raise SpecError(f"{where} wants brackets around an IPv6 address, as in [fd00::1]:4, not {shown(text)}.")
    return _slots(host, slots, where, default)


def _slots(host: str, slots: str | None, where: str, default: int = 1) -> HostSlots:
    try:
        checked = check_host(host)
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
    what = f"{'' if where == '-H' else f'{where}: '}the number of slots of {checked}"
    return HostSlots(checked, default if slots is None else parse_count(slots, what))


def _unique(found: Iterable[tuple[str, HostSlots]]) -> Iterator[HostSlots]:
    """Yield the same slots. Raises SpecError at the second line or item of a host."""
    first: dict[str, str] = {}
    for where, slots in found:
        name = name_of(slots.host)
        if name in first:
            before = "" if where == "-H" else f", first at {first[name]}"
            raise SpecError(f"{where}: host {slots.host} is listed twice{before}; list it once, with all its slots.")
        first[name] = where.rpartition(", ")[2]
        yield slots


def read_hostfile(path: Path) -> HostList:
    """Return the hosts in a file. Raises SpecError, also if the file cannot be read."""
    origin = f"--hostfile {path}"
    return parse_lines(read_text(path, origin, "list of hosts", MAX_FILE_BYTES), origin)


def parse_lines(text: str, origin: str, default: int = 1) -> HostList:
    """Lines `host slots=4` as Open MPI has them, `host:4` as MPICH, or `host`; # begins a comment. Raises SpecError.

    `default`: the slots of a host without a number.
    """
    lines = ((number, line.partition("#")[0].strip(" \t\r")) for number, line in enumerate(text.split("\n"), 1))
    items = ((where := f"{origin}, line {number}", _line(line, where, default)) for number, line in lines if line)
    slots = tuple(_unique(items))
    if not slots:
        raise SpecError(f"{origin} names no host; write lines such as localhost slots=4.")
    return HostList(slots, origin)


def _line(line: str, where: str, default: int) -> HostSlots:
    host, *fields = re.split(r"[ \t]+", re.sub(r"[ \t]*=[ \t]*", "=", line))
    if not fields:
        return _item(host, where, default)
    counts: dict[str, str] = {}
    for word in fields:
        match = _SLOTS.fullmatch(word)
        if match is None or (key := match["key"].replace("-", "_")) in counts:
            raise SpecError(f"{where}: {shown(word)} is not understood; write host slots=N or host:N.")
        counts[key] = match["count"]
    return _within_most(counts, host, where)


def _within_most(counts: Mapping[str, str], host: str, where: str) -> HostSlots:
    """Return the slots. Of `slots` and `max_slots` the first counts, since no host gets more ranks than slots here."""
    most = counts.get("max_slots")
    slots = _slots(host, counts.get("slots", most), where)
    if most is not None and slots.count > parse_count(most, f"{where}: the max_slots of {slots.host}"):
        raise SpecError(f"{where}: {slots.host} has more slots ({slots.count}) than its max_slots allows ({most}).")
    return slots


def one_name_here(slots: Iterable[HostSlots], local_names: Collection[str], here: str) -> list[HostSlots]:
    """Return the same slots, with those of this machine merged under the name `here`."""
    counts: Counter[str] = Counter()
    for each in slots:
        counts[here if is_local(each.host, local_names) else each.host] += each.count
    return [HostSlots(name, count) for name, count in counts.items()]


def about_one_machine(hosts: HostList, local_names: Collection[str]) -> str:
    """Return a sentence for a list that names this machine more than once; "" for other lists."""
    here = [each for each in hosts.slots if is_local(each.host, local_names)]
    if len(here) < 2:
        return ""
    names = f"{', '.join(each.host for each in here[:-1])} and {here[-1].host}"
    total = sum(each.count for each in here)
    return f"{hosts.origin}: {names} are the same machine, which counts as one host with {total} slots."


def under_one_name(slots: Iterable[HostSlots], local_names: Collection[str]) -> list[HostSlots]:
    """The same slots; those of this machine together, as `localhost` if all are, else as the first of its names."""
    merged: dict[str, HostSlots] = {}
    for each in slots:
        local = is_local(each.host, local_names)
        if local and "@" in each.host:
            raise SpecError(f"{each.host} is this machine, where ranks run as the launcher's user: leave out the user.")
        key = "" if local else each.host
        before = merged.get(key)
        merged[key] = each if before is None else HostSlots(before.host, before.count + each.count)
    if merged.keys() == {""}:
        return [HostSlots(LOCAL_HOST, merged[""].count)]
    return list(merged.values())

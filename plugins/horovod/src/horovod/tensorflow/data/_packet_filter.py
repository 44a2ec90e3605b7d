"""Admits some hosts only to the ports of TensorFlow's servers, which listen at every address and know no keys.

The kernel asks a socket's filter about each packet for it, so other hosts get no connection. Any process may give its
sockets such a program of classic BPF (Linux: Documentation/networking/filter.rst):

    A = version in the IP header
    4:  A = source; for each network: accept if (A & mask) == network
    6:  accept if the source is ::1
    drop
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import stat
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

LOOPBACK = ("127.0.0.0/8",)
_SO_ATTACH_FILTER, _SO_ATTACH_REUSEPORT_CBPF = 26, 51
_PROGRAM = struct.Struct("HP")  # struct sock_fprog
_INSTRUCTION = struct.Struct("HBBI")  # struct sock_filter
_NETWORK_HEADER = 0xFFF00000  # SKF_NET_OFF
_LOAD_BYTE, _LOAD_WORD, _SHIFT_RIGHT, _AND, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x20, 0x74, 0x54, 0x15, 0x06
_DROP, _ACCEPT = (_RETURN, 0, 0, 0), (_RETURN, 0, 0, 0xFFFFFFFF)
_FIRST = (_RETURN, 0, 0, 0)  # of the sockets at a port
_SOURCE_4, _SOURCE_6 = _NETWORK_HEADER + 12, _NETWORK_HEADER + 8
_Instruction = tuple[int, int, int, int]


@contextmanager
def held_port() -> Iterator[int]:
    """A port at which a server of this process can listen, and that lets nobody in until the context ends.

    A server may not have its filter before it listens. So a socket of ours listens at the port first, and the kernel,
    which shares out connections to all sockets at a port, is told to choose the first one, which drops everything.
    """
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family) as holder:
        if family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("", 0))
        _attach(holder, _SO_ATTACH_FILTER, [_DROP])
        holder.listen(1)
        _attach(holder, _SO_ATTACH_REUSEPORT_CBPF, [_FIRST])
        yield holder.getsockname()[1]


def listeners() -> dict[int, int]:
    """The ports where this process listens for TCP, by the inodes of their sockets."""
    return {inode: each.getsockname()[1] for inode, each in _listening()}


def admit(inodes: Collection[int], networks: Iterable[str]) -> None:
    """Let only these IPv4 networks or addresses, and ::1, connect to the listeners. Raises OSError."""
    program = _program(networks)
    for inode, each in _listening():
        if inode in inodes:
            _attach(each, _SO_ATTACH_FILTER, program)


def _attach(to: socket.socket, option: int, instructions: Sequence[_Instruction]) -> None:
    program = b"".join(_INSTRUCTION.pack(*each) for each in instructions)
    kept = ctypes.create_string_buffer(program)
    to.setsockopt(socket.SOL_SOCKET, option, _PROGRAM.pack(len(instructions), ctypes.addressof(kept)))


def _program(networks: Iterable[str]) -> list[_Instruction]:
    """A jump's numbers say how many instructions to pass over: if equal, and if not."""
    of_6: list[_Instruction] = []
    for part, word in enumerate((0, 0, 0, 1)):
        of_6 += [(_LOAD_WORD, 0, 0, _SOURCE_6 + 4 * part), (_JUMP_IF_EQUAL, 1, 0, word), _DROP]
    of_4: list[_Instruction] = []
    for each in map(ipaddress.IPv4Network, dict.fromkeys(networks)):
        of_4 += [(_LOAD_WORD, 0, 0, _SOURCE_4), (_AND, 0, 0, int(each.netmask))]
        of_4 += [(_JUMP_IF_EQUAL, 0, 1, int(each.network_address)), _ACCEPT]
    version = [(_LOAD_BYTE, 0, 0, _NETWORK_HEADER), (_SHIFT_RIGHT, 0, 0, 4)]
    return [*version, (_JUMP_IF_EQUAL, 0, len(of_6) + 1, 6), *of_6, _ACCEPT, *of_4, _DROP]


def _listening() -> Iterator[tuple[int, socket.socket]]:
    for name in os.listdir("/proc/self/fd"):
        with _copy_of(int(name)) as found:
            if found and found.family in (socket.AF_INET, socket.AF_INET6) and _accepts(found):
                yield os.fstat(found.fileno()).st_ino, found


def _accepts(found: socket.socket) -> bool:
    return found.type == socket.SOCK_STREAM and bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


@contextmanager
def _copy_of(descriptor: int) -> Iterator[socket.socket | None]:
    """A socket of this process with a descriptor of its own; None where it is none, or closed by now."""
    try:
        copy = os.dup(descriptor)
    except OSError:
        yield None
        return
    if not stat.S_ISSOCK(os.fstat(copy).st_mode):
        os.close(copy)
        yield None
        return
    with socket.socket(fileno=copy) as found:
        yield found

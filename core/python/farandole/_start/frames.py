"""Frames between processes of a job: messages, output of ranks, and the function that ranks call.

A frame has a length, a kind and a content. Messages are JSON. A reader skips everything before the greeting of an
agent, because the start files of a shell may print text. Pure.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

GREETING = b"\n\0farandole-agent\0\n"
MOST_NOISE_BYTES = 1 << 18
MOST_BYTES = 1 << 26  # of a frame; the message that starts a job contains the whole environment
_HEAD = struct.Struct("!IB")
HEAD_BYTES = _HEAD.size
_OUTPUT_HEAD = struct.Struct("!IB")
_MESSAGE, _OUTPUT = 1, 2
STDOUT, STDERR, OUTCOME = 0, 1, 2  # the pipes of a rank
CALL = 3  # the function that ranks call, and its arguments, sent to an agent


class FrameError(ValueError):
    """The other side does not speak this protocol."""


@dataclass(frozen=True)
class Output:
    """A piece of a rank's output, or of the function."""

    rank: int
    pipe: int
    data: bytes


Message = dict[str, Any]
"""Has "kind", and what belongs to that kind."""


def message(kind: str, **content: Any) -> bytes:
    """Return the frame of a message."""
    text = json.dumps({"kind": kind, **content}).encode()
    return _HEAD.pack(len(text), _MESSAGE) + text


def output(rank: int, pipe: int, data: bytes) -> bytes:
    """Return the frame of a piece of output."""
    return _HEAD.pack(_OUTPUT_HEAD.size + len(data), _OUTPUT) + _OUTPUT_HEAD.pack(rank, pipe) + data


def size_of(head: bytes) -> int:
    """Return the size of the message that follows this head. Raises FrameError for anything but a message."""
    size, kind = _HEAD.unpack(head)
    if size > MOST_BYTES or kind != _MESSAGE:
        raise FrameError(f"a frame of {size} bytes and kind {kind} is no message")
    return int(size)


def content_of(data: bytes) -> Message:
    """Parse the content of a message. Raises FrameError."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise FrameError("a message is no JSON") from error
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise FrameError("a message has no kind")
    return found


def split(data: bytes | bytearray) -> tuple[Message, memoryview]:
    """Split the first message off. Returns an empty message if it is not complete."""
    view = memoryview(data)
    end = HEAD_BYTES + (size_of(bytes(view[:HEAD_BYTES])) if len(data) >= HEAD_BYTES else len(data))
    return (content_of(bytes(view[HEAD_BYTES:end])), view[end:]) if end <= len(data) else ({}, view)


class FrameReader:
    """Turns bytes into frames. `greeted` is true once the greeting has come, or if none is expected."""

    def __init__(self, greeted: bool = False) -> None:
        self._bytes = bytearray()
        self._greeted = greeted

    def feed(self, data: bytes) -> Iterator[Message | Output]:
        """Yield the frames that `data` completes. Raises FrameError."""
        self._bytes += data
        if not self._greeted and not self._find_greeting():
            return
        while len(self._bytes) >= _HEAD.size:
            size, kind = _HEAD.unpack_from(self._bytes)
            if size > MOST_BYTES or kind not in (_MESSAGE, _OUTPUT):
                raise FrameError(f"a frame of {size} bytes and kind {kind} is none of Farandole's")
            if len(self._bytes) < _HEAD.size + size:
                return
            content = bytes(self._bytes[_HEAD.size : _HEAD.size + size])
            del self._bytes[: _HEAD.size + size]
            yield _decoded(kind, content)

    def _find_greeting(self) -> bool:
        at = self._bytes.find(GREETING)
        if at < 0:
            if len(self._bytes) > MOST_NOISE_BYTES:
                raise FrameError("it prints without end instead of greeting")
            return False
        del self._bytes[: at + len(GREETING)]
        self._greeted = True
        return True


def _decoded(kind: int, content: bytes) -> Message | Output:
    if kind == _OUTPUT:
        if len(content) < _OUTPUT_HEAD.size:
            raise FrameError("a frame of output is too short")
        rank, pipe = _OUTPUT_HEAD.unpack_from(content)
        if pipe > CALL:
            raise FrameError("a rank has no such pipe")
        return Output(rank, pipe, content[_OUTPUT_HEAD.size :])
    return content_of(content)

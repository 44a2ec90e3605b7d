"""Sends a rank's timeline to a URL of fsspec, in a process of its own, which also outlives a rank that is killed.

    rank     TraceWriter   --> memory files A and B, by turns
             a thread      <-- requests and complaints --.
    uploader                   reads A and B ------------+--> snapshots, each whole JSON --> fsspec

Object stores cannot append. So the uploader sends the whole file again and again, and lets the rank go on in the other
file when one is large: objects are small, and so is the memory. A rate bounds the bytes that are sent anew, and a share
of the time bounds the work. See `remote.py` for the rank's side.

    python -m farandole._runtime.uploader RANK_PID SOCKET A B     the URL comes by the socket
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

from farandole._runtime.trace_names import marked, shown

NEXT, SAY, FAIL = b"n", b"s", b"f"  # go on in the other file; a sentence; the last one, after which nothing is sent
MOST_MESSAGE = 4096

EVERY_S = 10.0
PART_BYTES = 16 << 20
MOST_BYTES = 64 << 20  # of what could not be sent
_BYTES_PER_S = 256 << 10  # of snapshots
_SHARE = 0.02  # of the time
_TRIES = 3  # at the end
_END = b"\n]\n"  # of a trace

Put = Callable[[str, bytes], None]


class HopelessError(Exception):
    """No later attempt will fare better; the message says why."""


def snapshot(file: int) -> bytes:
    """The events that a file holds now, as whole JSON, though a writer may be at work on its end."""
    size = os.fstat(file).st_size
    data = os.pread(file, max(size - len(_END), 1), 0).rstrip()
    line = data[data.rfind(b"\n") + 1 :]
    if not _is_whole(line):  # the beginning of an event that is longer than a page
        data = data[: -len(line) or None]
    return (data.rstrip(b" ,\n") or b"[") + _END


def _is_whole(line: bytes) -> bool:
    if line == b"[":
        return True
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


class Uploader:
    """Sends parts until the rank ends: `url`, then `url` with .part2 and so on before its suffix."""

    def __init__(self, url: str, files: tuple[int, int], control: socket.socket, ends: int, put: Put) -> None:
        """`control`: to the rank; at its end the rank wants no more. `ends`: readable when the rank is dead."""
        self._url, self._files, self._control, self._ends, self._put = url, files, control, ends, put
        self._part, self._sent_bytes, self._took_s = 1, -1, 0.0
        self._is_complete = False  # this part; the rank is writing the next
        self._has_sent = self._has_complained = False

    def run(self) -> None:
        """Return when the last is sent, or when nothing can be."""
        ended = False
        try:
            while True:
                if not (ended or self._is_complete) and self._size(self._file) >= PART_BYTES:
                    ended = not self._go_on()
                if self._send(tries=_TRIES if ended else 1) and self._is_complete:
                    self._part, self._sent_bytes, self._is_complete = self._part + 1, -1, False
                elif ended:
                    return
                elif self._is_complete and self._size(self._other) > MOST_BYTES:
                    raise HopelessError(f"more than {MOST_BYTES >> 20} MiB wait to be sent")
                else:
                    ended = self._pause() or ended
        except HopelessError as error:
            self._tell(FAIL, f"{error}; training goes on, and the timeline ends")

    @property
    def _file(self) -> int:
        return self._files[(self._part - 1) % 2]

    @property
    def _other(self) -> int:
        return self._files[self._part % 2]

    @staticmethod
    def _size(file: int) -> int:
        return os.fstat(file).st_size

    def _go_on(self) -> bool:
        """Let the rank write to the other file. False if it has ended."""
        with contextlib.suppress(OSError):
            self._control.send(NEXT)
            self._wait(None)
            self._is_complete = self._control.recv(MOST_MESSAGE, socket.MSG_DONTWAIT) == NEXT
        return self._is_complete

    def _send(self, tries: int) -> bool:
        """Put what this part holds; true if it is there. Raises HopelessError."""
        size = self._size(self._file)
        if size == self._sent_bytes:
            return True
        for number in range(tries):
            begin = time.monotonic()
            try:
                self._put(self._target, snapshot(self._file))
                self._sent_bytes, self._has_sent = size, True
                return True
            except HopelessError:
                raise
            except Exception as error:
                if number == tries - 1:
                    self._complain(error, is_last=tries > 1)
            finally:
                self._took_s = time.monotonic() - begin
        return False

    @property
    def _target(self) -> str:
        return self._url if self._part == 1 else marked(self._url, f"part{self._part}")

    def _complain(self, error: Exception, is_last: bool) -> None:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if not self._has_complained:
            self._tell(SAY, f"{why}; training goes on" + ("" if is_last else ", and later attempts follow"))
        elif is_last and self._has_sent:
            self._tell(SAY, f"{why}; its end is missing there")
        self._has_complained = True

    def _tell(self, kind: bytes, why: str) -> None:
        text = f"the timeline cannot be written to {shown(self._target)}: {why}"
        with contextlib.suppress(OSError):  # the rank is dead
            self._control.send(kind + text.encode()[: MOST_MESSAGE - 1])

    def _pause(self) -> bool:
        """Wait before the next attempt; true when the rank has ended."""
        seconds = max(EVERY_S, self._took_s / _SHARE, self._size(self._file) / _BYTES_PER_S)
        return self._wait(seconds)

    def _wait(self, seconds: float | None) -> bool:
        """Wait for a message of the rank, or its end."""
        return bool(select.select([self._control.fileno(), self._ends], [], [], seconds)[0])


def put(url: str, data: bytes) -> None:
    """Write an object. A file system on which others could see a part of it writes to another name first."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise HopelessError(f"fsspec is not there ({error}): {sys.executable} -m pip install fsspec") from error
    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:  # of the protocol
        raise HopelessError(str(error)) from error
    with system.transaction:
        system.pipe_file(path, data)


def main() -> None:
    """Serve the rank that has started this process."""
    parent, control, *files = map(int, sys.argv[1:])
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the rank's end is what ends it
        signal.signal(each, signal.SIG_IGN)
    os.nice(10)  # ranks come first
    connection = socket.socket(fileno=control)
    url = connection.recv(MOST_MESSAGE).decode()
    try:
        ends = os.pidfd_open(parent)
    except ProcessLookupError:
        ends = os.open(os.devnull, os.O_RDONLY)  # always readable
    Uploader(url, (files[0], files[1]), connection, ends, put).run()


if __name__ == "__main__":
    main()

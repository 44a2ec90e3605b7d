"""A rank's timeline at a URL: the rank's side of `uploader.py`."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from farandole._runtime.trace_names import shown
from farandole._runtime.uploader import FAIL, MOST_MESSAGE, NEXT
from farandole._start.log import logger

if TYPE_CHECKING:
    from farandole._runtime.trace_writer import TraceWriter


class Upload:
    """The memory files of a timeline, and the process that sends them."""

    def __init__(self, url: str, start: Callable[[str], TraceWriter]) -> None:
        """`start` begins the timeline in a file. Raises what it raises."""
        self.url, self.process_id, self.is_closing = url, os.getpid(), False
        self._files = [os.memfd_create(f"farandole timeline {number}") for number in range(2)]
        self._current = 0
        self.writer = start(self._path)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._child = self._start_uploader(theirs.fileno())
        self._socket.send(url.encode())
        self._thread = threading.Thread(target=self._serve, name="farandole timeline", daemon=True)
        self._thread.start()

    def _start_uploader(self, control: int) -> subprocess.Popen[bytes]:
        inherited = [control, *self._files]
        return subprocess.Popen(
            [sys.executable, "-m", "farandole._runtime.uploader", *map(str, [os.getpid(), *inherited])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=inherited,
            start_new_session=True,  # signals of the terminal are for the rank
        )

    @property
    def is_over(self) -> bool:
        """True when the uploader has ended."""
        return not self._thread.is_alive()

    @property
    def _path(self) -> str:
        return f"/proc/self/fd/{self._files[self._current]}"

    def close(self) -> None:
        """The timeline has ended; the last of it is sent meanwhile."""
        self.is_closing = True
        with contextlib.suppress(OSError):  # the uploader has failed before
            self._socket.shutdown(socket.SHUT_WR)

    def wait(self, until: float) -> None:
        """Wait until all is sent, or until this moment of time.monotonic()."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            logger.warning("process %d is still sending the timeline to %s", self._child.pid, shown(self.url))

    def _serve(self) -> None:
        """In a thread of its own, which mostly waits."""
        has_told = False
        while message := self._receive():
            if message == NEXT:
                self._go_on()
            else:
                has_told = message[:1] == FAIL
                logger.warning("%s", message[1:].decode(errors="replace"))
        if not self.is_closing:
            if not has_told:
                logger.warning("the process that sends the timeline to %s has died; it ends there", shown(self.url))
            self._continue_in(os.devnull)  # until the user stops it
        self._socket.close()
        for file in self._files:
            os.close(file)
        self._child.wait()

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(MOST_MESSAGE)
        except OSError:  # it was killed
            return b""

    def _go_on(self) -> None:
        """Let the writer go on in the other file, of which all has been sent."""
        self._current = 1 - self._current
        if self._continue_in(self._path):
            with contextlib.suppress(OSError):
                self._socket.send(NEXT)

    def _continue_in(self, path: str) -> bool:
        if self.is_closing:
            return False
        try:
            self.writer.continue_in(path)
        except ValueError:  # the timeline has ended, and the end of this thread is near
            return False
        return True

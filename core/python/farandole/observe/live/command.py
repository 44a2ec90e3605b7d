"""Examines the ranks, makes frames and serves the page, in a process beside the launcher or for a running job."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from farandole.launch import environment
from farandole.launch.files import read_text
from farandole.launch.job import python
from farandole.launch.messages import shown
from farandole.launch.shared_options import print_error
from farandole.launch.spec import Metrics, SpecError
from farandole.observe import jobs, processes
from farandole.observe.diagnosis import Rank
from farandole.observe.live.metrics import CONTENT_TYPE, as_text
from farandole.observe.live.model import Model
from farandole.observe.live.server import ADDRESS, Content, History, Server, page
from farandole.observe.tails import Tails, descends, pause_s

_EVERY_S = 0.5
_UNREAD_EVERY_S = 2.0  # while nobody looks at the page
_SHARE, _MOST_S = 0.005, 4.0  # share of all processors for frames, and most seconds between two
_END_S = 3.0  # for the process beside the launcher to end
_LINGER_S = 0.8  # for pages to fetch the last frame; they ask three times a second
_NICE = 10  # low priority, because ranks come first

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """The page, the metrics, or both. Port 0 means any free port."""

    page_port: int | None = None
    metrics_port: int | None = None
    metrics_address: str = ADDRESS
    metrics_secret: str = ""  # if "", a new one is made


_SECRET = re.compile(r"[A-Za-z0-9_.~+-]{16,256}")


def wanted(page_port: int | None, given: Metrics) -> Wanted | None:
    """Return which of the page and the metrics are wanted, or None. Raises SpecError."""
    address, secret_file = given.metrics_address, given.metrics_key_file
    if given.metrics is None and (address is not None or secret_file is not None):
        raise SpecError("--metrics-address and --metrics-key-file need --metrics PORT.", "metrics")
    if page_port is None and given.metrics is None:
        return None
    try:
        where = ADDRESS if address is None else str(ipaddress.IPv4Address(address))
    except ValueError as error:
        raise SpecError(
            f"--metrics-address wants an IPv4 address of this host, not {shown(address)}.", "metrics_address"
        ) from error
    return Wanted(page_port, given.metrics, where, "" if secret_file is None else _secret(secret_file))


def _secret(path: Path) -> str:
    where = f"--metrics-key-file {path}"
    text = read_text(path, where, "file of a secret", 4096).strip()
    if not _SECRET.fullmatch(text):
        raise SpecError(f"{where} must hold one word of 16 to 256 letters, digits and _.~+-; make one with uuidgen.")
    return text


class Live:
    """Serves a page, metrics, or both, until the job is over."""

    def __init__(self, tails: Tails, wanted: Wanted, say: Say) -> None:
        self._tails, self._history = tails, History()
        self._model = Model(time.monotonic_ns())
        self._metrics = as_text([], 0)
        self._serves_metrics = wanted.metrics_port is not None
        self._servers: list[Server] = []
        if wanted.page_port is not None:
            self._serve_page(wanted.page_port, say)
        if wanted.metrics_port is not None:
            self._serve_metrics(wanted, wanted.metrics_port, say)

    def _serve_page(self, port: int, say: Say) -> None:
        answer = page(self._history)
        try:
            server = Server(answer, port)
        except OSError as error:
            if port == 0:
                raise
            server = Server(answer, 0)
            why = (error.strerror or str(error)).lower()
            say(f"port {port} is not available ({why}), so the page uses port {server.port}.")
        self._servers.append(server)
        say(f"live page: {server.url} (on this machine only; the address is a secret).")

    def _serve_metrics(self, wanted: Wanted, port: int, say: Say) -> None:
        def answer(name: str, _query: str) -> Content | None:
            return Content(self._metrics.encode(), CONTENT_TYPE) if name == "metrics" else None

        try:
            server = Server(answer, port, wanted.metrics_address, wanted.metrics_secret)
        except OSError as error:
            say(f"metrics cannot be served at {wanted.metrics_address}:{port}: {error.strerror or error}.")
            return
        self._servers.append(server)
        if not wanted.metrics_secret:
            say(f"metrics: {server.url}metrics (the address is a secret).")
        elif port == 0:
            say(f"metrics: http://{wanted.metrics_address}:{server.port}/metrics (for the key of --metrics-key-file).")

    def run(self, is_over: Callable[[list[Rank]], bool], ends: Sequence[int] = ()) -> None:
        """Publish frames until the job is over, or one of the descriptors `ends` is readable."""
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        stopped, spent_s = not self._servers, time.process_time()
        while not stopped:
            now_ns = time.monotonic_ns()  # before the look: otherwise what ends meanwhile would seem long
            seen = self._tails.look()
            self._publish(seen, now_ns)
            if is_over(seen):
                break
            cost_s, spent_s = time.process_time() - spent_s, time.process_time()
            every_s = pause_s(cost_s, _SHARE, _EVERY_S, _MOST_S) if self._history.is_watched else _UNREAD_EVERY_S
            stopped = bool(select.select(ends, [], [], every_s)[0])
        self._history.end()
        if self._history.is_watched:
            time.sleep(_LINGER_S)
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _publish(self, seen: list[Rank], now_ns: int) -> None:
        if self._serves_metrics:
            self._metrics = as_text(seen, now_ns)
        if seen:
            frame = self._model.frame(seen, now_ns)
            self._history.publish(json.dumps(frame, separators=(",", ":")).encode())


def watch(base: Mapping[str, str], named: str, wanted: Wanted, say: Say) -> None:
    """Serve a page for a running job until it ends. Raises InspectionError, OSError."""
    job = jobs.choose(jobs.find(base), named)
    latest = [*job.recordings]

    def is_over(seen: list[Rank]) -> bool:
        """Return whether the job is over. Missing files do not prove it: there are none between two epochs."""
        latest[:] = [each.recording for each in seen] or latest
        return not any(map(processes.is_alive, latest))

    Live(Tails(base, lambda recording: recording.run == job.run), wanted, say).run(is_over)


@contextlib.contextmanager
def beside(base: Mapping[str, str], wanted: Wanted) -> Iterator[None]:
    """Serve the page or the metrics of ranks that this process will start, from a separate process.

    That process ends with its stdin, and so with this process, however that ends.
    """
    command = [*python("farandole.observe.live.command"), str(os.getpid())]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(command, env=dict(base), stdin=pipe, stdout=null, start_new_session=True)
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asdict(wanted)).encode() + b"\n")  # has the secret
            process.stdin.flush()
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """Serve beside the launcher with the given pid; stdin says what. If this fails, the job goes on without it."""
    launcher, wanted = int(sys.argv[1]), Wanted(**json.loads(sys.stdin.buffer.readline()))
    os.nice(_NICE)
    try:
        tails = Tails(environment.inherited(), lambda recording: descends(recording.pid, launcher))
        Live(tails, wanted, print_error).run(lambda _: False, [sys.stdin.fileno()])
    except OSError as error:
        print_error(f"the live page cannot be served: {error.strerror or error}.")
    except Exception as error:
        print_error(f"the live page has failed, and the job goes on without it: {type(error).__name__}: {error}.")

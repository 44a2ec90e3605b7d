"""Answers a browser or a monitoring system that has the secret. The page is served only on this machine.

Other users of the machine can reach the port, and web pages can make a browser send requests to it. So a request is
refused, without content, unless its path begins with the secret or a header contains it, its Host names this server
(which fails after DNS rebinding), and no other site has caused it.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import socketserver
import threading
import time
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

ADDRESS = "127.0.0.1"
_MOST_BYTES = 4 << 20  # of frames
_WATCHED_S = 3.0  # after a request, during which a page is still open; pages ask several times a second
_REQUEST_S = 20.0  # to receive a request and send the answer
_MOST_CONNECTIONS = 32
_REFUSED = "/"  # cannot be a name
_PAGE = Path(__file__).with_name("page")
_FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "lanes.js": ("lanes.js", "text/javascript; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "; ".join(
        [f"{each}-src 'self'" for each in ("script", "style", "connect", "img")]
        + [f"{each} 'none'" for each in ("default-src", "base-uri", "form-action", "frame-ancestors")]
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class History:
    """The latest frames, from which browsers fetch those that they lack. Nobody waits for a browser.

    Frames are numbered from 0. If there is no room, the oldest are dropped. Thread safe.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self._frames: deque[bytes] = deque()
        self._bytes, self._most_bytes = 0, most_bytes
        self._next = 0  # the number of the next frame
        self._over = False
        self._asked_s = float("-inf")

    @property
    def is_watched(self) -> bool:
        """Return whether a page has asked for frames recently."""
        return time.monotonic() - self._asked_s < _WATCHED_S

    def publish(self, frame: bytes) -> None:
        """Add a frame, as JSON."""
        with self._lock:
            self._next += 1
            self._frames.append(frame)
            self._bytes += len(frame)
            while self._bytes > self._most_bytes and len(self._frames) > 1:
                self._bytes -= len(self._frames.popleft())

    def end(self) -> None:
        """Note that no more frames will come."""
        self._over = True

    def since(self, number: int) -> bytes:
        """Return as JSON the frames from `number` on, the next number, how many were dropped, and the end."""
        self._asked_s = time.monotonic()
        with self._lock:
            first = self._next - len(self._frames)
            frames = list(self._frames)[max(0, number - first) :]
            missed = max(0, first - number) if number else 0  # a new page has missed nothing
            state = b'"next":%d,"missed":%d,"over":%s' % (self._next, missed, b"true" if self._over else b"false")
        return b'{%s,"frames":[%s]}' % (state, b",".join(frames))


class Content(NamedTuple):
    """The content of an answer, and its type."""

    body: bytes
    kind: str


Answer = Callable[[str, str], Content | None]  # from a name and its query to the content, or None


def page(history: History) -> Answer:
    """Return the answers of the page: its files, and `frames?NUMBER` for the frames from that number on."""

    def answer(name: str, query: str) -> Content | None:
        if name == "frames":
            return Content(history.since(int(query) if query.isdecimal() else 0), "application/json")
        if name not in _FILES:
            return None
        file, kind = _FILES[name]
        return Content((_PAGE / file).read_bytes(), kind)

    return answer


class Server(socketserver.ThreadingTCPServer):
    """Listens on one address of this machine. Raises OSError if the port is taken."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, answer: Answer, port: int, address: str = ADDRESS, token: str = "") -> None:
        self.answer, self.token = answer, token or secrets.token_urlsafe(24)
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__((address, port), _Handler)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Its address, which contains the secret."""
        return f"http://{self.server_address[0]!s}:{self.port}/{self.token}/"

    def knows_host(self, hosts: list[str]) -> bool:
        """Return whether Host names this server. If other machines reach its address, any name is accepted."""
        ours = f"{ADDRESS}:{self.port}", f"localhost:{self.port}"
        return len(hosts) == 1 and (self.server_address[0] != ADDRESS or hosts[0].strip().lower() in ours)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or hang up if there are too many requests."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Call the base class, then make room for another request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors, because a browser that hangs up is not an error."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def handle(self) -> None:
        """Handle one request, with a time limit."""
        watch = threading.Timer(_REQUEST_S, self._hang_up)
        watch.daemon = True
        watch.start()
        with contextlib.suppress(OSError):
            self.handle_one_request()
        watch.cancel()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Serve the page, its data or the metrics."""
        name, _, query = self._allowed_name().partition("?")
        if name == _REFUSED:
            self._send(403)
        elif content := self.server.answer(name, query):
            self._send(200, content)
        else:
            self._send(404)

    def _refuse_method(self) -> None:
        self._send(403 if self._allowed_name() == _REFUSED else 405)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_TRACE = do_CONNECT = _refuse_method

    def _allowed_name(self) -> str:
        """Return the name in `/SECRET/NAME`, or in `/NAME` with the secret in a header, or _REFUSED without it."""
        token, slash, name = self.path.removeprefix("/").partition("/")
        if not slash:
            (scheme, _, token), name = self.headers.get("Authorization", "").partition(" "), token
            token = token if scheme == "Bearer" else ""
        knows_secret = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        knows_host = self.server.knows_host(self.headers.get_all("Host", []))
        return name if knows_secret and knows_host and not self._is_of_another_site() else _REFUSED

    def _is_of_another_site(self) -> bool:
        origin = self.headers.get("Origin")
        own = origin is None or self.server.knows_host([origin.removeprefix("http://")])
        return not own or self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer requests that cannot be parsed, without naming this server."""
        self._send(int(code))

    def _send(self, code: int, content: Content | None = None) -> None:
        self.request_version = "HTTP/1.0"
        self.send_response_only(code)
        body, headers = (content.body, {"Content-Type": content.kind, **_HEADERS}) if content else (b"", {})
        for name, value in {**headers, "Content-Length": str(len(body)), "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the path is a secret, and the terminal belongs to the ranks."""

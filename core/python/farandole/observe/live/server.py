"""The answers to the browser: the page and a stream of events, only with the secret, and only on this machine.

Other users of the machine can reach the port, and web pages can make a browser send requests to it. A request is
refused without content unless its path begins with the secret, its Host is ours, as after DNS rebinding it is not, and
no other site has caused it.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from farandole.observe.live.hub import Hub
from farandole.observe.live.metrics import CONTENT_TYPE

ADDRESS = "127.0.0.1"
_REQUEST_S = 5.0  # for a request to be whole
_WRITE_S = 20.0  # for a frame to be taken
_QUIET_S = 10.0  # after which a line keeps the connection
_MOST_CONNECTIONS = 32
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


class LiveServer(socketserver.ThreadingTCPServer):
    """Listens on this machine's own address. Raises OSError for a port that is taken."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, port: int, hub: Hub, address: str = ADDRESS, token: str = "") -> None:
        self.hub, self.token = hub, token or secrets.token_urlsafe(24)
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__((address, port), self.handler())

    def handler(self) -> type[_Handler]:
        """The class that answers a request."""
        return _Handler

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The page's address, which is a secret."""
        return f"http://{ADDRESS}:{self.port}/{self.token}/"

    def knows_host(self, hosts: list[str]) -> bool:
        """Returns whether a request's Host headers are one that names us."""
        return len(hosts) == 1 and hosts[0].strip().lower() in (f"{ADDRESS}:{self.port}", f"localhost:{self.port}")

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; hang up where there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As the base class, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = _WRITE_S

    def handle(self) -> None:
        """One request, which has to be whole soon."""
        watch = threading.Timer(_REQUEST_S, self._hang_up)
        watch.daemon = True
        watch.start()
        self._watch = watch
        try:
            with contextlib.suppress(OSError):
                self.handle_one_request()
        finally:
            watch.cancel()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """The page, one of its files, or the events."""
        name = self._allowed()
        if name is None:
            self._answer(403)
        elif name == "events":
            self._watch.cancel()
            self._stream()
        elif name in _FILES:
            file, kind = _FILES[name]
            self._answer(200, (_PAGE / file).read_bytes(), kind)
        else:
            self._answer(404)

    def _refuse_method(self) -> None:
        self._answer(403 if self._allowed() is None else 405)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = do_TRACE = do_CONNECT = _refuse_method

    def _allowed(self) -> str | None:
        """The name behind the secret, for a request that may be answered."""
        token, slash, name = self.path.partition("?")[0].removeprefix("/").partition("/")
        knows_secret = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        knows_host = self.server.knows_host(self.headers.get_all("Host", []))
        return name if knows_secret and knows_host and slash and not self._is_of_another_site() else None

    def _is_of_another_site(self) -> bool:
        origin = self.headers.get("Origin")
        own = origin is None or self.server.knows_host([origin.removeprefix("http://")])
        return not own or self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """For requests that cannot be read: without a word about us."""
        self._answer(int(code))

    def _answer(self, code: int, body: bytes = b"", kind: str = "") -> None:
        self.request_version = "HTTP/1.0"
        self.send_response_only(code)
        for name, value in {**({"Content-Type": kind} if kind else {}), **(_HEADERS if code == 200 else {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        reader = self.server.hub.join()
        if reader is None:
            self._answer(503)
            return
        try:
            self.send_response_only(200)
            for name, value in {"Content-Type": "text/event-stream; charset=utf-8", **_HEADERS}.items():
                self.send_header(name, value)
            self.end_headers()
            over = False
            while not over:
                frame, missed, over = reader.take(_QUIET_S)
                if missed:
                    self.wfile.write(b"event: missed\ndata: %d\n\n" % missed)
                self.wfile.write(b": here\n\n" if frame is None else frame)
        except OSError:  # it went, or took nothing for too long; a browser comes again by itself
            pass
        finally:
            self.server.hub.leave(reader)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the path is a secret, and the terminal is the ranks'."""


class MetricsServer(LiveServer):
    """Answers /metrics alone: behind the secret as the page, or to `Authorization: Bearer SECRET`."""

    def __init__(self, port: int, address: str = ADDRESS, token: str = "") -> None:
        self.text = b""
        super().__init__(port, Hub(), address, token)

    def handler(self) -> type[_Handler]:
        """The class that answers a request."""
        return _MetricsHandler

    @property
    def url(self) -> str:
        """The address of the metrics, which is a secret."""
        return f"http://{self.server_address[0]!s}:{self.port}/{self.token}/metrics"

    def knows_host(self, hosts: list[str]) -> bool:
        """As for the page; on another address than this machine's own any name may lead here."""
        return super().knows_host(hosts) or (self.server_address[0] != ADDRESS and len(hosts) == 1)


class _MetricsHandler(_Handler):
    server: MetricsServer

    def do_GET(self) -> None:
        """The metrics."""
        given = self.headers.get("Authorization", "").encode("utf-8", "replace")
        if self.path == "/metrics" and hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
            self.path = f"/{self.server.token}/metrics"
        name = self._allowed()
        if name is None:
            self._answer(403)
        elif name == "metrics":
            self._answer(200, self.server.text, CONTENT_TYPE)
        else:
            self._answer(404)


def open_server(port: int, hub: Hub) -> tuple[LiveServer, str]:
    """A server on this port, or on another with a sentence why. Port 0: any. Raises OSError."""
    try:
        return LiveServer(port, hub), ""
    except OSError as error:
        if port == 0:
            raise
        why = error.strerror or str(error)
        server = LiveServer(0, hub)
        return server, f"port {port} cannot be had ({why.lower()}), so the page has port {server.port}."

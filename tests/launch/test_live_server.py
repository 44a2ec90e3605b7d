"""The live page's server: who is refused, and that slow readers hold nobody up."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from farandole.launch.plan import _served
from farandole.launch.spec import JobSpec
from farandole.observe.live import server as live
from farandole.observe.live.command import Live
from farandole.observe.live.hub import Hub
from farandole.observe.live.server import LiveServer, MetricsServer, open_server
from farandole.observe.tails import Tails


@pytest.fixture
def served() -> Iterator[LiveServer]:
    server = LiveServer(0, Hub())
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(server: LiveServer, path: str, *headers: str, method: str = "GET", host: str | None = None) -> tuple[int, str]:
    """The code, and all that follows the first line."""
    name = f"127.0.0.1:{server.port}" if host is None else host
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {name}", *headers, "", ""]
        connection.sendall("\r\n".join(lines).encode())
        whole = b""
        while chunk := connection.recv(65536):
            whole += chunk
    first, _, rest = whole.decode().partition("\r\n")
    return int(first.split()[1]), rest


def is_empty(answer: str) -> bool:
    return answer == "Content-Length: 0\r\nConnection: close\r\n\r\n"


def test_the_page_and_its_files(served: LiveServer) -> None:
    for name, (file, kind) in live._FILES.items():
        code, answer = ask(served, f"/{served.token}/{name}")
        headers, _, body = answer.partition("\r\n\r\n")
        assert code == 200 and f"Content-Type: {kind}" in headers and len(body) > 50, file
        assert "Content-Security-Policy: script-src 'self'; " in headers and "; default-src 'none';" in headers
        assert "Access-Control" not in headers and "Server:" not in headers
    text = (live._PAGE / "index.html").read_text()
    assert set(re.findall(r'(?:src|href)="([^"]+)"', text)) == set(live._FILES) - {""}, "and nothing from elsewhere"
    assert not re.search(r"<script(?![^>]*src)|\son\w+=|\sstyle=", text), "nothing that the policy would refuse"


@pytest.mark.parametrize(
    "path",
    ["/", "//", "/events", "/{other}/", "/{other}/events", "/{less}/", "/{token}", "/{token}x/", "/%00/", "/é/", "x"],
)
def test_without_the_secret_there_is_no_content(served: LiveServer, path: str) -> None:
    token = served.token
    asked = path.format(token=token, other="A" * len(token), less=token[:-1])
    code, answer = ask(served, asked)
    assert code == 403 and is_empty(answer)


@pytest.mark.parametrize(
    "name",
    ["../server.py", "..%2fserver.py", "page/../../server.py", "/etc/passwd", "index.html", ".", "events/", "%65vents"],
)
def test_there_are_no_other_files(served: LiveServer, name: str) -> None:
    code, answer = ask(served, f"/{served.token}/{name}")
    assert code == 404 and is_empty(answer)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "localhost.evil:{port}", "[::1]:{port}"],
)
def test_a_name_that_was_made_to_lead_here_is_refused(served: LiveServer, host: str) -> None:
    code, answer = ask(served, f"/{served.token}/", host=host.format(port=served.port))
    assert code == 403 and is_empty(answer)


def test_two_names_are_refused_and_localhost_is_not(served: LiveServer) -> None:
    assert ask(served, f"/{served.token}/", f"Host: localhost:{served.port}")[0] == 403
    assert ask(served, f"/{served.token}/", host=f"localhost:{served.port}")[0] == 200


@pytest.mark.parametrize(
    "header",
    ["Origin: http://evil.example", "Origin: null", "Origin: https://127.0.0.1:{port}", "Origin: http://127.0.0.1:1"]
    + [f"Sec-Fetch-Site: {site}" for site in ("cross-site", "same-site", "else")],
)
def test_requests_of_other_sites_are_refused(served: LiveServer, header: str) -> None:
    code, answer = ask(served, f"/{served.token}/", header.format(port=served.port))
    assert code == 403 and is_empty(answer)


def test_requests_of_the_page_itself_are_answered(served: LiveServer) -> None:
    own = f"Origin: http://127.0.0.1:{served.port}", "Sec-Fetch-Site: same-origin"
    assert ask(served, f"/{served.token}/page.js", *own)[0] == 200
    assert ask(served, f"/{served.token}/", "Sec-Fetch-Site: none")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_can_be_changed(served: LiveServer, method: str) -> None:
    code, answer = ask(served, f"/{served.token}/", method=method)
    assert code == 405 and is_empty(answer)
    assert ask(served, "/", method=method)[0] == 403


@pytest.mark.parametrize(
    "line", ["BREW /{token}/ HTTP/1.1", "GET", "GET / HTTP/9.9", "\x16\x03\x01", "GET /" + "a" * 70000]
)
def test_what_is_no_request_gets_no_content(served: LiveServer, line: str) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall((line.format(token=served.token) + "\r\n\r\n").encode("latin-1"))
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except ConnectionResetError:
            pass
    assert answer == b"" or (answer.startswith(b"HTTP/1.0 4") or answer.startswith(b"HTTP/1.0 50"))
    assert answer.partition(b"\r\n\r\n")[2] == b"" and served.token.encode() not in answer


def test_it_listens_on_this_machine_alone(served: LiveServer) -> None:
    assert served.server_address[0] == "127.0.0.1"
    assert len(served.token) >= 32 and served.token != LiveServer(0, Hub()).token


def test_events_come_as_they_are_published(served: LiveServer) -> None:
    served.hub.publish(b"event: frame\ndata: 1\n\n")
    served.hub.publish(b"event: end\ndata: {}\n\n", is_last=True)
    code, answer = ask(served, f"/{served.token}/events")
    headers, _, body = answer.partition("\r\n\r\n")
    assert code == 200 and "text/event-stream" in headers
    assert body.startswith("event: frame\ndata: 1\n\nevent: end\n")


def test_a_slow_reader_holds_nobody_up_and_is_told_what_it_missed(served: LiveServer) -> None:
    """It takes nothing while 200 frames of 64 kB come, which no socket holds."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(f"GET /{served.token}/events HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode())
        wait_for(lambda: served.hub.readers == 1)
        began = time.monotonic()
        for number in range(200):
            served.hub.publish(b"event: frame\ndata: %d %s\n\n" % (number, b"x" * 65536))
        assert time.monotonic() - began < 15.0  # a handler waits 20 s for its reader
        served.hub.publish(b"event: end\ndata: {}\n\n", is_last=True)
        whole = b""
        while chunk := connection.recv(1 << 20):
            whole += chunk
    numbers = [int(each) for each in re.findall(rb"event: frame\ndata: (\d+) ", whole)]
    missed = [int(each) for each in re.findall(rb"event: missed\ndata: (\d+)\n", whole)]
    assert numbers == sorted(numbers) and numbers[-1] == 199 and whole.count(b"event: end") == 1
    assert sum(missed) > 0 and len(numbers) + sum(missed) == 200


def test_a_reader_that_never_takes_anything_is_left(served: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live._Handler, "timeout", 0.3)
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(f"GET /{served.token}/events HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode())
        wait_for(lambda: served.hub.readers == 1)

        def is_left() -> bool:
            served.hub.publish(b"x" * (1 << 20))  # until the sockets are full
            return served.hub.readers == 0

        wait_for(is_left)


def test_requests_that_never_end_do_not_keep_others_out(served: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_REQUEST_S", 0.3)
    idle = [socket.create_connection(("127.0.0.1", served.port), timeout=10) for _ in range(40)]
    try:
        for each in idle:
            try:
                each.sendall(b"GET /")
            except OSError:
                continue
        wait_for(lambda: answers(served))
    finally:
        for each in idle:
            each.close()


def answers(server: LiveServer) -> bool:
    try:
        return ask(server, f"/{server.token}/")[0] == 200
    except (OSError, IndexError):
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_port_that_is_taken_becomes_another(served: LiveServer) -> None:
    server, sentence = open_server(served.port, Hub())
    server.server_close()
    assert server.port != served.port
    assert sentence.startswith(f"port {served.port} cannot be had (address already in use), so the page has port ")


# ---- Metrics


@pytest.fixture
def metrics() -> Iterator[MetricsServer]:
    server = MetricsServer(0)
    server.text = b"# EOF\n"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("secret", "told"), [("s" * 20, ""), ("", r"[\w-]{20,}/")])
def test_metrics_at_port_0_are_at_any_free_one_which_is_told(secret: str, told: str) -> None:
    wanted, said = _served(JobSpec.of(metrics=0)), []
    assert wanted is not None
    live_page = Live(Tails({}, lambda _: False), replace(wanted, metrics_secret=secret), said.append)
    (server,) = live_page._servers
    server.server_close()
    (sentence,) = said
    assert server.port > 0
    assert re.match(rf"metrics: http://127.0.0.1:{server.port}/{told}metrics \(", sentence)
    assert not secret or secret not in sentence, "a secret that the user has given is not shown"


def test_metrics_with_the_secret_in_the_path_or_in_a_header(metrics: MetricsServer) -> None:
    for path, headers in ((f"/{metrics.token}/metrics", ()), ("/metrics", (f"Authorization: Bearer {metrics.token}",))):
        code, answer = ask(metrics, path, *headers)
        assert code == 200 and answer.endswith("\r\n\r\n# EOF\n")
        assert "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8" in answer


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/metrics", "Accept: */*"),
        ("/metrics", "Authorization: Bearer"),
        ("/metrics", "Authorization: Bearer {less}"),
        ("/metrics", "Authorization: Basic {token}"),
        ("/", "Authorization: Bearer {token}"),
        ("/{token}/metrics", "Origin: http://evil.example"),
        ("/{token}/metrics", "Sec-Fetch-Site: cross-site"),
        ("/{less}/metrics", "Accept: */*"),
    ],
)
def test_metrics_without_the_secret(metrics: MetricsServer, path: str, header: str) -> None:
    names = {"token": metrics.token, "less": metrics.token[:-1]}
    code, answer = ask(metrics, path.format(**names), header.format(**names))
    assert code == 403 and is_empty(answer)


def test_metrics_of_this_machine_alone_take_no_other_name(metrics: MetricsServer) -> None:
    assert ask(metrics, f"/{metrics.token}/metrics", host="evil.example")[0] == 403
    assert ask(metrics, f"/{metrics.token}/")[0] == 404
    assert ask(metrics, f"/{metrics.token}/metrics", method="POST")[0] == 405


def test_metrics_on_another_address_take_any_name_and_the_secret() -> None:
    server = MetricsServer(0, "127.0.0.2", "s" * 20)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        for token, code in (("s" * 20, 200), ("s" * 19, 403)):
            with socket.create_connection(("127.0.0.2", server.port), timeout=10) as connection:
                connection.sendall(f"GET /{token}/metrics HTTP/1.1\r\nHost: node7:9100\r\n\r\n".encode())
                assert connection.recv(100).startswith(f"HTTP/1.0 {code} ".encode())
    finally:
        server.shutdown()
        server.server_close()

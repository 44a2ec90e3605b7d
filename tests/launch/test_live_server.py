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
from farandole.observe.live.command import Live, Wanted
from farandole.observe.live.metrics import CONTENT_TYPE
from farandole.observe.live.server import Content, History, Server, page
from farandole.observe.tails import Tails

HISTORY = History()


def started(server: Server) -> Iterator[Server]:
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def served() -> Iterator[Server]:
    yield from started(Server(page(HISTORY), 0))


def ask(server: Server, path: str, *headers: str, method: str = "GET", host: str | None = None) -> tuple[int, str]:
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


def test_the_page_and_its_files(served: Server) -> None:
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
    ["/", "//", "/frames", "/{other}/", "/{other}/frames", "/{less}/", "/{token}", "/{token}x/", "/%00/", "/é/", "x"],
)
def test_without_the_secret_there_is_no_content(served: Server, path: str) -> None:
    token = served.token
    asked = path.format(token=token, other="A" * len(token), less=token[:-1])
    code, answer = ask(served, asked)
    assert code == 403 and is_empty(answer)


@pytest.mark.parametrize(
    "name",
    ["../server.py", "..%2fserver.py", "page/../../server.py", "/etc/passwd", "index.html", ".", "frames/", "%66rames"],
)
def test_there_are_no_other_files(served: Server, name: str) -> None:
    code, answer = ask(served, f"/{served.token}/{name}")
    assert code == 404 and is_empty(answer)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "localhost.evil:{port}", "[::1]:{port}"],
)
def test_a_name_that_was_made_to_lead_here_is_refused(served: Server, host: str) -> None:
    code, answer = ask(served, f"/{served.token}/", host=host.format(port=served.port))
    assert code == 403 and is_empty(answer)


def test_two_names_are_refused_and_localhost_is_not(served: Server) -> None:
    assert ask(served, f"/{served.token}/", f"Host: localhost:{served.port}")[0] == 403
    assert ask(served, f"/{served.token}/", host=f"localhost:{served.port}")[0] == 200


@pytest.mark.parametrize(
    "header",
    ["Origin: http://evil.example", "Origin: null", "Origin: https://127.0.0.1:{port}", "Origin: http://127.0.0.1:1"]
    + [f"Sec-Fetch-Site: {site}" for site in ("cross-site", "same-site", "else")],
)
def test_requests_of_other_sites_are_refused(served: Server, header: str) -> None:
    code, answer = ask(served, f"/{served.token}/", header.format(port=served.port))
    assert code == 403 and is_empty(answer)


def test_requests_of_the_page_itself_are_answered(served: Server) -> None:
    own = f"Origin: http://127.0.0.1:{served.port}", "Sec-Fetch-Site: same-origin"
    assert ask(served, f"/{served.token}/page.js", *own)[0] == 200
    assert ask(served, f"/{served.token}/", "Sec-Fetch-Site: none")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT"])
def test_nothing_can_be_changed(served: Server, method: str) -> None:
    code, answer = ask(served, f"/{served.token}/", method=method)
    assert code == 405 and is_empty(answer)
    assert ask(served, "/", method=method)[0] == 403


@pytest.mark.parametrize(
    "line", ["BREW /{token}/ HTTP/1.1", "GET", "GET / HTTP/9.9", "\x16\x03\x01", "GET /" + "a" * 70000]
)
def test_what_is_no_request_gets_no_content(served: Server, line: str) -> None:
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


def test_it_listens_on_this_machine_alone(served: Server) -> None:
    assert served.server_address[0] == "127.0.0.1"
    assert len(served.token) >= 32 and served.token != Server(numbers, 0).token


def test_frames_come_from_the_number_that_is_asked_for(served: Server) -> None:
    for number in (0, 1):
        HISTORY.publish(b'{"t":%d}' % number)
    for query, frames in (("", '{"t":0},{"t":1}'), ("?1", '{"t":1}'), ("?2", ""), ("?x", '{"t":0},{"t":1}')):
        code, answer = ask(served, f"/{served.token}/frames{query}")
        headers, _, body = answer.partition("\r\n\r\n")
        assert code == 200 and "Content-Type: application/json" in headers
        assert body == f'{{"next":2,"missed":0,"over":false,"frames":[{frames}]}}'


def test_who_takes_no_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_REQUEST_S", 0.3)
    history = History(64 << 20)
    history.publish(b"1" * (32 << 20))  # which no socket holds
    for server in started(Server(page(history), 0)):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(f"GET /{server.token}/frames HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
            time.sleep(1.0)
            taken = 0
            while chunk := connection.recv(1 << 20):
                taken += len(chunk)
        assert taken < 32 << 20


def test_requests_that_never_end_do_not_keep_others_out(served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
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


def answers(server: Server) -> bool:
    try:
        return ask(server, f"/{server.token}/")[0] == 200
    except (OSError, IndexError):
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_port_that_is_taken_becomes_another(served: Server) -> None:
    said: list[str] = []
    live_page = Live(Tails({}, lambda _: False), Wanted(served.port), said.append)
    (server,) = live_page._servers
    server.server_close()
    assert server.port != served.port
    assert said[0].startswith(f"port {served.port} is not available (address already in use), so the page uses port ")


# ---- Metrics


def numbers(name: str, _query: str) -> Content | None:
    return Content(b"# EOF\n", CONTENT_TYPE) if name == "metrics" else None


@pytest.fixture
def metrics() -> Iterator[Server]:
    yield from started(Server(numbers, 0))


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


def test_metrics_with_the_secret_in_the_path_or_in_a_header(metrics: Server) -> None:
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
        ("/", "Authorization: Bearer {less}"),
        ("/{token}/metrics", "Origin: http://evil.example"),
        ("/{token}/metrics", "Sec-Fetch-Site: cross-site"),
        ("/{less}/metrics", "Accept: */*"),
    ],
)
def test_metrics_without_the_secret(metrics: Server, path: str, header: str) -> None:
    names = {"token": metrics.token, "less": metrics.token[:-1]}
    code, answer = ask(metrics, path.format(**names), header.format(**names))
    assert code == 403 and is_empty(answer)


def test_metrics_of_this_machine_alone_take_no_other_name(metrics: Server) -> None:
    assert ask(metrics, f"/{metrics.token}/metrics", host="evil.example")[0] == 403
    assert ask(metrics, f"/{metrics.token}/")[0] == 404
    assert ask(metrics, f"/{metrics.token}/metrics", method="POST")[0] == 405


def test_metrics_on_another_address_take_any_name_and_the_secret() -> None:
    for server in started(Server(numbers, 0, "127.0.0.2", "s" * 20)):
        for token, code in (("s" * 20, 200), ("s" * 19, 403)):
            with socket.create_connection(("127.0.0.2", server.port), timeout=10) as connection:
                connection.sendall(f"GET /{token}/metrics HTTP/1.1\r\nHost: node7:9100\r\n\r\n".encode())
                assert connection.recv(100).startswith(f"HTTP/1.0 {code} ".encode())

"""`farandole run --live` and `farandole live` beside jobs."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from other_launcher import two_ranks

# Rank 1 comes late to each operation, until the file "go" is there.
STEPS = """
import os, time
import numpy as np
import farandole.numpy as hvd
hvd.init()
go = np.zeros(1, np.float32)
while go[0] == 0:
    time.sleep(0.02 if hvd.rank() == 1 else 0.0)
    hvd.allreduce(np.ones(1000, np.float32), name="grad")
    go = hvd.allreduce(np.full(1, os.path.exists("go"), np.float32), op=hvd.Sum, name="go")
"""
WAITS = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)"


def environment(tmp_path: Path) -> dict[str, str]:
    return {"FARANDOLE_FLIGHT_RECORDER": str(tmp_path / "flights")}


class Terminal:
    """The stderr of a launcher, read by a thread."""

    def __init__(self, job: Any) -> None:
        self.text = ""
        self._stream = job.process.stderr
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while chunk := os.read(self._stream.fileno(), 4096):
            self.text += chunk.decode()

    def find(self, pattern: str) -> re.Match[str]:
        until = time.monotonic() + 20
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < until, self.text
            time.sleep(0.02)
        return found

    def url(self) -> str:
        return self.find(r"live page: (http://127\.0\.0\.1:\d+/\S+/) ")[1]

    def rest(self) -> str:
        self._thread.join(30)
        return self.text


def until_told(folder: Path) -> list[str]:
    """A command that ends with 3 once there is a file `go`."""
    return ["sh", "-c", f"until [ -e {folder}/go ]; do sleep 0.05; done; exit 3"]


def frames(url: str) -> Iterator[Any]:
    """Each frame, to the end."""
    number, over = 0, False
    while not over:
        with urllib.request.urlopen(f"{url}frames?{number}", timeout=30) as answer:
            news = json.load(answer)
        yield from news["frames"]
        number, over = news["next"], news["over"]
        time.sleep(0.1)


def test_a_job_that_is_shown_while_it_runs(launch: Callable, script: Callable, tmp_path: Path) -> None:
    job = launch("-np", 2, "--live", script(STEPS), env=environment(tmp_path))
    terminal = Terminal(job)
    late, operations = 0.0, 0
    for frame in frames(terminal.url()):
        late = max(late, *(row["waited_for_ratio"] for row in frame["ranks"] if row["rank"] == 1))
        operations += len(frame["operations"]) + frame["left_out"]
        if frame["culprits"] == [1] and late > 0.1 and operations > 20 and not (tmp_path / "go").exists():
            assert frame["sentence"].startswith("all other ranks wait for rank 1 for ")
            assert [row["rank"] for row in frame["ranks"]] == [0, 1]
            assert all(row["resident_memory_bytes"] > 1 << 20 for row in frame["ranks"])
            assert all(0.001 < row["step_seconds"] < 1 for row in frame["ranks"]), "a step of 20 ms and more"
            (tmp_path / "go").touch()
    assert (tmp_path / "go").exists()
    assert job.process.wait(30) == 0
    assert terminal.rest().count("farandole: ") == 1, "it is told once"
    job.wait_until_nothing_is_left(5)


def test_a_launcher_that_is_killed_takes_its_page_along(launch: Callable, script: Callable, tmp_path: Path) -> None:
    job = launch("-np", 1, "--live", script(WAITS), env=environment(tmp_path))
    url = Terminal(job).url()
    job.process.kill()
    job.wait_until_nothing_is_left(10)
    until = time.monotonic() + 10
    while is_served(url):
        assert time.monotonic() < until
        time.sleep(0.05)


def is_served(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except ConnectionResetError:  # it is ending
        return True
    except urllib.error.URLError as error:
        return not isinstance(error.reason, ConnectionRefusedError)


def test_a_port_that_is_taken_is_no_reason_to_fail(launch: Callable, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        job = launch("-np", 1, "--live-port", port, *until_told(tmp_path), env=environment(tmp_path))
        Terminal(job).find(rf"port {port} is not available \(address already in use\), so the page uses port ")
        (tmp_path / "go").touch()
        assert job.process.wait(30) == 3


def test_a_job_of_another_launcher(launch: Callable, script: Callable, tmp_path: Path) -> None:
    with two_ranks(script(STEPS), tmp_path, environment(tmp_path)) as ranks:
        until = time.monotonic() + 20
        while len(list(tmp_path.glob("flights/*.flight"))) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
        page = launch(str(ranks[0].pid), verb="live", env=environment(tmp_path))
        came = frames(Terminal(page).url())
        assert next(came)["ranks"][0]["pid"] == ranks[0].pid
        (tmp_path / "go").touch()
        assert [each.wait(30) for each in ranks] == [0, 0]
        assert all(frame["ranks"] for frame in came), "and it has an end"
        assert page.process.wait(30) == 0


# Rank 0 goes, later rank 1, until one is left.
FEWER = """
import os, signal, time
import numpy as np
import farandole.numpy as hvd
from farandole import elastic
hvd.init()
number = hvd.rank()

@elastic.run
def train(state):
    while hvd.size() > 1 or not os.path.exists("go"):
        if hvd.size() == 1:
            open("alone", "w").close()
        if number == 3 - hvd.size() and os.path.exists(f"kill{number}"):
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(np.ones(3, np.float32), name="grad")
        state.step += 1
        state.commit()
        time.sleep(0.01)

train(elastic.ObjectState(step=0))
"""


def test_an_elastic_job_is_shown_in_all_its_epochs(launch: Callable, script: Callable, tmp_path: Path) -> None:
    job = launch("-np", 3, "--min-np", 1, script(FEWER), env=environment(tmp_path))
    until = time.monotonic() + 20
    while len(list(tmp_path.glob("flights/*.flight"))) < 3:
        assert time.monotonic() < until
        time.sleep(0.05)
    page = launch(verb="live", env=environment(tmp_path))
    sizes = []
    for frame in frames(Terminal(page).url()):
        sizes.append((frame["size"], len(frame["ranks"])))
        if sizes[-1] == (3, 3):
            (tmp_path / "kill0").touch()
        if sizes[-1] == (2, 2) and not (tmp_path / "kill1").exists():
            (tmp_path / "kill1").touch()
            threading.Thread(target=end_it, args=(tmp_path, page.process)).start()
    assert {(3, 3), (2, 2)} <= set(sizes), sizes
    assert (tmp_path / "still served").exists(), "the page ended while one rank trained alone"
    assert page.process.wait(30) == 0 and job.process.wait(30) == 0


def end_it(tmp_path: Path, page: Any) -> None:
    """Let the last rank end, some looks after it was alone."""
    until = time.monotonic() + 20
    while not (tmp_path / "alone").exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(2)
    if page.poll() is None:
        (tmp_path / "still served").touch()
    (tmp_path / "go").touch()


def scrape(port: int, secret: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {secret}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError:
        raise
    except OSError:  # it does not listen yet
        return ""


def test_metrics_of_a_job(launch: Callable, script: Callable, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    served = "--metrics", port, "--metrics-key-file", "secret"
    job = launch("-np", 2, *served, script(STEPS), env=environment(tmp_path))
    until = time.monotonic() + 30
    while 'rank="1"' not in (text := scrape(port, "0123456789abcdef")):
        assert time.monotonic() < until
        time.sleep(0.2)
    assert re.search(r'^farandole_operations_total{job="\w+",rank="0"} \d+$', text, re.MULTILINE)
    with pytest.raises(urllib.error.HTTPError) as refused:
        scrape(port, "0123456789abcdeX")
    assert refused.value.code == 403 and refused.value.read() == b""
    (tmp_path / "go").touch()
    result = job.finish()
    assert (result.code, result.err) == (0, ""), "a secret that the user has given is not shown"


def test_metrics_are_no_reason_to_fail(launch: Callable, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        job = launch("-np", 1, "--metrics", port, *until_told(tmp_path), env=environment(tmp_path))
        Terminal(job).find(rf"metrics cannot be served at 127\.0\.0\.1:{port}: Address already in use\.")
        (tmp_path / "go").touch()
        assert job.process.wait(30) == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--metrics-address", "10.0.0.1"], "--metrics-address and --metrics-key-file need --metrics PORT."),
        (["--metrics", 9, "--metrics-address", "h1"], "wants an IPv4 address of this host, not 'h1'."),
        (["--metrics", 9, "--metrics-key-file", "none"], "--metrics-key-file none cannot be read: No such file"),
        (["--metrics", 9, "--metrics-key-file", "short"], "must hold one word of 16 to 256 letters, digits and"),
    ],
)
def test_options_that_cannot_be(run: Callable, tmp_path: Path, options: list, sentence: str) -> None:
    (tmp_path / "short").write_text("secret")
    result = run("-np", 1, *options, "true")
    assert result.code == 2 and sentence in result.err


def test_there_is_no_job_to_show(run: Callable, tmp_path: Path) -> None:
    result = run(verb="live", env=environment(tmp_path))
    assert result.code == 1 and "no rank of yours has a flight recorder on this host" in result.err

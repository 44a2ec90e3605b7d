"""The live page in headless Chromium: its lanes are drawn, its numbers are right, and its console has no complaint."""

from __future__ import annotations

import json
import math
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import chromium
import pytest
from farandole.observe.diagnosis import Rank
from farandole.observe.live.model import Model
from farandole.observe.live.server import History, Server, page
from farandole.observe.processes import Activity
from farandole.observe.records import Link, Operation, Recording, State
from farandole.observe.report import report

SECOND = 1_000_000_000
COLOURS = {"data": (13, 148, 136), "waits": (233, 162, 59)}
DARK_GROUND = (18, 22, 28)

if chromium.PROGRAM is None:
    pytest.skip("Chromium is not installed (Debian: apt install chromium)", allow_module_level=True)


class Job:
    """Ranks that take a step of 100 ms; the last one keeps the others waiting for 40 ms of it."""

    def __init__(self, ranks: int, size: int = 0) -> None:
        self.ranks, self.size = ranks, size or ranks
        self.model, self.history = Model(0), History()

    def publish(self, seconds: float) -> None:
        seen = [Rank(self._recording(rank, seconds), Activity.SLEEPING, 50_000_000) for rank in range(self.ranks)]
        self.history.publish(json.dumps(self.model.frame(seen, int(seconds * SECOND))).encode())

    def _recording(self, rank: int, seconds: float) -> Recording:
        steps = round(seconds * 10)
        first = max(0, steps - 60)
        operations = tuple(self._operation(rank, step) for step in range(first, steps))
        place = rank, self.size, 1000 + rank, 7, State.RUNNING
        links = (Link(3, int(seconds * 2_000_000), 0, 0, 5, 150),) if rank == 0 and self.size > self.ranks else ()
        return Recording("cafe01", *place, -1, "", int(seconds * SECOND), steps, 0, operations, links)

    def _operation(self, rank: int, step: int) -> Operation:
        begin = step * SECOND // 10
        submitted = begin + (50 if rank == self.ranks - 1 else 10) * SECOND // 1000
        return Operation(
            step, "allreduce", "grad", "(2500,)", "float32", 0, step + 1, 1, 10_000, "train.py:9", submitted,
            begin + 50 * SECOND // 1000, None, begin + 80 * SECOND // 1000,
        )  # fmt: skip


@pytest.fixture
def serve(tab: chromium.Browser) -> Iterator[Callable[[Job], str]]:
    servers = []
    tab.errors.clear()

    def start(job: Job) -> str:
        server = Server(page(job.history), 0)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return server.url

    yield start
    tab.open("about:blank")
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def tab() -> Iterator[chromium.Browser]:
    with chromium.browser() as browser:
        yield browser


def text(tab: chromium.Browser, identity: str) -> str:
    return str(tab.run(f"document.getElementById('{identity}').textContent"))


def ten_seconds(job: Job) -> None:
    for half in range(1, 21):
        job.publish(half / 2)


def test_lanes_numbers_and_the_sentence(tab: chromium.Browser, serve: Callable, tmp_path: Path) -> None:
    job = Job(4)
    ten_seconds(job)
    tab.open(serve(job))
    tab.until("page.store.now === 10000000 && document.getElementById('step').textContent !== '\\u2013'")
    time.sleep(0.3)
    assert text(tab, "sentence").startswith("all other ranks wait for rank 3 for 40% of the time")
    assert [text(tab, each) for each in ("ranks", "step", "rate")] == ["4", "100.0 ms", "400 kB/s"]
    assert [text(tab, each) for each in ("memory", "job", "notes")] == ["200 MB", "cafe01", ""]
    rows = tab.run(
        "[...document.querySelectorAll('#rows tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert rows[0] == ["0", "1000", "sleeps", "", "", "100.0 ms", "10", "100 kB/s", "70 %", "40 %", "0.0 %", "50.0 MB"]
    assert rows[3][8:11] == ["30 %", "0.0 %", "40 %"]

    picture = pixels(tab.picture())
    left, top, width, _ = tab.run("(r => [r.x, r.y, r.width, r.height])(page.lanes.canvas.getBoundingClientRect())")
    lane = tab.run("page.lanes.laneHeight")
    for rank in range(4):
        line = picture[round(top + 22 + lane * (rank + 0.5))][round(left) + 94 : round(left + width) - 2]
        drawn = {name: sum(close(pixel, colour) for pixel in line) / len(line) for name, colour in COLOURS.items()}
        assert drawn["data"] == pytest.approx(0.3, abs=0.05), rank
        assert drawn["waits"] == pytest.approx(0.0 if rank == 3 else 0.4, abs=0.05), rank
    assert tab.errors == []


def test_zoom_pause_and_the_trace(tab: chromium.Browser, serve: Callable, tmp_path: Path) -> None:
    job = Job(2)
    ten_seconds(job)
    tab.open(serve(job))
    tab.until("page.store.now === 10000000")
    tab.run("document.getElementById('nearer').click()")
    assert tab.run("page.lanes.span") == 2_500_000
    tab.run("document.getElementById('pause').click()")
    right = tab.run("page.lanes.right")
    job.publish(10.5)
    tab.until("page.store.now === 10500000")
    assert tab.run("page.lanes.right") == right, "the picture stands, and what comes is kept"
    tab.run("document.getElementById('follow').click()")
    assert tab.run("page.lanes.right") == 10_500_000
    events = json.loads(tab.run("page.store.trace()"))
    begun = [each for each in events if each["ph"] == "b" and each["name"].startswith("allreduce 'grad'")]
    assert len(begun) == 2 * 105 and {each["pid"] for each in begun} == {0, 1}
    assert sum(each["ph"] == "b" for each in events) == sum(each["ph"] == "e" for each in events)
    assert tab.errors == []
    saved = tmp_path / "saved.json"
    saved.write_text(tab.run("page.store.trace()"))
    text, notes = report([[saved]])
    assert "rank 1 is the slowest" in text and notes == [], "farandole report reads what the page has saved"


def test_dark_and_the_end(tab: chromium.Browser, serve: Callable) -> None:
    job = Job(2, size=4)
    ten_seconds(job)
    job.history.end()
    tab.open(serve(job), dark=True)
    tab.until("document.getElementById('connection').textContent === 'the job has ended'")
    tab.until("document.getElementById('ranks').textContent === '2 of 4'")
    assert text(tab, "notes").startswith("2 ranks are not on this host;")
    links = tab.run("[...document.querySelectorAll('#link-rows td')].map(cell => cell.textContent)")
    assert links == ["0", "3", "2.00 MB/s", "150 µs", "5"]
    picture = pixels(tab.picture())
    assert close(picture[-2][2], DARK_GROUND)
    assert tab.errors == []


def test_512_ranks(tab: chromium.Browser, serve: Callable) -> None:
    job = Job(512)
    job.publish(0.5)
    tab.open(serve(job))
    tab.until("page.store.ranks.length === 512")
    for half in range(2, 12):
        job.publish(half / 2)
    tab.until("page.store.now === 5500000")
    took_ms = tab.run(
        "(began => { page.show(); page.lanes.paint(); return performance.now() - began; })(performance.now())"
    )
    assert took_ms < 250, "of each half second"
    assert tab.run("page.lanes.canvas.height") < 900, "the lanes scroll"
    assert tab.run("page.store.ranks.slice(0, 2).map(each => each.rank)") == [511, 0], (
        "the one to blame is seen at once"
    )
    tab.run("page.lanes.scroll.scrollTop = 1e6")
    assert tab.run("document.querySelectorAll('#rows tr').length") == 512
    assert tab.errors == []


# ---- Pictures


def close(pixel: tuple[int, ...], colour: tuple[int, ...]) -> bool:
    return math.dist(pixel[:3], colour) < 30


def pixels(png: bytes) -> list[list[tuple[int, ...]]]:
    """The rows of a picture: PNG of 8 bits without interlace, in RGB or RGBA."""
    place, data, width, channels = 8, b"", 0, 3
    while place < len(png):
        (length,), kind = struct.unpack_from(">I", png, place), png[place + 4 : place + 8]
        body = png[place + 8 : place + 8 + length]
        if kind == b"IHDR":
            width, channels = struct.unpack_from(">I", body)[0], {2: 3, 6: 4}[body[9]]
        data += body if kind == b"IDAT" else b""
        place += 12 + length
    raw, stride, rows = zlib.decompress(data), width * channels, []
    before = bytearray(stride)
    for start in range(0, len(raw), stride + 1):
        line = unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), before, channels)
        rows.append([tuple(line[at : at + channels]) for at in range(0, stride, channels)])
        before = line
    return rows


def unfiltered(kind: int, line: bytearray, before: bytearray, channels: int) -> bytearray:
    for at in range(len(line)):
        left = line[at - channels] if at >= channels else 0
        up, corner = before[at], before[at - channels] if at >= channels else 0
        if kind == 1:
            guess = left
        elif kind == 2:
            guess = up
        elif kind == 3:
            guess = (left + up) // 2
        elif kind == 4:
            guess = min((left, up, corner), key=lambda each: abs(left + up - corner - each))
        else:
            return line
        line[at] = (line[at] + guess) & 255
    return line

"""`farandole report`: times, the rank that is waited for, advice with its gain, and the page."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from farandole.observe.report.analysis import Analysis, analyse
from farandole.observe.report.page import amount, as_html
from farandole.observe.report.trace import TraceError, read


def operation(rank: int, name: str, begin: float, end: float, **given: float) -> list[str]:
    """The events of one, as the core writes them. Times are milliseconds."""
    same = {"cat": "allreduce", "id": given.get("id", int(begin * 1000) + rank), "pid": rank, "tid": 0}
    size = given.get("bytes", 4)
    events = [{"ph": "b", "name": name, "ts": begin * 1000, "args": {"bytes": size, "process_set": 0}, **same}]
    phases = ("NEGOTIATE", "agreed", begin), ("QUEUE", "started", given.get("agreed", begin))
    for phase, key, start in phases:
        if key in given:
            events += [{"ph": "b", "name": phase, "ts": start * 1000, **same}]
            events += [{"ph": "e", "name": phase, "ts": given[key] * 1000, **same}]
    return [json.dumps(each) for each in [*events, {"ph": "e", "name": name, "ts": end * 1000, **same}]]


def steps(late_ms: float = 0.0, *, ranks: int = 3, count: int = 10, takes: float = 10.0, **given: float) -> Analysis:
    """Steps of 100 ms, of which the last rank comes late to one operation."""
    events = []
    for step in range(count):
        for rank in range(ranks):
            begin = step * 100 + (late_ms if rank == ranks - 1 else 0.0)
            events += operation(rank, "grad", begin, step * 100 + late_ms + takes, **given)
    return analyse(read(events))


def test_times_of_ranks() -> None:
    found = steps(40.0)
    assert found.seconds == pytest.approx(0.95)
    first, _, last = found.ranks
    assert (first.waiting, first.moving, first.outside) == pytest.approx((0.4, 0.1, 0.45))
    assert (last.waiting, last.moving, last.outside) == pytest.approx((0.0, 0.1, 0.85))
    assert found.slowest.rank == 2 and found.slowest.kept == pytest.approx(0.4)
    assert found.operations == 10 and found.compared == 1.0
    (name,) = found.names
    assert (name.name, name.count, name.total) == ("allreduce grad", 10, pytest.approx((2 * 0.5 + 0.1) / 3))


def burst(tensors: int, *, late_ms: float, gap_ms: float = 0.0, ranks: int = 2, jitter_ms: float = 0.0) -> Analysis:
    """Steps of 150 ms, whose gradients become ready one after the other; the last rank begins with them late."""
    draw, events = random.Random(tensors), []
    for step in range(20):
        last = step * 150 + late_ms + tensors * gap_ms + jitter_ms
        for rank in range(ranks):
            begin = step * 150 + (late_ms if rank == ranks - 1 else 0.0)
            for tensor in range(tensors):
                at = begin + tensor * gap_ms + jitter_ms * draw.random()
                events += operation(rank, f"grad {tensor}", at, last + 1, id=(step * tensors + tensor) * ranks + rank)
    return analyse(read(events))


@pytest.mark.parametrize("gap_ms", [0.0, 1.0])
@pytest.mark.parametrize("tensors", [1, 2, 8, 60])
def test_calls_that_overlap_do_not_add_up(tensors: int, gap_ms: float) -> None:
    found = burst(tensors, late_ms=50.0, gap_ms=gap_ms)
    share = found.slowest.kept / found.seconds
    assert found.slowest.rank == 1 and share == pytest.approx(1 / 3, rel=0.06)
    assert found.advice[0].gain == share and found.advice[0].text.startswith("rank 1 is the slowest")


def test_no_rank_of_a_healthy_job_is_blamed_for_more_than_its_last_call() -> None:
    found = burst(60, late_ms=0.0, gap_ms=1.0, jitter_ms=0.9)
    assert max(rank.kept for rank in found.ranks) / found.seconds < 0.01
    assert not any("is the slowest" in each.text for each in found.advice)


def test_phases_come_before_what_others_recorded() -> None:
    found = analyse(read([*operation(0, "a", 0, 10, agreed=4, started=5), *operation(1, "a", 8, 10)]))
    assert found.ranks[0].waiting == pytest.approx(0.004)


def test_the_rank_that_comes_last_is_named_with_the_gain() -> None:
    (advice,) = steps(40.0, takes=1.0).advice
    assert advice.text.startswith("rank 2 is the slowest") and advice.gain == pytest.approx(0.4 / 0.941)


def test_nothing_is_advised_for_a_run_without_a_cause() -> None:
    assert steps(0.5, takes=1.0).advice == ()


def test_large_and_small_operations_have_advice_of_their_own() -> None:
    (large,) = steps(takes=60.0, bytes=50_000_000).advice
    assert "fp16" in large.text and large.gain == pytest.approx(0.6 / 2 / 0.96)
    (small,) = steps(takes=20.0).advice
    assert "grouped_allreduce" in small.text and small.gain == pytest.approx(0.8 * 0.2 / 0.92)


def test_ranks_that_take_turns() -> None:
    events = []
    for step in range(9):
        for rank in range(3):
            events += operation(rank, "grad", step * 100 + (30 if rank == step % 3 else 0), step * 100 + 31)
    texts = [each.text for each in analyse(read(events)).advice]
    assert any(text.startswith("different ranks are late") for text in texts)
    assert not any("is the slowest" in text for text in texts), "no rank stands out"


def test_uses_that_cannot_be_paired_are_not_compared() -> None:
    events = [*operation(0, "a", 0, 1), *operation(0, "a", 2, 3), *operation(1, "a", 2, 3)]
    found = analyse(read(events))
    assert found.compared == 0.0 and found.slowest.kept == 0.0


@pytest.mark.parametrize(
    "event",
    [
        '{"ph":"b","name":"x","cat":"allreduce","id":1,"pid":"0","ts":1}',
        '{"ph":"b","name":"x","id":1,"pid":0,"ts":1}',
        '{"ph":"e","name":"NEGOTIATE","cat":"allreduce","id":1,"pid":0,"ts":1}',
        '{"ph":"M","name":"process_name","pid":0}',
        '{"ph":"X","name":"allreduce","pid":0,"tid":1,"ts":5,"dur":1}',
    ],
)
def test_other_events_are_left_out(event: str) -> None:
    (epoch,) = read([event, *operation(0, "a", 0, 1)]).epochs
    assert [(rank, len(found)) for rank, found in epoch.ranks.items()] == [(0, 1)]


def test_operations_without_an_end_are_counted() -> None:
    begun = operation(0, "b", 5, 6)[:1]
    assert read([*operation(0, "a", 0, 1), *begun]).unended == 1
    with pytest.raises(TraceError, match="holds no operation that has ended"):
        read(begun)


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1e6, "1 MB"), (2.345e9, "2.35 GB")])
def test_bytes_have_units(count: float, text: str) -> None:
    assert amount(count) == text


# ---- The page


def test_the_page_is_whole_and_names_are_escaped() -> None:
    events = [*operation(0, "<script>alert(1)</script>", 0, 10), *operation(1, "<script>alert(1)</script>", 8, 10)]
    text = as_html([("a&b.json", analyse(read(events)))])
    assert "<script" not in text and "&lt;script&gt;" in text and "a&amp;b.json" in text
    assert "Content-Security-Policy" in text and not re.search(r"(src|href)=", text)
    for tag in ("table", "tr", "td", "th", "ol", "li", "svg", "h2"):
        assert len(re.findall(rf"<{tag}[ >]", text)) == text.count(f"</{tag}>"), tag


def test_two_runs_stand_side_by_side() -> None:
    text = as_html([("before", steps(40.0)), ("after", steps(count=5))])
    assert "<th>before</th><th>after</th><th>change</th>" in text
    assert "<td>0.95 s</td><td>0.41 s</td><td>-56.8%</td>" in text


# Rank 1 is late in each step, however busy the machine is: it waits until rank 0 has called.
STEPS = """
import os, time
import numpy as np
import farandole.numpy as hvd
hvd.init()
for step in range(20):
    while hvd.rank() == 1 and not os.path.exists(f"step.{step}"):
        time.sleep(0.002)
    time.sleep(0.02 if hvd.rank() == 1 else 0.0)
    handle = hvd.allreduce_async(np.ones(10, np.float32), name="grad")
    open(f"step.{step}", "w").close()
    hvd.synchronize(handle)
"""


def test_a_run_that_was_recorded(run: Callable, script: Callable, tmp_path: Path) -> None:
    assert run("-np", 2, "--timeline-filename", "trace.json", script(STEPS)).code == 0
    done = run("trace.json", verb="report")
    assert (done.code, done.out) == (0, "report.html: open it in a browser.\n")
    text = (tmp_path / "report.html").read_text()
    assert "rank 1 is the slowest" in text and "color-scheme" in text and "allreduce grad" in text
    assert run("trace.json", "--beside", "trace.json", "-o", "two.html", verb="report").code == 0
    assert "<td>+0.0%</td>" in (tmp_path / "two.html").read_text()


def test_files_that_are_no_timelines(run: Callable, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text('[\n{"ph":"M","name":"process_name","pid":0,"tid":0,"args":{"name":"x"}}\n]\n')
    for name, why in (("none.json", "there is neither none.json nor"), ("empty.json", "empty.json holds no operation")):
        done = run(name, verb="report")
        assert done.code == 1 and why in done.err
    assert not (tmp_path / "report.html").exists()


# ---- Elastic jobs


def epoch(rank: int, number: int, at: float, of: str) -> str:
    """The event by which a process says that it is in a later world of its job."""
    place, _, size = of.partition("/")
    args = {"epoch": number, "rank": int(place), "size": int(size)}
    return json.dumps({"ph": "i", "name": f"epoch {number}", "pid": rank, "tid": 0, "ts": at * 1000, "args": args})


def elastic() -> list[str]:
    """Rank 1 of three is killed and has not written its last use; the others go on, and rank 3 joins them."""
    events = []
    for rank, begins, ends in (
        (0, (0, 100, 400, 500), (90, 190, 450, 550)),
        (2, (10, 130, 405, 505), (90, 190, 450, 550)),
    ):
        for use, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            if use == 2:
                events.append(epoch(rank, 1, 300, f"{rank // 2}/3"))
            events += operation(rank, "grad", begin, end, id=100 * rank + use)
    events += operation(1, "grad", 60, 90, id=900)
    events.append(epoch(3, 1, 300, "2/3"))
    return [*events, *operation(3, "grad", 445, 450, id=901), *operation(3, "grad", 545, 550, id=902)]


def test_a_report_of_an_elastic_job_has_all_epochs_and_its_ranks_by_their_start() -> None:
    found = analyse(read(elastic()))
    assert found.epochs == ((0, 1, 2), (0, 2, 3)) and found.seconds == pytest.approx(0.55)
    kept = {rank.rank: rank.kept for rank in found.ranks}
    assert kept == pytest.approx({0: 0.0, 1: 0.05, 2: 0.0, 3: 0.08}), "what rank 1 has not written has no last rank"
    there = {rank.rank: rank.outside + rank.waiting + rank.moving for rank in found.ranks}
    assert there == pytest.approx({0: 0.34, 1: 0.19, 2: 0.34, 3: 0.15})
    assert found.compared == pytest.approx(9 / 11)
    text = as_html([("t.json", found)])
    assert "went on with other ranks: 0, 1, 2; then 0, 2, 3. Ranks have the numbers of their start" in text


def test_uses_of_two_epochs_are_not_compared() -> None:
    first = [*operation(0, "a", 0, 1), *operation(0, "a", 5, 6), *operation(1, "a", 0, 1)]
    later = [epoch(rank, 1, 10, f"{rank}/2") for rank in range(2)]
    last = [*operation(0, "a", 20, 23), *operation(1, "a", 22, 23)]
    found = analyse(read([*first, *later, *last]))
    assert found.slowest.rank == 1 and found.slowest.kept == pytest.approx(0.002)

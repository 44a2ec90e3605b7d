"""The lines of a timeline: events of Chrome's format, each whole JSON."""

import json

from farandole._runtime.trace_events import Event, Lines

OPERATION = Event(0, "allreduce", "grad", 1_000_500, 2_000_000, 3_000_000, 4_000_001, 64, 1, 0, False)


def events_of(event, rank=0):
    return [json.loads(line) for line in Lines(rank, 500).of_event(event)]


def test_an_operation_has_its_phases_inside():
    same = {"pid": 3, "tid": 0, "cat": "allreduce", "id": 7}
    arguments = {"args": {"bytes": 64, "tensors": 1, "process_set": 0}}
    assert [json.loads(line) for line in Lines(3, 500, next_id=7).of_event(OPERATION)] == [
        {"ph": "b", "name": "grad", "ts": 1000.0} | same | arguments,
        {"ph": "b", "name": "NEGOTIATE", "ts": 1000.0} | same,
        {"ph": "e", "name": "NEGOTIATE", "ts": 1999.5} | same,
        {"ph": "b", "name": "QUEUE", "ts": 1999.5} | same,
        {"ph": "e", "name": "QUEUE", "ts": 2999.5} | same,
        {"ph": "b", "name": "ALLREDUCE", "ts": 2999.5} | same,
        {"ph": "e", "name": "ALLREDUCE", "ts": 3999.501} | same,
        {"ph": "e", "name": "grad", "ts": 3999.501} | same,
    ]


def test_operations_of_a_rank_have_numbers_of_their_own():
    lines = Lines(0, 0)
    assert [{json.loads(line)["id"] for line in lines.of_event(OPERATION)} for _ in range(3)] == [{0}, {1}, {2}]


def test_what_did_not_take_place_is_not_there():
    begin, end = events_of(OPERATION._replace(agreed=0, started=0, failed=True))
    assert (begin["ph"], end["ph"], begin["args"]["failed"]) == ("b", "e", True)
    unstarted = {event["name"] for event in events_of(OPERATION._replace(started=0))}
    assert unstarted == {"grad", "NEGOTIATE", "ALLREDUCE"}
    unagreed = {event["name"] for event in events_of(OPERATION._replace(agreed=0))}
    assert unagreed == {"grad", "ALLREDUCE"}, "agreed on before the timeline began"


def test_whatever_the_operation_is_called():
    for name in ('a"b\\c\nd', "é", "\N{REPLACEMENT CHARACTER}", "\x00"):
        assert events_of(OPERATION._replace(name=name))[0]["name"] == name
    assert events_of(OPERATION._replace(name=""))[0]["name"] == "unnamed allreduce"


def test_tasks_and_batches_are_on_a_track_of_their_own():
    arguments = {"bytes": 64, "tensors": 1, "process_set": 0}
    task = {"ph": "X", "pid": 0, "tid": 1, "ts": 2999.5, "dur": 1000.001}
    assert events_of(OPERATION._replace(what=1)) == [task | {"name": "allreduce", "args": arguments}]
    (of_three,) = events_of(OPERATION._replace(what=1, tensors=3))
    assert of_three["name"] == "allreduce of 3 tensors"
    batch = {"ph": "i", "name": "BATCH", "pid": 0, "tid": 1, "ts": 2999.5, "s": "t"}
    assert events_of(OPERATION._replace(what=2)) == [batch | {"args": arguments}]


def test_a_process_is_another_rank_of_a_later_world():
    assert json.loads(Lines(5, 500).of_world(2_000_500, 4, 1, 3)) == {
        "ph": "i",
        "name": "epoch 4: rank 1 of 3",
        "pid": 5,
        "tid": 0,
        "ts": 2000.0,
        "s": "p",
        "args": {"epoch": 4, "rank": 1, "size": 3},
    }


def test_times_before_the_trace_keep_their_sign():
    assert '"ts":-0.500,' in Lines(0, 1_000).of_loss(500, 7)
    assert '"ts":-1.001,' in Lines(0, 2_001).of_loss(1_000, 7)

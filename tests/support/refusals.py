"""Calls that some ranks refuse, drawn by a seed, and what one process knows each rank must see of them.

    Call          one call of all ranks, or of those of a set; `refused_by` make it with an argument that cannot be
    drawn(...)    a program: many calls, one after the other or several in flight
    perform(...)  runs it on this rank, and returns what differs from the model

Each call's data name the call, so a call that met another one shows.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import farandole

Make = Callable[[tuple[int, ...], float], Any]  # a float32 tensor of a framework, of this shape, with one value


class Call(NamedTuple):
    kind: str
    number: int
    rows: int  # of its tensors; a shape that comes again is known, and others are told of a refusal 0.1 s later
    name: str | None
    members: tuple[int, ...]
    refused_by: frozenset[int]
    way: int  # in which it is refused
    waits: bool


class Form(NamedTuple):
    begin: Callable[[Any, Call, Any, dict[str, Any]], Any]  # (module, call, tensor, keywords): a result or a handle
    result: Callable[[Call], list[float]]  # the numbers of this rank's, in any order
    wrong: tuple[Callable[[Any, Any, dict[str, Any]], Any], ...]  # (module, tensor, keywords): raises at once


def _rank_sum(call: Call) -> float:
    return float(sum(call.number + rank for rank in call.members))


def _gathered(call: Call) -> list[float]:
    return [call.number + rank for rank in call.members for _ in range(call.rows)]


def _exchanged(call: Call) -> list[float]:
    return [float(call.number + rank) for rank in call.members]


_NO_NUMBER = float("nan")
FORMS: dict[str, Form] = {
    "allreduce": Form(
        lambda hvd, call, tensor, more: (hvd.allreduce if call.waits else hvd.allreduce_async)(
            tensor, op=hvd.Sum, **more
        ),
        lambda call: [_rank_sum(call)] * call.rows,
        (
            lambda hvd, tensor, more: hvd.allreduce(tensor, op="sum", **more),
            lambda hvd, tensor, more: hvd.allreduce("text", **more),
            lambda hvd, tensor, more: hvd.allreduce_async([1.0], **more),
            lambda hvd, tensor, more: hvd.allreduce(tensor, prescale_factor=_NO_NUMBER, **more),
            lambda hvd, tensor, more: hvd.allreduce(tensor, postscale_factor="two", **more),
            lambda hvd, tensor, more: hvd.allreduce(tensor, compression=3, **more),
        ),
    ),
    "grouped_allreduce": Form(
        lambda hvd, call, tensor, more: (hvd.grouped_allreduce if call.waits else hvd.grouped_allreduce_async)(
            [tensor, tensor], op=hvd.Sum, **more
        ),
        lambda call: [_rank_sum(call)] * (2 * call.rows),
        (
            lambda hvd, tensor, more: hvd.grouped_allreduce([], **more),
            lambda hvd, tensor, more: hvd.grouped_allreduce_async(tensor, **more),
            lambda hvd, tensor, more: hvd.grouped_allreduce([tensor, None], **more),
        ),
    ),
    "allgather": Form(
        lambda hvd, call, tensor, more: (hvd.allgather if call.waits else hvd.allgather_async)(tensor, **more),
        _gathered,
        (
            lambda hvd, tensor, more: hvd.allgather(tensor[0], **more),  # a scalar
            lambda hvd, tensor, more: hvd.allgather_async(None, **more),
        ),
    ),
    "broadcast": Form(
        lambda hvd, call, tensor, more: (hvd.broadcast if call.waits else hvd.broadcast_async)(
            tensor, call.members[0], **more
        ),
        lambda call: [float(call.number + call.members[0])] * call.rows,
        (
            lambda hvd, tensor, more: hvd.broadcast(tensor, 99, **more),
            lambda hvd, tensor, more: hvd.broadcast_async(tensor, "0", **more),
        ),
    ),
    "alltoall": Form(
        lambda hvd, call, tensor, more: hvd.alltoall(tensor[: len(call.members)], [1] * len(call.members), **more)[0],
        _exchanged,
        (
            lambda hvd, tensor, more: hvd.alltoall(tensor, [1, 2, 3, 4, 5], **more),
            lambda hvd, tensor, more: hvd.alltoall(tensor, "splits", **more),
            lambda hvd, tensor, more: hvd.alltoall(tensor[0], **more),
        ),
    ),
    "reducescatter": Form(
        lambda hvd, call, tensor, more: hvd.reducescatter(tensor[: len(call.members)], op=hvd.Sum, **more),
        lambda call: [_rank_sum(call)],
        (lambda hvd, tensor, more: hvd.reducescatter(tensor, op=hvd.Adasum, **more),),
    ),
    "broadcast_object": Form(
        lambda hvd, call, tensor, more: [
            hvd.broadcast_object(call.number if hvd.rank() == call.members[0] else None, call.members[0], **more)
        ],
        lambda call: [float(call.number)],
        (lambda hvd, tensor, more: hvd.broadcast_object(None, 99, **more),),
    ),
    "allgather_object": Form(
        lambda hvd, call, tensor, more: hvd.allgather_object(call.number + hvd.rank(), **more),
        _exchanged,
        (lambda hvd, tensor, more: hvd.allgather_object(threading.Lock(), **more),),
    ),
}


def drawn(seed: int, calls: int, ranks: int) -> list[Call]:
    """Returns a program of so many calls; in half of them some ranks refuse, now and then all of them."""
    random_ = random.Random(seed)
    everybody = tuple(range(ranks))
    program = []
    for number in range(1, calls + 1):
        kind = random_.choice(list(FORMS))
        members = everybody if random_.random() < 0.8 else everybody[:-1]
        odds = random_.choice([0.0, 0.0, 0.3, 0.6, 1.0])
        program.append(
            Call(
                kind=kind,
                number=number,
                rows=ranks + 1 if random_.random() < 0.02 else number + ranks + 1,
                name=f"name {random_.randrange(3)}" if random_.random() < 0.3 else None,
                members=members,
                refused_by=frozenset(rank for rank in members if random_.random() < odds),
                way=random_.randrange(100),
                waits=random_.random() < 0.6,
            )
        )
    return program


def perform(hvd: Any, make: Make, program: list[Call], sets: dict[tuple[int, ...], Any]) -> list[str]:
    """What went wrong on this rank. Every rank of the world performs the same program."""
    me, wrong = hvd.rank(), []
    in_flight: list[tuple[Call, Any]] = []
    for call in program:
        if me not in call.members:
            continue
        if call.name is not None:  # a name is used by one call at a time
            wrong += [complaint for each in in_flight if (complaint := _judged(each[0], me, each[1]))]
            in_flight = []
        begun = _attempt(lambda call=call: _begun(hvd, make, call, sets))
        if call.waits or isinstance(begun, Exception) or not hasattr(begun, "wait"):
            wrong += [complaint] if (complaint := _judged(call, me, begun)) else []
        else:
            in_flight.append((call, begun))
        if len(in_flight) > 3:
            wrong += [complaint] if (complaint := _judged(*_first(in_flight, me))) else []
    return wrong + [complaint for each in in_flight if (complaint := _judged(each[0], me, each[1]))]


def _first(in_flight: list[tuple[Call, Any]], me: int) -> tuple[Call, int, Any]:
    call, handle = in_flight.pop(0)
    return call, me, handle


def _begun(hvd: Any, make: Make, call: Call, sets: dict[tuple[int, ...], Any]) -> Any:
    form = FORMS[call.kind]
    tensor = make((call.rows,), call.number + hvd.rank())
    more = {"name": call.name, "process_set": sets[call.members]}
    if hvd.rank() in call.refused_by:
        return form.wrong[call.way % len(form.wrong)](hvd, tensor, more)
    return form.begin(hvd, call, tensor, more)


def _attempt(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:
        return error


def _judged(call: Call, me: int, outcome: Any) -> str:
    """The complaint, if the outcome is not what the model says."""
    if hasattr(outcome, "wait"):
        outcome = _attempt(outcome.wait)
    if me in call.refused_by:
        fine = isinstance(outcome, ValueError | TypeError) and not isinstance(outcome, farandole.MismatchError)
    elif call.refused_by:
        who = f"rank {min(call.refused_by)} ("
        fine = isinstance(outcome, farandole.MismatchError) and who in str(outcome) and "refusals.py:" in str(outcome)
    else:
        fine = not isinstance(outcome, Exception) and sorted(_numbers(outcome)) == sorted(FORMS[call.kind].result(call))
    return "" if fine else f"rank {me}: {call} ended with {outcome!r}"


def _numbers(outcome: Any) -> list[float]:
    if isinstance(outcome, list | tuple):
        return [number for each in outcome for number in _numbers(each)]
    return outcome.reshape(-1).tolist() if hasattr(outcome, "reshape") else [float(outcome)]

"""Converts the events of a rank's timeline to lines of JSON in Chrome's Trace Event Format. Pure.

https://ui.perfetto.dev and chrome://tracing open such files. Each rank is a process of the trace. An operation is an
asynchronous event ("b" to "e") under its name and kind, and contains its phases. Tasks, which move the data of one or
more operations, have their own thread:

    gradient.3 (allreduce)   [ submitted                              done ]
                               [ NEGOTIATE ][ QUEUE ][ ALLREDUCE          ]
    backend                                          [ allreduce of 5     ]
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_OPERATIONS, _BACKEND = 0, 1  # the threads of a rank in the trace
_TASK, _BATCH = 1, 2  # as in TraceRecord::What; an operation is 0


class Event(NamedTuple):
    """A record of the core (core/src/operation/timeline.h). Nanoseconds of the monotonic clock; 0: not reached."""

    what: int
    kind: str
    name: str
    submitted: int
    agreed: int
    started: int
    done: int
    bytes: int
    tensors: int
    process_set: int
    failed: bool


@dataclass
class Lines:
    """Formats events. `offset_ns`: how far this rank's clock is ahead of that of the job's first rank 0."""

    rank: int  # of the process at the start of the job
    offset_ns: int
    next_id: int = 0  # of an operation; unique within a rank

    def of_rank(self, title: str, zero_unix_ns: int) -> list[str]:
        """Return the first lines of a file. `zero_unix_ns`: the time of day at the trace's time 0."""
        return [
            self._metadata(_OPERATIONS, "process_name", f'"name":{json.dumps(title)}'),
            self._metadata(_OPERATIONS, "process_sort_index", f'"sort_index":{self.rank}'),
            self._metadata(_OPERATIONS, "clock", f'"zero_unix_ns":"{zero_unix_ns}"'),
            self._metadata(_OPERATIONS, "thread_name", '"name":"operations"'),
            self._metadata(_BACKEND, "thread_name", '"name":"backend"'),
        ]

    def of_event(self, event: Event) -> Iterator[str]:
        """Yield one line for a task or a batch; for an operation two lines, and two for each of its phases."""
        if event.what == _TASK:
            of_many = f" of {event.tensors} tensors" if event.tensors > 1 else ""
            duration = f',"dur":{_microseconds(event.done - event.started)}'
            yield self._line("X", f'"{event.kind}{of_many}"', event.started, duration + _arguments(event), _BACKEND)
        elif event.what == _BATCH:
            yield self._line("i", '"BATCH"', event.started, ',"s":"t"' + _arguments(event), _BACKEND)
        else:
            yield from self._of_operation(event)

    def of_world(self, at_ns: int, epoch: int, rank: int, size: int) -> str:
        """Mark that the process has entered a later world of an elastic job."""
        arguments = f',"args":{{"epoch":{epoch},"rank":{rank},"size":{size}}}'
        return self._line("i", f'"epoch {epoch}: rank {rank} of {size}"', at_ns, ',"s":"p"' + arguments)

    def of_loss(self, at_ns: int, lost: int) -> str:
        """Mark that this many events are missing."""
        name = f'"{lost} events were not recorded: they came faster than they could be written"'
        return self._line("i", name, at_ns, ',"s":"p"')

    def _of_operation(self, event: Event) -> Iterator[str]:
        number, self.next_id = self.next_id, self.next_id + 1
        same = f',"cat":"{event.kind}","id":{number}'
        name = json.dumps(event.name or f"unnamed {event.kind}")
        yield self._line("b", name, event.submitted, same + _arguments(event))
        for phase, begin, end in _phases(event):
            yield self._line("b", phase, begin, same)
            yield self._line("e", phase, end, same)
        yield self._line("e", name, event.done, same)

    def _line(self, phase: str, quoted: str, at_ns: int, more: str, thread: int = _OPERATIONS) -> str:
        at = _microseconds(at_ns - self.offset_ns)
        return f'{{"ph":"{phase}","name":{quoted},"pid":{self.rank},"tid":{thread},"ts":{at}{more}}}'

    def _metadata(self, thread: int, name: str, value: str) -> str:
        return f'{{"ph":"M","name":"{name}","pid":{self.rank},"tid":{thread},"args":{{{value}}}}}'


def _phases(event: Event) -> Iterator[tuple[str, int, int]]:
    """Yield each phase's quoted name, begin and end. Small operations within a node have no phases."""
    if event.agreed:
        yield '"NEGOTIATE"', event.submitted, event.agreed
        if event.started:
            yield '"QUEUE"', event.agreed, event.started
    if begin := event.started or event.agreed:
        yield f'"{event.kind.upper()}"', begin, event.done


def _arguments(event: Event) -> str:
    failed = ',"failed":true' if event.failed else ""
    sizes = f'"bytes":{event.bytes},"tensors":{event.tensors},"process_set":{event.process_set}'
    return f',"args":{{{sizes}{failed}}}'


def _microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}" if ns >= 0 else f"-{_microseconds(-ns)}"

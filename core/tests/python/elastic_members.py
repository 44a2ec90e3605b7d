"""Processes that are members of an elastic job, without the core: they only decide who goes on."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from multiprocessing.connection import Connection, wait

from farandole._elastic.epochs import Epoch, Member, MembershipError, Report
from farandole._elastic.peers import MajorityAuthority

KEY = bytes(range(32))


def _live(pipe: Connection, number: int, hosts: list[str], settings: dict) -> None:
    pipe.send(os.getpid())
    pids = pipe.recv()
    members = [Member(each, hosts[each], hosts[each], pid) for each, pid in enumerate(pids)]

    def exchange(mine: bytes) -> list[bytes]:
        pipe.send(mine)
        return pipe.recv()

    authority = MajorityAuthority(members, number, exchange=exchange, **settings)
    pipe.send("ready")
    epoch = Epoch(0, tuple(range(len(hosts))))
    while (asked := pipe.recv()) is not None:
        if callable(asked):
            pipe.send(asked())
            continue
        store = f"unix:store-{number}"
        try:
            epoch = authority.next_epoch(Report(epoch.number, number, store, frozenset(), asked == "leave"))
            pipe.send(epoch)
        except MembershipError as error:
            pipe.send(str(error))
    authority.close()


class Members:
    """Such processes, as a `with` block."""

    def __init__(self, hosts: list[str], **settings: object) -> None:
        given = {"job_key": KEY, "min_np": 1, "address": "127.0.0.1", "timeout_s": 30.0, **settings}
        context = multiprocessing.get_context("fork")
        self.pipes, self.processes, self.endpoints = [], [], []
        for number in range(len(hosts)):
            ours, theirs = context.Pipe()
            self.processes.append(context.Process(target=_live, args=(theirs, number, hosts, given), daemon=True))
            self.processes[-1].start()
            theirs.close()
            self.pipes.append(ours)

    def __enter__(self) -> Members:
        for _ in range(2):  # pids, endpoints
            said = [self._receive(number) for number in range(len(self.pipes))]
            for pipe in self.pipes:
                pipe.send(said)
        self.endpoints = [json.loads(each) for each in said]
        for number in range(len(self.pipes)):
            assert self._receive(number) == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.join(10)

    def _receive(self, number: int, timeout_s: float = 30.0) -> object:
        assert self.pipes[number].poll(timeout_s), f"member {number} says nothing"
        return self.pipes[number].recv()

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].join(10)

    def ask(self, number: int, what: object = "next") -> None:
        self.pipes[number].send(what)

    def answers(self, numbers: list[int], timeout_s: float = 30.0) -> list[object]:
        return [self._receive(number, timeout_s) for number in numbers]

    def decide(self, numbers: list[int], timeout_s: float = 30.0) -> list[object]:
        """Their epoch has ended for all of these; their answers: an Epoch, or a sentence."""
        for number in numbers:
            self.ask(number)
        return self.answers(numbers, timeout_s)

    def timed(self, numbers: list[int]) -> tuple[float, list[object]]:
        began = time.monotonic()
        for number in numbers:
            self.ask(number)
        left = {self.pipes[number] for number in numbers}
        found = {}
        while left:
            for pipe in wait(left, 30):
                found[self.pipes.index(pipe)] = pipe.recv()
                left.remove(pipe)
        return time.monotonic() - began, [found[number] for number in numbers]

"""A job whose members decide about their epochs, on a simulated clock and network. One seed is one history.

The members run the code of farandole._elastic.majority unchanged. The plan of a history has one to four faults, at any
step: deaths, also in the middle of a broadcast, hosts that crash, partitions that may heal, members that are stopped,
members that leave. Messages are late, doubled, lost with their connection, and of earlier epochs.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from farandole._elastic.epochs import Epoch, Member, MembershipError, Report
from farandole._elastic.majority import Majority, Timing
from farandole._elastic.votes import Message, decode, encode

TIMING = Timing(timeout_s=60.0, silence_s=5.0)
START_S = 20.0  # until a member gives up a world that does not start
KEPT_ALIVE_S = 4.0  # until a kernel gives up a connection
MOST_EVENTS = 60_000


class Violation(AssertionError):
    """A history that must not be."""


class State(Enum):
    RUNNING = "runs"
    COMPUTING = "does not know yet that its epoch has ended"
    DECIDING = "decides"
    STARTING = "starts its world"
    GONE = "has raised or left"
    DEAD = "is dead"


@dataclass
class Process:
    number: int
    host: int
    majority: Majority
    epoch: Epoch
    state: State = State.RUNNING
    session: int = 0  # one for each time that it decides or does not
    wake_s: float = 0.0
    stopped_until_s: float = 0.0
    leaving: bool = False
    why: str = ""  # it has raised
    handled: int = 0  # signs, since the first fault
    dies_after_signs: int = -1
    dies_after_messages: int = -1
    backlog: list[tuple[int, int, Message]] = field(default_factory=list)

    @property
    def is_there(self) -> bool:
        return self.state not in (State.GONE, State.DEAD)


class History:
    """One run. `majority`: makes a member's part; tests give one that decides wrongly."""

    def __init__(self, seed: int, majority: Callable[..., Majority] = Majority, hostile: bool = False) -> None:
        """hostile: cut off the first member that decides, in a network that loses much."""
        self.dice = random.Random(seed)
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.log: list[str] = []
        size = self.dice.randint(2, 8)
        self.only_deaths = not hostile and self.dice.random() < 0.3  # on one host, so that all survivors must go on
        self.hosts = 1 if self.only_deaths else self.dice.randint(min(3, size) if hostile else 1, min(4, size))
        places = sorted(self.dice.randrange(self.hosts) for _ in range(size))
        if self.dice.random() < 0.3:
            self.dice.shuffle(places)
        job = [Member(number, f"h{host}", f"h{host}", 100 + number) for number, host in enumerate(places)]
        self.min_np = self.dice.choice([1, 1, 1, 2, 3])
        first = Epoch(0, tuple(range(size)))
        self.processes = [
            Process(number, host, majority(job, number, self.min_np, TIMING), first)
            for number, host in enumerate(places)
        ]
        self.groups = [0] * self.hosts  # hosts with equal ones reach each other
        self.crashed: set[int] = set()
        self.unsteady = self.dice.choice([0.0, 0.0, 0.05, 0.2])  # part of the messages that is late or doubled
        self.is_slow = self.dice.random() < 0.4
        self.is_hostile = hostile or (not self.only_deaths and self.dice.random() < 0.3)  # then only safety is judged
        self.lost_part = self.dice.choice([0.1, 0.3, 0.5]) if self.is_hostile else 0.0
        self.broken: set[tuple[int, int]] = set()  # pairs of hosts, in a hostile network
        self.isolates_decider = hostile  # the host of the next member that decides is cut off in that instant
        self.always_together = set(range(self.hosts))  # hosts that no partition has taken from the largest group
        self.disturbed: set[int] = set()  # members that were killed, stopped, or told to leave
        self._plan()

    # ---- the plan

    def _plan(self) -> None:
        at = 0.0
        for _ in range(self.dice.choice([3, 5, 8] if self.is_hostile else [1, 1, 2, 2, 3, 4])):
            at += self.dice.choice([0.001, 0.01, 0.05, 1.0, 8.0]) * self.dice.random()
            kinds = [self._kill, self._kill_at_step, self._kill_in_broadcast]
            if not self.only_deaths:
                kinds += [self._crash_host, self._partition, self._partition, self._stop, self._leave]
            if self.is_hostile:
                kinds += [self._break_pairs] * 4 + [self._stop] * 2
            self._at(at, self.dice.choice(kinds))
        self.isolates_decider = self.isolates_decider or (self.is_hostile and self.dice.random() < 0.5)

    def _living(self) -> list[Process]:
        return [process for process in self.processes if process.is_there]

    def _any(self) -> Process:
        chosen = self.dice.choice(self._living() or self.processes)
        self.disturbed.add(chosen.number)
        return chosen

    def _kill(self) -> None:
        self._die(self._any())

    def _kill_at_step(self) -> None:
        chosen = self._any()
        chosen.dies_after_signs = chosen.handled + self.dice.randrange(40)
        self._later(self.dice.uniform(0, 3), lambda: self._die(chosen))  # if it has not come to that

    def _kill_in_broadcast(self) -> None:
        chosen = self._any()
        chosen.dies_after_messages = self.dice.randrange(50)
        other = self._any()
        self._later(self.dice.uniform(0, 3), lambda: self._die(chosen))
        self._die(other)

    def _crash_host(self) -> None:
        host = self.dice.randrange(self.hosts)
        self._note(f"host {host} crashes")
        self.crashed.add(host)
        for process in self.processes:
            if process.host == host:
                self.disturbed.add(process.number)
                self._die(process)

    def _partition(self) -> None:
        self.groups = [self.dice.randrange(2) for _ in range(self.hosts)]
        if self.hosts > 1:
            self.groups[self.dice.randrange(self.hosts)] = 1 - self.groups[0]
        self._note(f"hosts are parted: {self.groups}")
        sizes = [sum(self.groups[each.host] == group for each in self.processes) for group in (0, 1)]
        self.always_together &= {host for host in range(self.hosts) if sizes[self.groups[host]] == max(sizes)}
        if sizes[0] == sizes[1]:
            self.always_together &= {host for host in range(self.hosts) if self.groups[host] == 0}
        self._look_at_links()
        self._break_parted_worlds()
        if self.dice.random() < 0.6:
            self._later(self.dice.choice([0.02, 3.0, 12.0, 80.0]) * self.dice.random(), self._heal)

    def _break_pairs(self) -> None:
        pairs = itertools.combinations(range(self.hosts), 2)
        self.broken = {pair for pair in pairs if self.dice.random() < 0.4}
        self._note(f"pairs of hosts do not reach each other: {sorted(self.broken)}")
        self._look_at_links()
        self._break_parted_worlds()
        self._later(self.dice.choice([0.02, 3.0, 12.0]) * self.dice.random(), self._heal)

    def _isolate(self, host: int) -> None:
        self.isolates_decider = False
        self.broken = {(min(host, other), max(host, other)) for other in range(self.hosts) if other != host}
        self._note(f"host {host} is isolated")
        self._look_at_links()
        self._break_parted_worlds()
        self._later(self.dice.choice([0.02, 3.0, 12.0]) * self.dice.random(), self._heal)

    def _heal(self) -> None:
        self._note("the network is whole again")
        self.groups, self.broken = [0] * self.hosts, set()
        self._look_at_links()

    def _stop(self) -> None:
        chosen = self._any()
        chosen.stopped_until_s = self.now + self.dice.choice([1.0, 12.0]) * self.dice.random()
        self._note(f"{chosen.number} is stopped until {chosen.stopped_until_s:.3f}")

    def _leave(self) -> None:
        running = [process for process in self._living() if process.state == State.RUNNING]
        if not running:
            return
        chosen = self.dice.choice(running)
        chosen.leaving = True
        self.disturbed.add(chosen.number)
        self._note(f"{chosen.number} is told to leave")
        for process in running:
            if process.epoch == chosen.epoch:
                self._break(process, 0.001)

    # ---- time

    def _at(self, at: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (at, next(self._order), call))

    def _later(self, delay: float, call: Callable[[], None]) -> None:
        self._at(self.now + delay, call)

    def _note(self, text: str) -> None:
        self.log.append(f"{self.now:9.4f} {text}")

    def run(self) -> History:
        """Raises Violation."""
        for count in itertools.count():
            if not self._heap:
                break
            if count > MOST_EVENTS:
                raise Violation(f"it does not end: {[process.state.value for process in self.processes]}")
            self.now, _, call = heapq.heappop(self._heap)
            call()
        self._check_end()
        return self

    # ---- the network

    def _reach(self, one: Process, other: Process) -> bool:
        if one.host in self.crashed or other.host in self.crashed:
            return False
        pair = min(one.host, other.host), max(one.host, other.host)
        return self.groups[one.host] == self.groups[other.host] and pair not in self.broken

    def _look_at_links(self, only: Iterable[Process] | None = None) -> None:
        """The kernels see a change."""
        changed = self.processes if only is None else list(only)
        for one in self._living():
            if one.state == State.DECIDING:
                for other in changed:
                    self._link(one, other)

    def _link(self, one: Process, other: Process) -> None:
        if one is other:
            return
        session, reach = one.session, self._reach(one, other)
        delay = self.dice.uniform(0.0001, 0.003) + (0 if reach else KEPT_ALIVE_S)

        def sign() -> None:
            if one.session != session or one.state != State.DECIDING or self._reach(one, other) != reach:
                return
            assert one.majority.deciding is not None
            if not reach:
                one.majority.deciding.on_disconnected(other.number, self.now)
            elif other.is_there:
                one.majority.deciding.on_connected(other.number, self.now)
            elif one.host == other.host:
                one.majority.deciding.on_death(other.number, self.now)
            else:
                one.majority.deciding.on_disconnected(other.number, self.now, is_refused=True)

        self._later(delay, lambda: self._handle(one, session, sign))

    def _send(self, sender: Process, number: int, message: Message) -> None:
        receiver = self.processes[number]
        delay = self.dice.uniform(0.0002, 0.002 if sender.host == receiver.host else 0.02)
        times = [delay]
        if self.dice.random() < self.unsteady:
            times = [delay + self.dice.choice([0.05, 3.0]) * self.dice.random()]
            if self.dice.random() < 0.5:
                times.append(self.dice.uniform(0, 10))
        if self.is_hostile:
            times = [each + self.dice.choice([0, 0.01, 2.0]) * self.dice.random() for each in times]
            times = [each for each in times if self.dice.random() >= self.lost_part]
        if not self._reach(sender, receiver):
            times = [self.dice.uniform(0, 15)] if self.dice.random() < 0.5 else []
        message = decode(encode(message)) if self.dice.random() < 0.01 else message
        for each in times:
            self._later(each, lambda: self._arrive(sender, sender.session, receiver, message))

    def _arrive(self, sender: Process, session: int, receiver: Process, message: Message) -> None:
        if not receiver.is_there or (sender.is_there and not self._reach(sender, receiver)):
            return
        if receiver.state != State.DECIDING:
            receiver.backlog.append((sender.number, session, message))
            return
        self._handle(receiver, receiver.session, lambda: self._hear(receiver, sender.number, message))

    def _hear(self, receiver: Process, sender: int, message: Message) -> None:
        assert receiver.majority.deciding is not None
        receiver.majority.deciding.receive(sender, message, self.now)

    # ---- processes

    def _handle(self, process: Process, session: int, sign: Callable[[], None]) -> None:
        """A process that decides takes a sign, and does what follows."""
        if process.session != session or process.state != State.DECIDING:
            return
        if self.now < process.stopped_until_s:
            self._at(process.stopped_until_s, lambda: self._handle(process, session, sign))
            return
        if process.handled == process.dies_after_signs:
            self._die(process)
            return
        process.handled += 1
        sign()
        self._follow(process)

    def _follow(self, process: Process) -> None:
        try:
            deciding = process.majority.deciding
            while deciding is not None:
                deciding.tick(self.now)
                if self.isolates_decider and deciding.decided is not None:
                    self._isolate(process.host)
                if not self._flush(process):
                    return
                epoch = process.majority.result(self.now)
                if process.majority.deciding is deciding:
                    break
                deciding = process.majority.deciding  # the one after that
        except MembershipError as error:
            process.why = str(error)
            self._go(process)
            return
        assert deciding is not None
        if epoch is not None:
            self._enter(process, epoch)
        elif not self.now < process.wake_s <= deciding.next_look_s:
            process.wake_s, session = max(deciding.next_look_s, self.now + 1e-6), process.session
            self._at(process.wake_s, lambda: self._wake(process, session))

    def _wake(self, process: Process, session: int) -> None:
        process.wake_s = 0.0
        self._handle(process, session, lambda: None)

    def _flush(self, process: Process) -> bool:
        """Send its messages; returns False where it dies in between."""
        assert process.majority.deciding is not None
        messages, process.majority.deciding.outgoing = process.majority.deciding.outgoing, []
        for number, message in messages:
            if process.dies_after_messages == 0:
                self._die(process)
                return False
            process.dies_after_messages -= 1
            self._send(process, number, message)
        return True

    def _enter(self, process: Process, epoch: Epoch) -> None:
        if process.leaving:
            self._go(process)
            return
        self._note(f"{process.number} enters epoch {epoch.number} {epoch.members}")
        self._check_entry(process, epoch)
        process.epoch, process.state = epoch, State.STARTING
        process.session += 1
        session = process.session
        members = [self.processes[number] for number in epoch.members]
        self._later(START_S, lambda: self._give_up_start(process, session))
        if any(each.state == State.DEAD for each in members):  # the core may see the end, or wait
            self._break(process, self.dice.choice([0.01, START_S]))
        if not all(each.epoch == epoch and each.state == State.STARTING for each in members):
            return
        if all(self._reach(one, other) for one, other in itertools.combinations(members, 2)):
            for each in members:
                self._later(self.dice.uniform(0, 0.03), lambda each=each, of=each.session: self._go_on(each, of))

    def _go_on(self, process: Process, session: int) -> None:
        if process.session == session and process.state == State.STARTING:
            process.state = State.RUNNING

    def _give_up_start(self, process: Process, session: int) -> None:
        if process.session == session and process.state == State.STARTING:
            self._break(process, 0.0)

    def _break(self, process: Process, delay: float) -> None:
        """Its core will fail, if its epoch is still the same then; a program may be slow to notice."""
        session = process.session

        def notice() -> None:
            if process.session == session and process.state in (State.RUNNING, State.STARTING):
                process.state = State.COMPUTING
                process.session += 1
                slow = self.dice.choice([0.0, 0.5, 15.0]) * self.dice.random() if self.is_slow else 0.0
                begins = process.session
                self._later(slow, lambda: self._begin(process, begins))

        self._later(delay, notice)

    def _begin(self, process: Process, session: int) -> None:
        if process.session != session or process.state != State.COMPUTING:
            return
        if self.now < process.stopped_until_s:
            self._at(process.stopped_until_s, lambda: self._begin(process, session))
            return
        lost = [number for number in process.epoch.members if self.processes[number].state == State.DEAD]
        suspects = frozenset(lost[:1] if self.dice.random() < 0.5 else ())
        store = f"unix:{process.number}-{process.epoch.number}"
        process.state = State.DECIDING
        process.wake_s = 0.0
        process.session += 1
        self._note(f"{process.number} reports the end of epoch {process.epoch.number}")
        process.majority.begin(Report(process.epoch.number, process.number, store, suspects, process.leaving), self.now)
        for number in process.epoch.members:
            self._link(process, self.processes[number])
        backlog, process.backlog = process.backlog, []
        for sender, of, message in backlog:
            if self.processes[sender].session == of or self.dice.random() < 0.5:
                self._later(
                    self.dice.uniform(0.001, 0.01),
                    lambda sender=sender, of=of, message=message: self._arrive(
                        self.processes[sender], of, process, message
                    ),
                )
        self._break_world_of(process)
        begun = process.session
        self._later(0.0, lambda: self._handle(process, begun, lambda: None))

    def _break_world_of(self, process: Process) -> None:
        """Its control connections close, which the others of its world see."""
        for other in self._living():
            if other is not process and other.epoch == process.epoch and process.number in other.epoch.members:
                self._break(other, self.dice.uniform(0.001, 0.1) + (0 if self._reach(process, other) else KEPT_ALIVE_S))

    def _break_parted_worlds(self) -> None:
        for process in self._living():
            if any(not self._reach(process, self.processes[number]) for number in process.epoch.members):
                self._break(process, KEPT_ALIVE_S + self.dice.random())

    def _die(self, process: Process) -> None:
        if process.state != State.DEAD:
            self._note(f"{process.number} dies")
            process.state = State.DEAD
            self._end(process)

    def _go(self, process: Process) -> None:
        self._note(f"{process.number} goes: {process.why or 'it was told to leave'}")
        process.state = State.GONE
        self._end(process)

    def _end(self, process: Process) -> None:
        process.session += 1
        self._look_at_links([process])
        self._break_world_of(process)

    # ---- what must hold

    def _check_entry(self, process: Process, epoch: Epoch) -> None:
        if process.number not in epoch.members:
            raise Violation(f"{process.number} goes on with {epoch}, without being in it")
        if epoch.number <= process.epoch.number:
            raise Violation(f"{process.number} goes back from {process.epoch} to {epoch}")
        for other in self._living():
            theirs, mine = other.majority.history, process.majority.history
            both = [number for number in theirs if number in mine and mine[number] != theirs[number]]
            goes_on = (
                all(other.number in each.members for each in other.majority.history.values()) and not other.leaving
            )
            if both and goes_on:
                number = both[0]
                raise Violation(f"split brain: {process.number} has {mine[number]}, {other.number} {theirs[number]}")

    def _check_end(self) -> None:
        living = self._living()
        for process in living:
            if process.state != State.RUNNING:
                raise Violation(f"{process.number} {process.state.value}, and nothing happens any more")
            for number in process.epoch.members:
                other = self.processes[number]
                if other.state != State.RUNNING or other.epoch != process.epoch:
                    raise Violation(f"{process.number} runs in {process.epoch}, but {number} {other.state.value}")
        if len({process.epoch for process in living}) > 1:
            raise Violation("two worlds go on")
        if self.only_deaths and not living:
            raised = [process for process in self.processes if process.why and process.number not in self.disturbed]
            if len(raised) >= self.min_np:
                raise Violation(f"survivors did not go on: {raised[0].why}")
        for process in self.processes:
            must = self._must_go_on()
            if process.number in must and process.state != State.RUNNING:
                raise Violation(f"{process.number} was with a majority all the time: {process.why}")

    def _must_go_on(self) -> set[int]:
        """Members without a fault that reached each other all the time, if they are a majority."""
        sound = (each for each in self.processes if each.number not in self.disturbed)
        core = {each.number for each in sound if each.host in self.always_together}
        is_majority = self.only_deaths or 2 * len(core) + (0 in core) > len(self.processes)
        return core if is_majority and not self.is_hostile and len(core) >= self.min_np else set()


def history(seed: int, majority: Callable[..., Majority] = Majority, hostile: bool = False) -> History:
    """Raises Violation, with the seed and the end of the log."""
    made = History(seed, majority, hostile)
    try:
        return made.run()
    except Violation as error:
        shown = "\n".join(made.log[-40:])
        raise Violation(f"FARANDOLE_SEED={seed}: {error}\n{shown}") from error

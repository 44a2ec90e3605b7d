"""The facts of a run of the soak, and its targets. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean, median

import judge
from judge import Span
from seen import AGENT, LAUNCHER, RANK, Process

SHARE = 0.9
CALM_S = 3.0  # before a fault
LONGEST_PAUSE_S = 12.0  # 5 s until a silent host is noticed, 3.5 s until it is given up, and a start on busy cores
_MIB = 1 << 20
_MOST_GROWTH = {"bytes": 4.0 * _MIB, "descriptors": 3.0}
_FEWEST_SAMPLES = 40  # of a second each, so that the growth of a process says something
_NAMED = 6
_BIN_S = 5.0


@dataclass
class Report:
    """Times are those of the monotonic clock, in seconds."""

    begin: float = 0.0
    end: float = 0.0
    calm: Span = (0.0, 0.0)  # without faults
    code: int | None = None  # of the job
    faults: list[tuple[float, str, str]] = field(default_factory=list)  # when, kind, words
    hit: set[int] = field(default_factory=set)  # ranks
    stopped: list[Span] = field(default_factory=list)  # a rank was
    imports: list[Span] = field(default_factory=list)  # of newcomers
    lines: list[tuple[float, str]] = field(default_factory=list)  # that the job has said
    uses: list[dict[Process, tuple[int, int]]] = field(default_factory=list)  # bytes and descriptors, while all run
    loads: list[tuple[float, float, float]] = field(default_factory=list)  # when, cores that the job uses, and all
    sizes: list[int] = field(default_factory=list)  # of the world in which the ranks have ended
    stuck: list[str] = field(default_factory=list)  # processes that did not end when they were told to
    left: list[str] = field(default_factory=list)  # things that nobody has removed

    @property
    def _disturbed(self) -> list[Span]:
        return judge.united([*self.stopped, *self.imports])

    def _calm_rates(self, steps: judge.Steps) -> tuple[float, float]:
        """Steps per second without faults: at first, and in the spans that end with the next fault, a median each.

        Other programs take cores from the job, more or less of them from minute to minute.
        """
        first = [
            (self.calm[0] + at, self.calm[0] + at + CALM_S)
            for at in range(0, int(self.calm[1] - self.calm[0]), int(CALM_S))
        ]
        later = [(at - CALM_S, at) for at, _, _ in self.faults]
        later = [span for span in later if not judge.within(span, self._disturbed) and span[0] >= self.calm[1]]
        of_first, of_later = ([steps.rate([span]) for span in spans] for spans in (first, later))
        return median(of_first), median([*of_first, *of_later])

    def _share(self, steps: judge.Steps, spans: Sequence[Span]) -> float:
        _, calm = self._calm_rates(steps)
        return steps.rate(spans) / calm if calm else 0.0

    def _growths(self, kind: str) -> dict[str, float]:
        """Bytes of the process that grows most; the most descriptors of any, since rank 0 has more than others."""
        most = [[use[1] for process, use in uses.items() if process.kind == kind] for uses in self.uses]
        bytes_of: dict[Process, list[int]] = {}
        for uses in self.uses:
            for process, use in uses.items():
                bytes_of.setdefault(process, []).append(use[0])
        series = [each for process, each in bytes_of.items() if process.kind == kind and len(each) >= _FEWEST_SAMPLES]
        return {
            "bytes": max(map(judge.growth, series), default=0.0),
            "descriptors": judge.growth([max(each) for each in most if each]),
        }

    def _rows(self, steps: judge.Steps) -> Iterator[tuple[str, str, bool]]:
        """Of each target: its name, the measured value, whether it is reached."""
        whole = (self.calm[1], self.end)
        free = judge.without(whole, self._disturbed)
        share = self._share(steps, free)
        yield f"steps while no rank is stopped and no newcomer imports (>= {SHARE:.0%})", f"{share:.1%}", share >= SHARE
        pauses = steps.pauses((self.begin, self.end), self.stopped, LONGEST_PAUSE_S)
        yield f"hangs: no step for {LONGEST_PAUSE_S:.0f} s (0)", str(len(pauses)), not pauses
        wrong = judge.wrong([line for _, line in self.lines], self.hit)
        yield "ranks named that no fault has hit (0)", str(len(wrong)), not wrong
        for kind in (LAUNCHER, AGENT, RANK):
            growths = self._growths(kind)
            said = f"{growths['bytes'] / _MIB:+.1f} MiB, {growths['descriptors']:+.0f} descriptors"
            flat = all(value <= _MOST_GROWTH[what] for what, value in growths.items())
            yield f"growth of a {kind} (4 MiB, 3 descriptors)", said, flat
        yield "left behind (nothing)", str(len(self.left) + len(self.stuck)), not self.left and not self.stuck
        yield "exit code of the job (0)", str(self.code), self.code == 0

    def missed(self, steps: judge.Steps) -> list[str]:
        """The targets that are not reached."""
        return [name for name, _, reached in self._rows(steps) if not reached]

    def text(self, steps: judge.Steps) -> str:
        """The tables."""
        return "\n".join(self._lines(steps))

    def rates(self, steps: judge.Steps) -> str:
        """Steps per second, and cores that the job and all use, of every five seconds."""
        lines = []
        at = self.begin
        while at < self.end:
            mine, of_all = self._load((at, at + _BIN_S))
            lines.append(f"{at - self.begin:7.1f} s {steps.rate([(at, at + _BIN_S)]):7.1f} {mine:5.2f} {of_all:5.2f}")
            at += _BIN_S
        return "\n".join([*lines, ""])

    def _load(self, span: Span) -> tuple[float, float]:
        loads = [(mine, of_all) for at, mine, of_all in self.loads if span[0] <= at < span[1]]
        return (mean(mine for mine, _ in loads), mean(of_all for _, of_all in loads)) if loads else (0.0, 0.0)

    def _lines(self, steps: judge.Steps) -> Iterator[str]:
        whole = (self.calm[1], self.end)
        disturbed, length = judge.length(judge.within(whole, self._disturbed)), self.end - self.calm[1]
        yield f"\n{'fault':14} {'times':>5}  longest time without a step, in which no rank is stopped"
        for name in dict.fromkeys(kind for _, kind, _ in self.faults):
            spans = [self._longest(steps, at) for at, kind, _ in self.faults if kind == name]
            yield f"{name:14} {len(spans):5}  {max(spans):.1f} s"
        first, calm = self._calm_rates(steps)
        yield f"\n{calm:.1f} steps/s without faults ({first:.1f} at first); {self._share(steps, [whole]):.1%} of that"
        yield f"in {length:.0f} s. A rank is stopped, or a newcomer imports, in {disturbed:.0f} s of them."
        (mine, of_all), (mine_later, later) = self._load(self.calm), self._load(whole)
        yield f"Without faults the job used {mine:.2f} cores and others {of_all - mine:.2f}, then"
        yield f"{mine_later:.2f} and {later - mine_later:.2f}; this machine has {os.cpu_count()}."
        yield f"{len(self.imports)} newcomers; {max(self.sizes, default=0)} ranks at the end.\n"
        for name, value, reached in self._rows(steps):
            yield f"{'ok' if reached else 'MISSED':7} {name}: {value}"
        told = [
            *(f"no step from {a - self.begin:.1f} to {b - self.begin:.1f} s" for a, b in self._pauses(steps)),
            *judge.wrong([line for _, line in self.lines], self.hit), *self.left, *self.stuck,
        ]  # fmt: skip
        yield from (f"        {each}" for each in told[:_NAMED])

    def _pauses(self, steps: judge.Steps) -> list[Span]:
        return steps.pauses((self.begin, self.end), self.stopped, LONGEST_PAUSE_S)

    def _longest(self, steps: judge.Steps, fault_at: float) -> float:
        """The longest pause until the next fault."""
        until = min((at for at, _, _ in self.faults if at > fault_at), default=self.end)
        marks = [fault_at, *(time for time in steps.times if fault_at < time < until), until]
        return max(judge.length(judge.without(span, self.stopped)) for span in pairwise(marks))

"""The words that a user reads: the launcher's sentences and the answers of `farandole inspect`, judged. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from drawn import BUSY, Fault, Kind

LAUNCHER, RANK, INSPECT = "launcher", "rank", "inspect"
UNCERTAIN = "failed"  # names a rank, and no cause yet
# Which cause each kind of inspect's means. The others accuse nobody.
_CAUSES = {
    "lost": "lost",
    "failed": "failed",
    "left": "left",
    "stopped": "stopped",
    "late": "late",
    "diverged": "diverged",
    "process sets": "process sets",
    "data": "network",
}
_VERDICT = re.compile(r"farandole: rank (?P<rank>\d+) on \S+ \(pid \d+\) (?P<what>.*)")
_MANNERS = (
    ("failed first: killed by", "killed"),
    ("failed first: exit code", "raised"),
    ("failed first: it raised", "raised"),
    ("ended first", "left"),
    ("was lost", "network"),
)
# The sentences about a job that runs, of which the first that fits counts; those about waits are inspect's, too.
_RUNNING = (
    (re.compile(r"ranks? ([\d, on h-]+) makes? the others wait"), "slower"),
    (re.compile(r"the network from rank (\d+ .*?to rank \d+)"), "network"),
    (re.compile(r"and rank (\d+) \(pid \d+\) waits in .*process sets in different orders"), "process sets"),
    (re.compile(r"but rank (\d+) \(pid \d+\) waits in"), "diverged"),
    (re.compile(r"ranks? ([\d, -]+)(?: \(pid \d+\))? left the job"), "left"),
    (re.compile(r"ranks? ([\d, -]+)(?: \(pid \d+\))? .*stopped by a signal"), "stopped"),
    (re.compile(r"ranks? ([\d, -]+)(?: \(pid \d+\))? (?:has|have) not called"), "late"),
    (re.compile(r"()its data do not arrive"), "network"),
)
_RAISED = re.compile(r"\[(\d+)[^]]*\] (?:\w+\.)*\w*(?:Error|Exception): ")
_STOPS = re.compile(r"\[\d+[^]]*\] farandole: rank \d+ stops at .*?rank (\d+) \([^)]*\) (died|has left|was lost)")
_ENDS = {"died": "lost", "has left": "left", "was lost": "network"}
# The two sides of a disagreement.
_SIDES = re.compile(r"MismatchError: .*?rank (\d+)(?: \([^)]*\))? has .*?, rank (\d+)(?: \([^)]*\))? has")


@dataclass(frozen=True)
class Said:
    """One sentence. `at` counts from the moment of the fault; it is negative before it."""

    at: float
    source: str
    cause: str
    culprits: tuple[int, ...]
    text: str

    @property
    def accuses(self) -> bool:
        return bool(self.cause)


def of_launcher(lines: Iterable[tuple[float, str]]) -> list[Said]:
    """The sentences in the launcher's lines, and those of ranks that it passes on, which begin with [3].

    A rank that raises a MismatchError is no culprit: the error says who differs.
    """
    said: list[Said] = []
    differ: tuple[int, ...] = ()
    for at, line in lines:
        differ = _differing(line) or differ
        own = line.startswith("farandole: ")
        cause, culprits = (_accusation if own else _of_rank)(line)
        if cause == "raised" and differ:
            cause, culprits = "mismatch", differ
        if own or cause:
            said.append(Said(at, LAUNCHER if own else RANK, cause, culprits, line))
    return said


def _of_rank(line: str) -> tuple[str, tuple[int, ...]]:
    """The last line of a traceback, or the sentence of a rank that stops because of another one."""
    if found := _RAISED.match(line):
        return "raised", (int(found[1]),)
    found = _STOPS.match(line)
    if found is None:
        return "", ()
    return _ENDS[found[2]], (int(found[1]),)


def _differing(line: str) -> tuple[int, ...]:
    found = _SIDES.search(line)
    if found is None:
        return ()
    first, second = int(found[1]), int(found[2])
    return (second,) if f" ranks agree with rank {first};" in line else (first, second)


def _accusation(line: str) -> tuple[str, tuple[int, ...]]:
    found = _VERDICT.match(line)
    if found is not None:
        return next((cause for start, cause in _MANNERS if found["what"].startswith(start)), ""), (int(found["rank"]),)
    for pattern, cause in _RUNNING:
        if found := pattern.search(line):
            return cause, tuple(_ranks_in(found[1]))
    return "", ()


def _ranks_in(text: str) -> Iterator[int]:
    """As in "0-2, 4 on h1"."""
    for part in re.findall(r"(?<!h)\b(\d+(?:-\d+)?)\b", text):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def of_inspect(answers: Iterable[dict[str, Any]]) -> list[Said]:
    """Answers as asker.py prints them; one that says the same as the one before is left out."""
    said: list[Said] = []
    for answer in answers:
        cause, culprits = _CAUSES.get(answer.get("kind", ""), ""), tuple(answer.get("culprits", ()))
        if not said or (said[-1].cause, said[-1].culprits) != (cause, culprits):
            said.append(Said(answer["at"], INSPECT, cause, culprits, answer.get("sentence", "")))
    return said


@dataclass(frozen=True)
class Verdict:
    """Right, wrong or silent; the sentence that decided it, and when it came."""

    result: str
    seconds: float = 0.0
    said: Said | None = None

    def as_json(self) -> dict[str, Any]:
        said = self.said
        sentence = {} if said is None else {"cause": said.cause, "culprits": said.culprits, "source": said.source}
        return {"result": self.result, "seconds": round(self.seconds, 3), "text": said.text if said else ""} | sentence


RIGHT, WRONG, SILENT = "right", "wrong", "silent"


def judge(fault: Fault, kind: Kind, said: Sequence[Said]) -> Verdict:
    """The first sentence that accuses must be right, and no later one may accuse another rank."""
    first: Verdict | None = None
    for each in sorted(said, key=lambda each: each.at):
        if not each.accuses or _is_expected_wait(kind, fault, each):
            continue
        if each.at < 0 or kind.is_flat or not _names(fault, kind, each):
            return Verdict(WRONG, each.at, each)
        if each.cause == UNCERTAIN or first is not None:
            continue
        if each.cause not in kind.causes:
            return Verdict(WRONG, each.at, each)
        first = Verdict(RIGHT, each.at, each)
    if first is not None:
        return first
    return Verdict(RIGHT) if kind.is_flat else Verdict(SILENT)


def _names(fault: Fault, kind: Kind, said: Said) -> bool:
    if "network" in kind.causes and said.cause == "network":  # a link has two ends
        return not said.culprits or not fault.blamed.isdisjoint(said.culprits)
    return bool(said.culprits) and set(said.culprits) <= fault.blamed


def _is_expected_wait(kind: Kind, fault: Fault, said: Said) -> bool:
    """`farandole inspect` tells who asks the truth: ranks are late before the fault, a rank 0 that is busy is, and so
    is one whose processors others use."""
    if said.source != INSPECT or said.cause != "late":
        return False
    if not kind.is_flat:
        return said.at < 0
    return "it is not scheduled" in said.text or (kind.name in BUSY and said.culprits == (0,))


# ---- the table


@dataclass
class Row:
    """The results of a kind."""

    kind: Kind
    results: list[dict[str, Any]] = field(default_factory=list)

    def count(self, result: str) -> int:
        return sum(each["result"] == result for each in self.results)

    @property
    def seconds(self) -> list[float]:
        return sorted(each["seconds"] for each in self.results if each["result"] == RIGHT and not self.kind.is_flat)

    @property
    def median(self) -> float:
        return self.seconds[len(self.seconds) // 2] if self.seconds else 0.0


def rows(kinds: Sequence[Kind], results: Iterable[dict[str, Any]]) -> list[Row]:
    by_kind = {kind.name: Row(kind) for kind in kinds}
    for each in results:
        by_kind[each["kind"]].results.append(each)
    return [row for row in by_kind.values() if row.results]


def precision(row: Row, all_rows: Sequence[Row]) -> float | None:
    """Of all sentences that named a cause of this kind, the share that was right."""
    claims = [each for other in all_rows for each in other.results if each.get("cause") in row.kind.causes]
    return sum(each["result"] == RIGHT for each in claims) / len(claims) if claims else None


def table(all_rows: Sequence[Row]) -> str:
    """In Markdown."""
    lines = [
        "| fault | injected | right | wrong | silent | median, s | longest, s | precision | recall |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in all_rows:
        counts = [len(row.results), row.count(RIGHT), row.count(WRONG), row.count(SILENT)]
        seconds = [f"{row.median:.1f}", f"{row.seconds[-1]:.1f}"] if row.seconds else ["", ""]
        share = precision(row, all_rows)
        shares = [
            f"{share:.2f}" if share is not None else "",
            "" if row.kind.is_flat else f"{counts[1] / counts[0]:.2f}",
        ]
        lines.append(f"| {' | '.join([row.kind.name, *map(str, counts), *seconds, *shares])} |")
    return "\n".join(lines)


LEAST_RIGHT, MOST_MEDIAN_S = 0.98, 2.0


def missed(all_rows: Sequence[Row]) -> list[str]:
    """The targets that were not reached."""
    whole = sum(len(row.results) for row in all_rows)
    right = sum(row.count(RIGHT) for row in all_rows)
    times = sorted(seconds for row in all_rows for seconds in row.seconds)
    median = times[len(times) // 2] if times else 0.0
    found = [] if right >= LEAST_RIGHT * whole else [f"{right} of {whole} right, not {LEAST_RIGHT:.0%}"]
    return found + ([] if median <= MOST_MEDIAN_S else [f"the median is {median:.1f} s, not {MOST_MEDIAN_S} s"])

"""Who failed first, and what to tell the user about it. Pure, but for a look at what is installed here."""

from __future__ import annotations

import importlib.util
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from farandole.launch.job import Placement
from farandole.launch.output import visible

TOGETHER_SECONDS = 0.1
_NAMED_RANKS = 8  # of those that ended early
_MISSING = re.compile(rb"No module named '(farandole\w*)'")
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


@dataclass(frozen=True)
class Death:
    """The end of one rank. `code` is its exit code, or minus the signal that killed it."""

    placement: Placement
    pid: int
    code: int
    seen_at: float
    ran_s: float
    asked: bool = False  # the launcher had told it to end


def first_failure(deaths: Sequence[Death]) -> Death | None:
    """The rank to blame, or None. `deaths` is in the order in which they were seen.

    Peers of a dead rank soon fail too, with an exit code; so of those that died together, one killed by a signal.
    """
    failures = [death for death in deaths if death.code != 0 and not death.asked]
    if not failures:
        return None
    together = [death for death in failures if death.seen_at - failures[0].seen_at <= TOGETHER_SECONDS]
    return next((death for death in together if death.code < 0), failures[0])


def ended_before(deaths: Sequence[Death], failure: Death) -> list[Death]:
    """Who ended well before that. Perhaps rightly; perhaps it is what the others then failed of."""
    return [death for death in deaths[: deaths.index(failure)] if death.code == 0 and not death.asked]


def exit_code(death: Death) -> int:
    """As a shell would say it."""
    return death.code if death.code >= 0 else 128 - death.code


def describe(death: Death, tail: Sequence[bytes], output_directory: str | None, ended: Sequence[Death] = ()) -> str:
    """Who, where, how, when; its last lines; what to do next; `ended`: what `ended_before` says."""
    place = death.placement
    first = " first" if place.size > 1 else ""
    last = "its last lines:" if tail else "it printed nothing."
    lines = [
        f"farandole: rank {place.rank} on {place.host} (pid {death.pid}) failed{first}: "
        f"{_manner(death.code)} after {death.ran_s:.1f} s; {last}"
    ]
    lines += [f"[{place.rank}] " + visible(line).decode(errors="surrogateescape") for line in tail]
    lines.append("farandole: " + _advice(death, tail, output_directory))
    if ended:
        lines.append("farandole: " + _doubt(ended))
    return "\n".join(lines)


def note(death: Death, others: int) -> str:
    """One line about any death, for --verbose."""
    rest = f"{others} still running" if others else "the last one"
    return f"farandole: rank {death.placement.rank} ended: {_manner(death.code)} after {death.ran_s:.1f} s ({rest})."


def _doubt(ended: Sequence[Death]) -> str:
    ranks = [str(death.placement.rank) for death in ended[:_NAMED_RANKS]]
    if len(ended) > _NAMED_RANKS:
        ranks.append(f"{len(ended) - _NAMED_RANKS} more")
    who = f"ranks {', '.join(ranks[:-1])} and {ranks[-1]}" if len(ranks) > 1 else f"rank {ranks[0]}"
    when = f"after {ended[0].ran_s:.1f} s" if len(ended) == 1 else f"(the first of them after {ended[0].ran_s:.1f} s)"
    return (
        f"{who} had ended before, with exit code 0 {when}; if others still needed it: did it return early, or never "
        "call init()?"
    )


def _way_to(package: str) -> str:
    if importlib.util.find_spec(package) is None:
        return f"install it: {sys.executable} -m pip install {package.replace('_', '-')}"
    return (
        f"{package} is installed for {sys.executable}, and the ranks ran another Python: leave out the word python "
        "(farandole run -np 2 train.py), or activate that environment."
    )


def _manner(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {_signal_name(-code)} (signal {-code})"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _advice(death: Death, tail: Sequence[bytes], output_directory: str | None) -> str:
    rank = death.placement.rank
    if missing := [found[1].decode() for found in map(_MISSING.search, tail) if found]:
        return _way_to(missing[-1])
    if death.code == -signal.SIGKILL:
        return "if nobody killed it, the machine ran out of memory (dmesg tells): try smaller batches or fewer ranks."
    if -death.code in _CRASHES:
        return "it crashed in native code: run again with PYTHONFAULTHANDLER=1 to see the Python line."
    if output_directory is not None:
        return f"all of its output is in {output_directory}/rank.{rank}.log."
    return "run again with --output-dir DIR to keep all of its output."

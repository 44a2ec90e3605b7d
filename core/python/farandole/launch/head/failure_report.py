"""Decides which rank failed first, and words the report. Pure, except that it checks installed packages."""

from __future__ import annotations

import importlib.util
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farandole.launch.events import JobEnded
from farandole.launch.hosts import LOCAL_HOST
from farandole.launch.messages import spoken
from farandole.launch.output import visible
from farandole.launch.rank_exit import LOST, Death

TOGETHER_SECONDS = 0.1
TAIL_LINES = 20  # that are remembered of each rank
_NAMED_RANKS = 8  # of those that ended early
_MISSING = re.compile(rb"No module named '(\w+)'")
_CRASHES = (signal.SIGSEGV, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


@dataclass(frozen=True)
class Failure:
    """Which rank failed first; the job ends with `exit_code`."""

    culprit: Death
    exit_code: int
    ended: Sequence[Death] = ()  # who had ended well before. Perhaps rightly; perhaps it is what the culprit failed of
    waiter: Death | None = None  # who waited for the culprit in vain


def first_failure(deaths: Sequence[Death], survived: Sequence[Death] = ()) -> Failure | None:
    """The rank to blame, or None if no rank failed. `deaths` is in the order in which they were seen.

    `survived`: failures without which an elastic job went on; one of them is to blame where a later failure says so.

    A rank that fails because another has ended records that, and is not to blame. Of the others the first one is.
    Ranks without a record are judged by the order of deaths: peers of a dead rank soon fail too, with an exit code, so
    of ranks that died together one that was killed by a signal is to blame.
    """
    failures = [death for death in deaths if death.failed]
    if not failures:
        return None
    by_rank = {death.placement.rank: death for death in (*survived, *deaths)}
    suspects = sorted((_cause(death, by_rank) for death in failures), key=lambda death: death.failed_at)
    culprit = suspects[0]
    if waiter := _waiter(failures, culprit):
        return Failure(culprit, exit_code(waiter), waiter=waiter)
    if culprit.report is None:
        together = [death for death in suspects if death.failed_at - culprit.failed_at <= TOGETHER_SECONDS]
        culprit = next((death for death in together if death.code < 0), culprit)
    if not culprit.failed:
        raised = culprit.report is not None and culprit.report.raised
        return Failure(culprit, 1 if raised else exit_code(failures[0]))
    before = deaths[: deaths.index(culprit)] if culprit.report is None and culprit in deaths else ()
    return Failure(culprit, exit_code(culprit), [death for death in before if death.code == 0 and not death.asked])


def _cause(death: Death, by_rank: Mapping[int, Death]) -> Death:
    """The first rank in the chain of blame that begins at this rank."""
    seen = {death.placement.rank}
    while death.report is not None and death.report.culprit is not None:
        cause = by_rank.get(death.report.culprit)
        if cause is None or cause.placement.rank in seen:
            break
        seen.add(cause.placement.rank)
        death = cause
    return death


def _waiter(failures: Sequence[Death], culprit: Death) -> Death | None:
    """The first rank that failed because it waited for the culprit in vain."""
    waiters = [
        each
        for each in failures
        if each.report and each.report.awaited and each.report.culprit == culprit.placement.rank
    ]
    return min(waiters, key=lambda death: death.failed_at, default=None)


def exit_code(death: Death) -> int:
    """The exit code as a shell reports it."""
    return death.code if death.code >= 0 else 128 - death.code


def job_ended(
    failure: Failure,
    tail: Sequence[bytes],
    output_directory: str | None,
    are_shown: bool = False,
    elsewhere: str = "",
    more: Sequence[str] = (),
) -> JobEnded:
    """The rank, its host, how and when it ended; its last lines; what to do next.

    `elsewhere`: where its output is, if it does not pass through this process. `more`: further sentences.
    """
    death = failure.culprit
    place, reason = death.placement, _what_happened(failure)
    last = "it printed nothing." if not tail else "its last lines are above." if are_shown else "its last lines:"
    if elsewhere:
        last, output_directory, are_shown = f"its lines are in {elsewhere}.", None, True
    # The waiter's error says what to do.
    is_cut = len(tail) >= TAIL_LINES and not are_shown
    advice = "" if failure.waiter is not None else spoken(_advice(death, tail, output_directory, is_cut))
    doubt = _doubt(failure.ended) if failure.ended else ""
    blame = [f"rank {place.rank} on {place.host} (pid {death.pid}) {reason}", death.recorded, last]
    return JobEnded(
        exit_code=failure.exit_code,
        sentences=tuple(filter(None, ["; ".join(filter(None, blame)), advice, doubt, *more])),
        culprit=place.rank,
        waiter=None if failure.waiter is None else failure.waiter.placement.rank,
        host=place.host,
        pid=death.pid,
        reason=reason,
        last_lines=tuple(visible(line).decode(errors="surrogateescape") for line in tail),
        are_shown=are_shown,
        advice=advice,
    )


def _what_happened(failure: Failure) -> str:
    death, waiter = failure.culprit, failure.waiter
    if waiter is not None:
        return f"did not come in time: rank {waiter.placement.rank} waited for it, and gave up {_after(waiter)}"
    first = " first" if death.placement.size > 1 else ""
    after = _after(death)
    if death.lost:
        return f"was lost{first} {after}: {death.lost}"
    if death.failed:
        return f"failed{first}: {_manner(death.code)} {after}"
    if death.report is not None and death.report.raised:
        return f"failed{first}: it raised an exception {after}, and its process did not end within the grace"
    if not death.joined:
        return (
            f"ended{first}, with exit code {death.code} {after} and without calling init(), while others waited for it"
        )
    how = f"with exit code {death.code}" if not death.asked else "or called shutdown(),"
    return f"ended{first}, {how} {after}, while others still needed it"


def _after(death: Death) -> str:
    return f"after {death.failed_after_s:.1f} s"


def describe_interruption(signum: int, deaths: Sequence[Death]) -> str:
    """The line that closes a job which its user ended."""
    by = "Ctrl-C" if signum == signal.SIGINT else _signal_name(signum)
    ran_s = max((death.ran_s for death in deaths), default=0.0)
    who = "its rank is" if len(deaths) == 1 else f"all {len(deaths)} ranks are"
    return f"farandole: ended by {by} after {ran_s:.1f} s; {who} gone."


def describe_end(death: Death, others: int) -> str:
    """One line about any death, for --verbose."""
    rest = f"{others} still running" if others else "the last one"
    return f"farandole: rank {death.placement.rank} ended: {_manner(death.code)} after {death.ran_s:.1f} s ({rest})."


def describe_survived(death: Death, others: int, are_enough: bool = True) -> str:
    """The line about a rank without which an elastic job goes on, at once or as soon as there are enough ranks."""
    place = death.placement
    how = f"was lost: {death.lost}" if death.lost else f"ended: {_manner(death.code)}"
    go_on, goes_on = ("go on", "goes on") if are_enough else ("are left", "is left")
    go_on = f"{others} ranks {go_on}" if others > 1 else f"1 rank {goes_on}"
    return (
        f"farandole: rank {place.rank} on {place.host} (pid {death.pid}) {how} after {death.failed_after_s:.1f} s; "
        f"{go_on}."
    )


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


def _how_to_install(package: str) -> str:
    """How to install a package; "" if it is not known."""
    if importlib.util.find_spec(package) is None:
        install = f"install it: {sys.executable} -m pip install {package.replace('_', '-')}"
        return install if package.startswith("farandole") else ""
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


def _advice(death: Death, tail: Sequence[bytes], output_directory: str | None, is_cut: bool) -> str:
    """The advice on what to do next; "" where the rank's own lines say it."""
    rank = death.placement.rank
    if death.lost:
        return (
            f"check {death.placement.host} and its network; the ranks there end by themselves within "
            f"{death.orphaned_s:.0f} s."
            if death.code == LOST
            else ""
        )
    if not death.failed and not (death.report and death.report.raised):
        return "did it return early, or have fewer batches than the others (then let each rank call join() at its end)?"
    missing = [found[1].decode() for found in map(_MISSING.search, tail) if found]
    if missing and death.placement.host != LOCAL_HOST:
        return f"the Python of the ranks on {death.placement.host} lacks {missing[-1]}; install it there."
    if missing and (advice := _how_to_install(missing[-1])):
        return advice
    if death.code == -signal.SIGKILL and not death.asked:
        return (
            "if nobody killed it, the machine probably ran out of memory (check dmesg): try smaller batches or fewer "
            "ranks."
        )
    if death.code == -signal.SIGBUS:
        return (
            "a full /dev/shm is a likely cause (df -h /dev/shm; in a container raise --shm-size); else run again with "
            "PYTHONFAULTHANDLER=1 to see the Python line."
        )
    if -death.code in _CRASHES:
        return "it crashed in native code: run again with PYTHONFAULTHANDLER=1 to see the Python line."
    if output_directory is not None:
        return f"all of its output is in {output_directory}/rank.{rank}.log."
    return "run again with --output-dir DIR to keep all of its output." if is_cut else ""

"""The wait for enough hosts before an elastic job starts."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Mapping

from farandole.launch.discovery.complaints import UNUSABLE, Complaints, Trouble
from farandole.launch.discovery.inquiry import Inquiry
from farandole.launch.discovery.source import Source
from farandole.launch.hosts import HostList, JobError

_LOOK_EVERY_S = 0.02


def await_hosts(
    source: Source, environment: Mapping[str, str], slots: int, limit_s: float, say: Callable[[str], None]
) -> HostList:
    """Ask until there are so many slots. `say` gets each kind of trouble once.

    Raises:
        JobError: there are too few within `limit_s` seconds, or the command of the source cannot be run.
    """
    complaints, answers = Complaints(), list[HostList | Trouble]()
    last: HostList | Trouble | None = None
    with selectors.DefaultSelector() as selector:
        inquiry = Inquiry(source, environment, selector, answers.append)
        began_at = time.monotonic()
        try:
            while (now := time.monotonic()) < began_at + limit_s:
                inquiry.tick(now)
                for key, _ in selector.select(_LOOK_EVERY_S):
                    key.data()
                _reap(inquiry)
                for answer in answers:
                    last = answer
                    if isinstance(answer, Trouble):
                        if answer.kind == UNUSABLE:
                            raise JobError(f"{answer.sentence}.")
                        if complaints.is_news(answer):
                            say(f"{answer.sentence}; it is asked again for {limit_s:.0f} s.")
                    elif _count(answer) >= slots:
                        return answer
                    elif complaints.is_news(few := _too_few(source, answer, slots)):
                        say(f"{few.sentence}; waiting for more.")
                answers.clear()
        finally:
            _end(inquiry)
    if isinstance(last, HostList):
        last = _too_few(source, last, slots)
    why = f"{source.name} has not answered" if last is None else last.sentence
    raise JobError(f"{why}; the job was not started, after {limit_s:g} s of asking (--start-timeout).")


def _count(hosts: HostList) -> int:
    return sum(each.count for each in hosts.slots)


def _too_few(source: Source, hosts: HostList, slots: int) -> Trouble:
    found = _count(hosts)
    what = f"{source.name} offers {found} slot{'s' if found > 1 else ''}"
    return Trouble(f"few {found}", f"{what}, and --min-np asks for {slots}")


def _reap(inquiry: Inquiry) -> None:
    """Only that child: the program that has called us may have others."""
    pid = inquiry.pid
    if pid is not None:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            inquiry.reaped(pid, os.waitstatus_to_exitcode(status))


def _end(inquiry: Inquiry) -> None:
    inquiry.close()
    for _ in range(50):  # a process that sits in the kernel is left to the outer process
        if inquiry.pid is None:
            return
        _reap(inquiry)
        time.sleep(_LOOK_EVERY_S)

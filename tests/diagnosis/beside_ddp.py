"""The same faults under torchrun with DistributedDataParallel over gloo: the words of its user, and when they come."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import statements
from drawn import Fault
from injection import HERE, Job, Lines, inject

KINDS = ("order", "count", "shape", "early exit", "kill", "stop", "slower", "process sets", "loader", "exception")
TIMEOUT_S = 30.0  # of its collectives, whose default is half an hour
WATCH_S = TIMEOUT_S + 20.0
_MOST_TEXT = 90  # characters of an error in the table
_SUMMARY = re.compile(r"^\s*(?:exitcode|traceback)\s*: (.*)")
_ROOT = re.compile(r"^\s*rank\s*: (\d+) ")
_ERROR = re.compile(r"\[rank(\d+)\]: (\w*(?:Error|Exception)\b.*)")
_PLACE = re.compile(r"\[/\S+\] ")  # of gloo's source
# The words that name a cause, or would.
_CAUSES = {
    "order": re.compile(r"order|different collective|mismatch", re.IGNORECASE),
    "count": re.compile(r"number of (calls|steps|batches)|different collective|mismatch", re.IGNORECASE),
    "shape": re.compile(r"shape|size|length|mismatch", re.IGNORECASE),
    "early exit": re.compile(r"exited early|left|has ended", re.IGNORECASE),
    "kill": re.compile(r"SIGKILL"),
    "stop": re.compile(r"SIGSTOP|stopped"),
    "slower": re.compile(r"slow|straggl", re.IGNORECASE),
    "process sets": re.compile(r"group.*order|deadlock", re.IGNORECASE),
    "loader": re.compile(r"load_batch|has not called|did not (call|join|reach)", re.IGNORECASE),
    "exception": re.compile(r"samples 17 is damaged"),
}


class DdpJob(Job):
    """A job of torchrun."""

    def start(self, home: Path, _asker: Path) -> None:
        ranks = f"--nproc-per-node={self.fault.ranks}"
        command = [str(home / "bin" / "torchrun"), "--standalone", ranks, str(HERE / "trainee.py"), str(self.folder)]
        self.launcher = self._start(None, ["env", f"DDP_TIMEOUT_S={TIMEOUT_S}", *command])
        self.stderr, self._stdout = Lines(self.launcher.stderr), Lines(self.launcher.stdout)
        self.answers = []

    def close(self) -> None:
        """Also its ranks: torchrun waits for a rank that is stopped, and a killed one leaves them."""
        ranks = psutil.Process(self.launcher.pid).children(recursive=True) if self.launcher.poll() is None else []
        for rank in ranks:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.kill()
        super().close()


def words(fault: Fault, lines: Iterable[tuple[float, str]]) -> dict[str, Any]:
    """The errors of ranks and torchrun's summary, read for a culprit and a cause. Pure."""
    after = [(at, line) for at, line in lines if at >= 0 and line.strip()]
    errors = [(at, int(found[1]), found[2]) for at, line in after if (found := _ERROR.search(line))]
    root = next((int(found[1]) for _, line in reversed(after) if (found := _ROOT.match(line))), None)
    texts = [text for _, _, text in errors] + [found[1] for _, line in after if (found := _SUMMARY.match(line))]
    first_at = errors[0][0] if errors else after[0][0] if after else None
    return {
        "first_s": first_at,
        "last_s": after[-1][0] if after else None,
        "root": root,
        "culprit": root in fault.blamed,
        "cause": any(map(_CAUSES[fault.kind].search, texts)),
        "text": errors[0][2] if errors else "",
    }


def compare(fault: Fault, homes: Mapping[str, Path]) -> dict[str, Any]:
    """One fault on both: the record of it."""
    ours = inject(fault, homes, 0.0)
    folder = Path(tempfile.mkdtemp(prefix="farandole-diagnosis-"))
    job = DdpJob(replace(fault, framework="ddp"), folder, None)
    try:
        job.start(homes["torch"], homes["asker"])
        since = job.await_moment()
        told = job.watch(since, WATCH_S, hear_all=True)
    finally:
        job.close()
    shutil.rmtree(folder)
    lines = [[round(at, 2), line] for at, line in told.lines if at >= 0]
    return {"fault": fault.plan(), "kind": fault.kind, "ours": ours, "ddp": words(fault, told.lines), "lines": lines}


def table(records: Sequence[dict[str, Any]]) -> str:
    """In Markdown: for each kind how often the culprit and the cause were named, and after how long."""
    lines = [
        "| fault | Farandole names both | after, s | DDP: the culprit | the cause | after, s | first error |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for name in KINDS:
        of_kind = [each for each in records if each["kind"] == name]
        if of_kind:
            lines.append(f"| {' | '.join([name, *_ours(of_kind), *_theirs(of_kind)])} |")
    return "\n".join(lines)


def _ours(records: Sequence[dict[str, Any]]) -> list[str]:
    right = [each["ours"]["seconds"] for each in records if each["ours"]["result"] == statements.RIGHT]
    return [f"{len(right)} of {len(records)}", _span(right)]


def _theirs(records: Sequence[dict[str, Any]]) -> list[str]:
    said = [each["ddp"] for each in records]
    times = [each["first_s"] for each in said if each["first_s"] is not None]
    texts = [_PLACE.sub("", each["text"]) for each in said if each["text"]]
    counts = [f"{sum(each[what] for each in said)} of {len(said)}" for what in ("culprit", "cause")]
    text = f"`{texts[0][:_MOST_TEXT]}`" if texts else f"nothing within {WATCH_S:.0f} s" if not times else ""
    return [*counts, _span(times), text]


def _span(seconds: Sequence[float]) -> str:
    if not seconds:
        return "never"
    least, most = f"{min(seconds):.1f}", f"{max(seconds):.1f}"
    return least if least == most else f"{least} to {most}"

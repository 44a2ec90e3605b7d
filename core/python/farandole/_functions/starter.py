"""`farandole run` as a child process, whose output appears where the caller prints.

The child is in a session of its own: a terminal's Ctrl-C reaches the caller only, which passes it on once. It ends
with the caller, even where that is killed. One thread reads its pipes, since a notebook shows lines in the cell whose
thread writes them.
"""

from __future__ import annotations

import codecs
import os
import re
import selectors
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import farandole

_CHUNK = 1 << 16
_STDOUT = 1
_VERDICT = re.compile(r"farandole: rank (\d+) on ")  # the line with which the launcher's last words begin
_OWN = "farandole: "


@dataclass
class Ended:
    """The end of a job, in the words of its launcher."""

    code: int
    said: str = ""  # without "farandole: " before its lines
    failed_first: int | None = None  # the rank that it blames


@dataclass
class _Lines:
    """One pipe of the launcher, and the stream that shows it."""

    shown: TextIO
    verdict: list[str] = field(default_factory=list)  # kept back: the caller raises it
    last: str = ""  # sentence of the launcher
    rest: str = ""

    def __post_init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Show the lines that are whole; without data all."""
        text = self.rest + self.decoder.decode(data, final=not data)
        end = max(text.rfind("\n"), text.rfind("\r")) + 1 if data else len(text)
        self.rest = text[end:]
        lines = text[:end].splitlines(keepends=True) if _OWN in text or self.verdict else [text[:end]]
        shown = [line for line in lines if not self._is_verdict(line)]
        self.shown.write("".join(shown))
        self.shown.flush()

    def _is_verdict(self, line: str) -> bool:
        if line.startswith(_OWN):
            self.last = line
        if not self.verdict and not _VERDICT.match(line):
            return False
        self.verdict.append(line)
        return True


def python(module: str, executable: str | None = None) -> list[str]:
    """The command that calls `main` of a module of farandole, whichever modules lie in the working directory."""
    root = str(Path(farandole.__file__).parents[1])
    path = f"sys.path[:] = [*filter(None, sys.path), {root!r}]"
    return [executable or sys.executable, "-c", f"import sys; {path}; from {module} import main; main()"]


def run(words: list[str]) -> Ended:
    """Run the launcher with these options and this command to its end. Raises KeyboardInterrupt once all is gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = subprocess.Popen(
        [*python("farandole.launch.child"), str(os.getpid()), "run", *words],
        stdin=subprocess.DEVNULL,
        stdout=None if _is_our_stdout() else subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    errors = _Lines(sys.stderr)
    with process, selectors.DefaultSelector() as selector:
        if process.stdout is not None:
            selector.register(process.stdout, selectors.EVENT_READ, _Lines(sys.stdout))
        assert process.stderr is not None
        selector.register(process.stderr, selectors.EVENT_READ, errors)
        _see_through(process, selector)
    said = "".join(errors.verdict) or errors.last
    blamed = _VERDICT.match(said)
    plain = re.sub(f"^{_OWN}", "", said.rstrip("\n"), flags=re.MULTILINE)
    return Ended(process.returncode, plain, int(blamed[1]) if blamed else None)


def _see_through(process: subprocess.Popen[bytes], selector: selectors.BaseSelector) -> None:
    """Show what comes until the pipes close; whatever is raised meanwhile ends the job first."""
    interruption: BaseException | None = None
    while True:
        try:
            _show(selector)
            process.wait()
            break
        except KeyboardInterrupt as error:
            interruption = error
            process.send_signal(signal.SIGINT)
        except BaseException as error:  # stdout is closed, or the caller's own signal handler raised
            interruption = interruption or error
            process.terminate()
            process.wait()
            break
    if interruption is not None:
        raise interruption


def _show(selector: selectors.BaseSelector) -> None:
    while selector.get_map():
        for key, _ in selector.select():
            data = os.read(key.fd, _CHUNK)
            if not data:
                selector.unregister(key.fileobj)
            key.data.feed(data)


def _is_our_stdout() -> bool:
    """False in a notebook and wherever sys.stdout was replaced: then we write the lines to it."""
    try:
        return sys.stdout.fileno() == _STDOUT
    except (AttributeError, OSError, ValueError):
        return False

"""The timeline of this process: its beginning, its end, and the worlds of an elastic job that it passes through."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farandole._api.errors import ArgumentError
from farandole._start.timeline_files import file_of, path_of

if TYPE_CHECKING:
    from farandole._runtime.trace_writer import TraceWriter
    from farandole._start.environment import World


@dataclass(frozen=True)
class Track:
    """The place of this process's events in the timeline of the job."""

    number: int  # of the process: its rank at the start, which it keeps when an elastic job goes on in another world
    world: World
    epoch: int  # the number of the world
    most: int  # how many ranks the job has, or may get: 1 for one that stays alone
    run: str  # a word that all ranks of the job have in common
    offset_ns: int  # how far this host's clock is ahead of that of the job's first rank 0


class _State:
    wanted: tuple[str, bool] | None = None  # path and mark_cycles of a process that has yet to join a running job
    writer: TraceWriter | None = None  # of this process, or of the one that it was forked from
    path = own = ""  # the name that the user gave, and this rank's own file
    is_copied = False  # the one cannot lead to the other, so it gets a copy at the end


def begin(path: str, mark_cycles: bool, track: Track) -> None:
    """Record to this rank's file, see `start_timeline`. Raises ValueError."""
    title = f"rank {track.number} ({socket.gethostname()}, pid {os.getpid()})"
    title += f" of run {track.run}" if track.run else ""  # by which `farandole timeline` knows what belongs together
    path = file_of(path)
    own = path_of(path, track.number, track.most)
    if _writer() is not None:
        raise ArgumentError(f"a timeline is being recorded to '{_State.own}'; call stop_timeline() first")

    def start(file: str) -> TraceWriter:
        from farandole._runtime.trace_writer import TraceWriter  # with json, which `import farandole` does without

        return TraceWriter(file, title, track.number, track.offset_ns, mark_cycles)

    _State.writer = _begin_file(path, own, start)
    _State.path, _State.own, _State.is_copied = path, own, False
    enter_world(track, is_new=track.epoch > 0)


def begin_at_init(path: str, mark_cycles: bool, track: Track) -> None:
    """`begin` for FARANDOLE_TIMELINE. The folder may be there only on the host of rank 0, whose file programs read."""
    try:
        begin(path, mark_cycles, track)
    except ValueError as error:
        if track.world.rank == 0:
            raise
        if track.world.local_rank == 0:
            _warn(f"{error}; training goes on without the timelines of this host")


def begin_later(path: str, mark_cycles: bool) -> None:
    """`begin` for a process that has yet to join a running job: with its first world. Raises ValueError."""
    path = file_of(path)
    if _State.wanted is not None:
        raise ArgumentError(f"a timeline is to be recorded to '{_State.wanted[0]}'; call stop_timeline() first")
    _State.wanted = path, mark_cycles


def enter_epoch(track: Track) -> None:
    """This process has entered a later world of an elastic job, where its timeline goes on, or begins."""
    if _State.wanted is None:
        enter_world(track, is_new=True)
        return
    (path, mark_cycles), _State.wanted = _State.wanted, None
    try:
        begin(path, mark_cycles, track)
    except ValueError as error:
        _warn(f"{error}; training goes on without the timeline of this rank")


def enter_world(track: Track, is_new: bool) -> None:
    """The name that the user gave leads to the file of rank 0. `is_new`: the trace tells of the world, too."""
    if is_new and (writer := _writer()) is not None:
        writer.enter_world(track.epoch, track.world.rank, track.world.size)
    if track.world.rank == 0 and _State.own not in ("", _State.path):
        _lead_to_own_file()


def end() -> bool:
    """End the timeline; returns whether there was one."""
    was_wanted, _State.wanted = _State.wanted is not None, None
    if (writer := _writer()) is not None:
        writer.close()
    was_recorded, _State.writer = writer is not None, None
    if was_recorded and _State.is_copied:
        try:
            shutil.copyfile(_State.own, _State.path)
        except OSError as error:
            _warn(f"the timeline of rank 0 is in '{_State.own}', and not in '{_State.path}': {error.strerror or error}")
    if was_recorded:
        _State.path = _State.own = ""
    return was_recorded or was_wanted


def _writer() -> TraceWriter | None:
    writer = _State.writer
    return writer if writer is not None and writer.process_id == os.getpid() else None


def _begin_file(path: str, own: str, start: Callable[[str], TraceWriter]) -> TraceWriter:
    """The error names the user's path where that is to blame, so that all ranks say the same."""
    if os.path.isdir(path):
        raise ArgumentError(f"a timeline cannot be written to '{path}': it is a folder; name a file in it")
    try:
        return start(own)
    except ValueError as error:
        if os.access(os.path.dirname(path) or ".", os.W_OK):
            raise
        raise ArgumentError(str(error).replace(own, path)) from None


def _lead_to_own_file() -> None:
    """Programs open the name that they gave, also while the job runs; `farandole timeline` puts all ranks there."""
    path, own = _State.path, _State.own
    if os.path.exists(path) and not os.path.isfile(path):
        return  # a device, which stays
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        os.symlink(os.path.basename(own), path)
    except OSError:  # a file system without links, say
        _State.is_copied = True


def _warn(sentence: str) -> None:
    from farandole._start.log import logger  # with logging, which `import farandole` does without

    logger.warning("%s", sentence)

"""Keeps commits outside the ranks, for jobs whose ranks may all end together and start again as new processes.

FARANDOLE_COMMITS names a folder for them, or the cluster that starts the ranks installs its own writer. Rank 0 gives
each commit to the writer. In a new job, rank 0 loads the newest commit when `elastic.run` begins, and `sync` sends it
to the others, because rank 0 then has the most commits. Without a writer, these functions do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from farandole._api.checkpoints import by_root
from farandole._api.errors import ArgumentError, FarandoleError
from farandole._elastic.commit_file import CommitFolder, Piece
from farandole._elastic.commit_writer import CommitWriter
from farandole._runtime import clock
from farandole._start import environment, world
from farandole._start.connection import FAILURES
from farandole._start.log import logger

if TYPE_CHECKING:
    from farandole._elastic.state import State

__all__ = ["Piece", "agree", "are_kept", "flush", "install", "offer", "runs", "take_back"]

_installed: list[CommitWriter] = []
_runs = 0  # how often this process has called elastic.run


def install(writer: CommitWriter) -> None:
    """Give all later commits to this writer."""
    _installed[:] = [writer]


def are_kept() -> bool:
    """Return whether the last commit survives the loss of all ranks."""
    return bool(_installed or environment.commits())


def offer(state: State) -> None:
    """Give the writer a copy of a state that has just been committed. Raises TypeError if it cannot be pickled."""
    if _installed and world.rank() == 0:
        _installed[0].save(_runs, state._commits, state._to_copy())


def runs() -> int:
    """Return the number of calls of `elastic.run` in this process."""
    return _runs


def agree(of_ranks: Sequence[int]) -> None:
    """Use the same count of `elastic.run` calls on all ranks; a newcomer may have made fewer."""
    global _runs
    _runs = max(of_ranks)


def flush() -> None:
    """Wait some seconds for the last commit to be written."""
    if _installed and not _installed[0].flush():
        logger.warning("the last commit could not be saved in time; the previous one stays.")


def take_back(state: State, is_newcomer: bool = False) -> bool:
    """Load the newest commit of an earlier job into rank 0's state. Collective, except for newcomers.

    The first `elastic.run` of a process continues the first one of the earlier job, the second the second, and so on.

    Returns:
        Whether there was a commit, on all ranks.

    Raises:
        ArgumentError: FARANDOLE_COMMITS is set only on some ranks.
        FarandoleError: the commit cannot be read, or no new one could be written.
        MismatchError: the commit belongs to another state.
        NotImplementedError: the state cannot be kept outside the ranks.
    """
    global _runs
    _runs += 1
    if not _installed and (folder := environment.commits()):
        install(CommitWriter(CommitFolder(Path(folder))))
    if _installed:
        state._check_copies()
    if is_newcomer:  # the others have loaded it
        return False
    _check_agreement()
    return bool(_installed) and by_root("elastic.run", lambda: _load(_installed[0], state), 0)


def _check_agreement() -> None:
    reported = (
        [bool(_installed)] if world.size() == 1 else clock.allgather([bool(_installed)], "farandole.elastic.commits")
    )
    if len(set(reported)) > 1:
        raise ArgumentError(
            f"FARANDOLE_COMMITS is set for rank {reported.index(True)} but not for rank {reported.index(False)}: "
            "set it for all ranks (mpirun -x FARANDOLE_COMMITS of Open MPI, -genvlist of MPICH pass it on)"
        )


def _load(writer: CommitWriter, state: State) -> bool:
    try:
        writer.destination.prepare()
        found = writer.destination.newest(_runs)
    except FAILURES as error:
        raise FarandoleError(f"commits cannot be saved {writer.destination.name}: {error}") from None
    if found is not None:
        state._from_copy(found.content)
        state._commits = found.commits
    return found is not None

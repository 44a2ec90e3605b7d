"""Copies of commits outside of the ranks, for jobs whose ranks may all end together and begin again as new processes.

The program that starts the ranks may install a writer, before the function runs. Rank 0 offers it each commit, and
takes back the newest copy at the start of the next job; `sync` sends it to the others, as it has the most commits then.
Without a writer nothing happens here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from farandole._api.errors import FarandoleError
from farandole._start import world

if TYPE_CHECKING:
    from farandole._elastic.state import State

Piece = bytes | bytearray | memoryview


class CommitWriter(Protocol):
    """Keeps copies of commits outside of this process."""

    has_earlier: bool
    """A job before this one has left a copy, with which all ranks of this one go on."""

    def save(self, commits: int, pieces: Sequence[Piece]) -> None:
        """Keep a copy, which nobody changes; returns at once, and raises nothing."""

    def newest(self) -> memoryview | None:
        """The whole copy with the most commits, or None. Raises OSError."""


_installed: list[CommitWriter] = []


def install(writer: CommitWriter) -> None:
    """From now on this writer gets the commits."""
    _installed[:] = [writer]


def are_kept() -> bool:
    """Returns whether the loss of all ranks leaves the job its last commit."""
    return bool(_installed)


def offer(state: State) -> None:
    """Give the writer a copy of a state that was committed just now. Raises TypeError where it cannot be pickled."""
    if _installed and world.rank() == 0:
        _installed[0].save(state._commits, state._to_copy())


def take_back(state: State) -> bool:
    """Load the copy that an earlier job has left, on rank 0. Returns on all ranks whether there is one.

    Raises:
        FarandoleError: the copy cannot be read.
        MismatchError: it is of another state.
    """
    if not _installed or not _installed[0].has_earlier:
        return False
    if world.rank() == 0:
        try:
            content = _installed[0].newest()
        except OSError as error:
            raise FarandoleError(
                f"the copy of the last commit cannot be read ({error}); start the job again."
            ) from None
        if content is None:
            raise FarandoleError("no whole copy of a commit is left; start the job again from a checkpoint.")
        state._from_copy(content)
    return True

"""The commits of a job outside of its ranks, as its driver sees them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from farandole._engines.copies import Shelf
from farandole._engines.copy_folder import Folder
from farandole._engines.keeper import Where


class Kept:
    """The commits of a job that an engine runs in several stages, each with ranks of its own.

    Args:
        folder: one that the driver and all hosts share; "" for the driver's memory.
    """

    def __init__(self, folder: str = "") -> None:
        self._where = Where(os.urandom(8).hex(), os.urandom(32), 0, folder)
        self.shelf = None if folder else Shelf(self._where.key)
        self.folder = Folder(Path(folder), self._where.job, self._where.key) if folder else None

    def of_stage(self, stage: int) -> Where:
        """Where the ranks of a stage keep theirs; the first one is 0."""
        return replace(self._where, stage=stage, has_earlier=stage > 0)

    def count(self) -> int:
        """How many commits are in the newest copy; 0 where there is none."""
        return self.shelf.commits() if self.shelf else self.folder.commits() if self.folder else 0

    def close(self) -> None:
        """Remove what lies in a folder, as the job has ended."""
        if self.folder:
            self.folder.clear()

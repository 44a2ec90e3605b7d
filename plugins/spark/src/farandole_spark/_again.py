"""Decides whether a job goes on in another stage. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import farandole

_MOST_VAIN_STAGES = 3  # one after the other, without a commit


def would_come_again(error: BaseException) -> bool:
    """Returns whether the program raised it, and not the loss of a rank, of its task or of the stage."""
    if isinstance(error, farandole.RecoverableError):
        return False
    return type(error) is not farandole.FarandoleError or error.__cause__ is not None


@dataclass
class Ledger:
    """The stages of a job so far.

    `limit`: more stages than the first, at most; None for any number.
    """

    limit: int | None
    resets: int = 0
    commits: int = 0
    vain: int = 0

    def refusal(self, commits: int) -> str:
        """A stage was lost, with so many commits kept: why there is no other one; "" where there is."""
        if commits == 0:
            return (
                "No commit was saved before, so the job cannot go on; call state.commit() earlier in elastic.run, or "
                "start the job again."
            )
        self.vain = self.vain + 1 if commits == self.commits else 0
        self.commits = commits
        if self.limit is not None and self.resets >= self.limit:
            return f"The job has begun again {self.resets} times, which is its reset_limit."
        if self.vain >= _MOST_VAIN_STAGES:
            return f"{self.vain} stages in a row were lost without a new commit (the last was number {commits})."
        self.resets += 1
        return ""

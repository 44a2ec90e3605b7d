"""Decides whether a job goes on in another stage. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import farandole

_MOST_VAIN_STAGES = 3  # in a row, without a commit


def would_come_again(error: BaseException) -> bool:
    """Return whether the program raised the error, rather than the loss of a rank, a task or the stage."""
    if isinstance(error, farandole.RecoverableError):
        return False
    return type(error) is not farandole.FarandoleError or error.__cause__ is not None


@dataclass
class Ledger:
    """The stages of a job so far.

    `limit` is the maximum number of stages after the first one, or None.
    """

    limit: int | None
    resets: int = 0
    commits: int = 0
    vain: int = 0

    def refusal(self, commits: int) -> str:
        """Return why no other stage follows a lost one, or "" if one does. `commits` is the number of saved commits."""
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

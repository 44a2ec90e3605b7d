"""Frees the process sets of groups that are destroyed.

Each member destroys a group when it likes, perhaps alone, but all members have to remove its process set. So each says
in torch's store that it is done with it, and a thread looks there until all have. Only then does it remove the set.
"""

from __future__ import annotations

import atexit
import threading
from contextlib import suppress
from typing import Any, NamedTuple

from farandole import ArgumentError, MismatchError, NotInitializedError, ProcessSet
from farandole.plugin.distributed import remove_own_process_set

_SHORTEST_S, _LONGEST_S = 0.05, 1.0  # between two looks


class _Retired(NamedTuple):
    process_set: ProcessSet
    store: Any
    keys: list[str]  # that the members set

    def remove(self) -> bool:
        """Remove the set if all members are done with it. Returns whether there is nothing left to do."""
        try:
            if not self.store.check(self.keys):
                return False
            remove_own_process_set(self.process_set)
            return True
        except NotInitializedError:
            return True
        except (ArgumentError, MismatchError):  # one of its operations is under way, here or on another rank
            return False
        except RuntimeError:  # another member has left, or the store has ended
            return True


class RetiredSets:
    """Those of this process. Thread safety: any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sets: list[_Retired] = []
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        atexit.register(self._end)

    def add(self, process_set: ProcessSet, store: Any, rank: int, size: int) -> None:
        """This rank needs the set of a group no more. `store`: the group's; `rank`, `size`: of the group."""
        keys = [f"destroyed/{each}" for each in range(size)]
        with suppress(RuntimeError):  # the store has ended
            store.set(keys[rank], "")
            with self._lock:
                self._sets.append(_Retired(process_set, store, keys))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="farandole retired sets", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        wait_s = _SHORTEST_S
        while not self._ending.wait(wait_s):
            with self._lock:
                sets = [*self._sets]
            removed = [each for each in sets if each.remove()]
            wait_s = _SHORTEST_S if removed else min(2 * wait_s, _LONGEST_S)
            with self._lock:
                self._sets = [each for each in self._sets if each not in removed]
                if not self._sets:
                    self._thread = None
                    return

    def _end(self) -> None:
        """Wait for the thread: one that returns from torch's C++ after Python has ended would abort the process."""
        self._ending.set()
        if thread := self._thread:
            thread.join(_LONGEST_S)


retired_sets = RetiredSets()

"""Checks that the ranks of a `fit` have distributed optimizers and the same number of batches.

Numbers that Keras knows are compared at the begin. Where it does not know all of them, as with a generator, the ranks
meet at the end of each epoch: one that waits for another in a gradient, while the other waits at the meeting, has more.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from farandole._api.calls import plain
from farandole._api.errors import MismatchError
from farandole._api.objects import allgather_object
from farandole._api.ops import Kind
from farandole._api.process_sets import ProcessSet
from farandole._keras.optimizer import Distributed
from farandole._runtime.native import core
from farandole._start.world import rank, size
from farandole._training.parameter_check import COMPARISON

Logs = dict[str, Any] | None


def barrier_after(name: str, process_set: ProcessSet | None, prefixes: Sequence[str], why: str, advice: str) -> None:
    """Block until all ranks of the set have called this, each after its last call with one of certain names.

    Args:
        name: of the barrier.
        process_set: of the barrier and of those calls.
        prefixes: the names of those calls: a prefix alone, or followed by a number or "#".
        why: for the error: why this rank makes no more of those calls.
        advice: for the error: what to do about it.

    Raises:
        MismatchError: another rank waits for this one in such a call. All ranks raise it, and this world ends.
    """
    parameters = plain(name, process_set)
    numbers: list[int] = []
    try:
        for each in prefixes:
            numbers.append(core.exclude_calls(each, parameters[5], name, why, advice))
        core.submit(Kind.BARRIER, [], None, parameters).wait()
    finally:
        for number in numbers:
            core.allow_calls(number)


class Checked:
    """A callback that warns at the begin of `fit` where each rank would train by itself."""

    def on_train_begin(self, logs: Logs = None) -> None:
        super().on_train_begin(logs)  # type: ignore[misc]  # of Keras
        model = getattr(self, "model", None)
        if model is not None and size() > 1:
            _warn_unless_distributed(model)


class InStep(Checked):
    """A callback with which all ranks learn that their numbers of batches differ, however early that can be known."""

    model: Any
    params: dict[str, Any]
    _params_of_fit: dict[str, Any] | None = None
    _has_barrier = False
    _is_open = False  # the epoch, until the ranks have met at its end
    _batches = 0  # of the epoch; with steps_per_execution, rounded up to whole executions

    def on_train_begin(self, logs: Logs = None) -> None:
        super().on_train_begin(logs)
        self._params_of_fit = self.params
        self._has_barrier = size() > 1 and agree_on_batches(self.model, self.params)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._is_open, self._batches = self._has_barrier, 0

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._batches = batch + 1  # optimizer.iterations may count an attempt to read behind the last batch

    def on_test_begin(self, logs: Logs = None) -> None:
        """The end of the epoch's batches, unless this is an evaluation of the user's own, which has other `params`."""
        if self.params is self._params_of_fit:
            self._end_epoch()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._end_epoch()

    def _end_epoch(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        options = self.model.optimizer._farandole.options
        name, ended = options.operations, f"rank {rank()} has ended its epoch after {self._batches} batches"
        of_a_step = f"{name}.", f"{COMPARISON}{name}"
        barrier_after(f"end of an epoch with {name}", options.process_set, of_a_step, ended, REMEDY)


class _Share(NamedTuple):
    """What a rank does in an epoch, and with whom."""

    rank: int
    batches: int | None  # None: Keras does not know it
    passes: int  # that come before an update
    members: tuple[int, ...]  # that take part in the updates

    @property
    def updates(self) -> int:
        return (self.batches or 0) // self.passes


def agree_on_batches(model: Any, params: dict[str, Any]) -> bool:
    """Raise MismatchError, alike on all ranks, where ranks that train together know that their batches differ.

    The rank with more of them would wait for the others in vain.

    Args:
        model: of this rank.
        params: of the callback; Keras does not always know the number of batches before the first epoch.

    Returns:
        Whether a rank that trains together with this one does not know its number; the same on all of these.
    """
    shares = allgather_object(_share(model, params.get("steps")), name="batches of an epoch")
    _compare_known(shares)
    mine = shares[rank()]
    if mine is None or rank() not in mine.members:
        return False
    others = [shares[each] for each in mine.members]
    train_together = all(each is not None and each.members == mine.members for each in others)
    return train_together and any(each is not None and each.batches is None for each in others)


def _compare_known(shares: list[_Share | None]) -> None:
    of_known = [each for each in shares if each and each.batches is not None]
    for members in sorted({each.members for each in of_known}):
        known = [each for each in of_known if each.members == members]
        fewest, most = (pick(known, key=lambda share: share.updates) for pick in (min, max))
        if fewest.updates != most.updates:
            raise MismatchError(
                f"rank {fewest.rank} has {fewest.batches} batches in an epoch and rank {most.rank} has {most.batches}, "
                f"but all ranks take each step together: {REMEDY}"
            )


REMEDY = (
    "give fit the same steps_per_epoch= on all ranks, at most the smallest number of batches, or repeat shorter data "
    "with dataset.repeat() and steps_per_epoch="
)


def _share(model: Any, batches: Any) -> _Share | None:
    """None where nothing is reduced in the batches."""
    if not isinstance(model.optimizer, Distributed):
        return None
    options = model.optimizer._farandole.options
    members = range(size()) if options.process_set is None else options.process_set.ranks
    return _Share(rank(), None if batches is None else int(batches), options.passes, tuple(members))


def _warn_unless_distributed(model: Any) -> None:
    """Warns where ranks would start alike and then diverge, as with a model that Keras itself has loaded.

    A step of the user's own may reduce by a tape, and a frozen model has nothing to reduce.
    """
    has_own_step = getattr(model.train_step, "__module__", "").split(".")[0] not in ("keras", "tf_keras")
    is_frozen = model.built and not model.trainable_variables
    if has_own_step or is_frozen or model.optimizer is None or isinstance(model.optimizer, Distributed):
        return
    say_once(
        f"the model's optimizer, {type(model.optimizer).__name__}, is not distributed, so each rank trains by itself: "
        "compile the model with hvd.DistributedOptimizer(optimizer); a saved model that had one is loaded by "
        "hvd.load_model(path), not by keras.models.load_model"
    )


_reported: set[str] = set()


def say_once(text: str) -> None:
    """Warn on rank 0, at the first time."""
    if text not in _reported and rank() == 0:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    _reported.add(text)

"""Callbacks that set the learning rate: the part that all ranks do alike, without a word among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from farandole._keras.agreement import Checked
from farandole._keras.optimizer import innermost
from farandole._keras.private import momenta_of
from farandole._start.world import rank, size

Logs = dict[str, Any] | None
Multiplier = Callable[[float], float]


class Schedule(Checked):
    """Sets the learning rate to `initial_lr` times a multiplier, within some epochs.

    In the logs of an epoch it is `learning_rate`, and `lr` with Keras 2, as with Keras's own callbacks.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), loss="mse", jit_compile=False)
        >>> halving = hvd.callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 0.5**epoch)
        >>> _ = model.fit(np.ones((1, 1)), np.ones((1, 1)), epochs=2, callbacks=[halving], verbose=0)
        >>> float(model.optimizer.learning_rate)  # of epoch 1, the second one
        0.5
    """

    model: Any
    params: dict[str, Any]
    farandole_log = "learning_rate"  # the rate in the logs of an epoch, as Keras's own callbacks call it

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Multiplier,
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """Set nothing yet.

        Args:
            initial_lr: multiplied.
            multiplier: a number, or a function of the epoch.
            start_epoch: the first epoch, counted from 0, in which it is set.
            end_epoch: the first one in which it no longer is; by default there is none.
            staircase: set it at the begin of epochs; False: at each step, for a function of fractions of epochs.
            momentum_correction: when it changes, scale an SGD's momentum alike, which contains the rate of the steps
                before; see Goyal et al., whom LearningRateWarmupCallback names.
            steps_per_epoch: where Keras does not know it, and staircase=False.
        """
        super().__init__()
        self._supports_tf_logs = True  # of Keras 2, which need not fetch each step's logs for us
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.multiplier: Multiplier = multiplier if callable(multiplier) else lambda _: multiplier
        self.momentum_correction, self.steps_per_epoch = momentum_correction, steps_per_epoch
        self.current_epoch = 0
        self._steps: int | None = None  # in an epoch of this fit

    def on_train_begin(self, logs: Logs = None) -> None:
        super().on_train_begin(logs)
        self._steps = self.steps_per_epoch or self.params.get("steps")
        if not self.staircase and not self._steps:
            raise ValueError(
                f"{type(self).__name__} needs steps_per_epoch=: Keras does not know the number of steps in this data"
            )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._set(epoch + batch / self._steps)  # type: ignore[operator]
        elif batch == 0:
            self._set(epoch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if logs is not None:
            logs[type(self).farandole_log] = _rate(innermost(self.model.optimizer))

    def _set(self, epoch: float) -> None:
        optimizer = innermost(self.model.optimizer)
        before, after = _rate(optimizer), self.initial_lr * self.multiplier(epoch)
        try:
            optimizer.learning_rate = after
        except TypeError:  # of Keras
            raise ValueError(
                f"{type(self).__name__} cannot set the learning rate of an optimizer that has a LearningRateSchedule: "
                "give the optimizer a number instead"
            ) from None
        if self.momentum_correction and before > 0 and after != before:
            for each in _momenta(optimizer, self.model):
                each.assign(each * (after / before))


class Warmup(Schedule):
    """Raises the learning rate step by step from `initial_lr / size()` to `initial_lr` in the first epochs.

    Large batches learn badly from the start with a rate that is right for them later; see Goyal et al., "Accurate,
    large minibatch SGD: training ImageNet in 1 hour".

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), loss="mse", jit_compile=False)
        >>> warmup = hvd.callbacks.LearningRateWarmupCallback(1.0, warmup_epochs=2)
        >>> _ = model.fit(np.ones((1, 1)), np.ones((1, 1)), epochs=1, callbacks=[warmup], verbose=0)
        >>> float(model.optimizer.learning_rate)  # halfway from 0.5 to 1.0
        0.75
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """Set nothing yet.

        Args:
            initial_lr: the rate for all ranks together, usually that for one times `size()`.
            warmup_epochs: how many epochs it takes.
            momentum_correction: as in LearningRateScheduleCallback.
            steps_per_epoch: where Keras does not know it.
            verbose: 1: rank 0 prints when it is over.
        """

        def multiplier(epoch: float) -> float:
            steps_done = epoch + 1 / (self._steps or 1)  # after this step, so that it ends with a round number
            return 1 / size() * (steps_done * (size() - 1) / warmup_epochs + 1)

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose > 0 and rank() == 0 and self.end_epoch == epoch + 1:
            rate = _rate(innermost(self.model.optimizer))
            print(f"\nEpoch {epoch + 1}: the learning rate is warmed up to {rate:g}.")


def _rate(optimizer: Any) -> float:
    rate = optimizer.learning_rate
    return float(rate.numpy() if hasattr(rate, "numpy") else rate)


def _momenta(optimizer: Any, model: Any) -> list[Any]:
    """The variables in which an optimizer with momentum has the sum of its steps."""
    if not getattr(optimizer, "momentum", None):
        return []
    slots = momenta_of(optimizer)
    if not slots and "momentum" in getattr(optimizer, "get_slot_names", list)():
        slots = [optimizer.get_slot(each, "momentum") for each in model.trainable_variables]
    return [each for each in slots if each is not None]

"""A callback for Keras that shows the progress of training on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

import keras
from farandole.engine import log_to_driver

__all__ = ["LogCallback"]


class LogCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is not read here
    """Sends the metrics of each epoch to the driver, by `log_to_driver`.

    Args:
        per_batch_log: also send the metrics of each batch.
    """

    def __init__(self, per_batch_log: bool = False) -> None:
        super().__init__()
        self.per_batch_log = per_batch_log

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """See Keras."""
        log_to_driver(f"epoch {epoch} begins at {datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S} UTC")

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """See Keras."""
        log_to_driver(f"epoch {epoch} ends: {_summary(logs)}")

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """See Keras."""
        if self.per_batch_log:
            log_to_driver(f"batch {batch} ends: {_summary(logs)}")


def _summary(logs: Mapping[str, float] | None) -> str:
    return ", ".join(f"{name} {float(value):.6g}" for name, value in (logs or {}).items()) or "no metrics"

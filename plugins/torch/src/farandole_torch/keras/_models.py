"""Models that were saved with a distributed optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import farandole.keras
import keras
from farandole.plugin import Compressor

from farandole_torch._adapter import Compression, Tensor
from farandole_torch.keras._optimizer import DistributedOptimizer


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Compressor[Tensor] = Compression.none,
    legacy_opts: bool = False,
    **options: Any,
) -> Any:
    """`keras.models.load_model`, with an optimizer that is distributed and has the state that was saved.

    The file is one that `keras.models.load_model` can read, too, which leaves the optimizer as it is without Farandole.

    Args:
        filepath: as there.
        custom_optimizers: classes of optimizers that the file names, other than Keras's own.
        custom_objects: everything else of that kind, by name.
        compression: of the optimizer, as all of the following.
        legacy_opts: not needed; accepted because Horovod does.
        options: of `keras.models.load_model` and `DistributedOptimizer`, each by its name.
    """
    ours = farandole.keras.take_optimizer_options(options)

    def wrap(optimizer: Any) -> Any:
        return DistributedOptimizer(optimizer, compression=compression, **ours)

    return farandole.keras.load_model(keras, wrap, filepath, custom_optimizers, custom_objects, **options)

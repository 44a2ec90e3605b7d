"""Interface for a framework that Keras runs on: the parts of the plugin's module `keras`.

The functions are methods of `Training` and `Values`. The classes of the modules `callbacks` and `elastic` derive from
those here and from Keras's own.
"""

from farandole._keras.arguments import Groups, check_op, chosen_groups, with_local_layers
from farandole._keras.callbacks import BestOnly, Broadcasting, MetricAveraging, Scalars
from farandole._keras.elastic import Commit, StateOfModel, UpdateBatch, UpdateData, UpdateEpoch
from farandole._keras.exchange import Exchange, ExchangeOptions, Framework
from farandole._keras.learning_rate import Schedule, Warmup
from farandole._keras.optimizer import distribute
from farandole._keras.private import key_of
from farandole._keras.training import Training
from farandole._keras.values import Values

__all__ = [
    "BestOnly",
    "Broadcasting",
    "Commit",
    "Exchange",
    "ExchangeOptions",
    "Framework",
    "Groups",
    "MetricAveraging",
    "Scalars",
    "Schedule",
    "StateOfModel",
    "Training",
    "UpdateBatch",
    "UpdateData",
    "UpdateEpoch",
    "Values",
    "Warmup",
    "check_op",
    "chosen_groups",
    "distribute",
    "key_of",
    "with_local_layers",
]

"""The part of Keras that no framework shares in: optimizers that reduce gradients, callbacks, loading of models.

A plugin whose framework Keras can run on hands over its `keras` and an `Exchange` for each optimizer:

    farandole.keras.distribute(keras, optimizer, exchange)        # the optimizer, from now on distributed
    farandole.keras.Callbacks(keras, broadcast, ...)              # the callbacks' classes
    farandole.keras.load_model(keras, wrap, path)

Keras 3 and Keras 2 are both meant. Nothing here imports Keras, or a framework.
"""

from farandole.keras._arguments import Groups, check_op, chosen_groups, take_optimizer_options, variables_of
from farandole.keras._callbacks import Callbacks
from farandole.keras._models import load_model
from farandole.keras._optimizer import Distributed, Exchange, distribute

__all__ = [
    "Callbacks",
    "Distributed",
    "Exchange",
    "Groups",
    "check_op",
    "chosen_groups",
    "distribute",
    "load_model",
    "take_optimizer_options",
    "variables_of",
]

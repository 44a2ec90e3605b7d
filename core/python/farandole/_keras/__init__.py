"""Keras, written once for all frameworks: optimizers that reduce gradients, callbacks, values, loading of models.

A plugin whose framework Keras can run on says in a `Framework` what its tensors need, and its module `keras` is made of
what `build` returns. Keras 3 and Keras 2 are both meant. Nothing here imports Keras, or a framework.

    farandole.keras --resolves to--> farandole_<framework>.keras --build--> farandole._keras
"""

from farandole._keras.arguments import Groups, check_op, chosen_groups, with_local_layers
from farandole._keras.build import Built, build
from farandole._keras.exchange import Exchange, ExchangeOptions, Framework
from farandole._keras.optimizer import Distributed, distribute
from farandole._keras.private import key_of

__all__ = [
    "Built",
    "Distributed",
    "Exchange",
    "ExchangeOptions",
    "Framework",
    "Groups",
    "build",
    "check_op",
    "chosen_groups",
    "distribute",
    "key_of",
    "with_local_layers",
]

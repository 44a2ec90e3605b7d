"""For a framework that Keras runs on: `build` makes the plugin's module `keras` of what a `Framework` says."""

from farandole._keras.arguments import Groups, check_op, chosen_groups, with_local_layers
from farandole._keras.build import build
from farandole._keras.exchange import Exchange, ExchangeOptions, Framework
from farandole._keras.optimizer import distribute
from farandole._keras.private import key_of

__all__ = [
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

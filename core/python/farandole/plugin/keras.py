"""For a framework that Keras runs on: `build` makes the plugin's module `keras` of what a `Framework` says."""

from farandole._keras import (
    Exchange,
    ExchangeOptions,
    Framework,
    Groups,
    build,
    check_op,
    chosen_groups,
    distribute,
    key_of,
    with_local_layers,
)

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

"""Callbacks for `model.fit`, from farandole.keras."""

from farandole.keras.callbacks import *  # noqa: F403

"""Callbacks for `model.fit`, from farandole_tensorflow.keras."""

from farandole_tensorflow.keras.callbacks import *  # noqa: F403

"""The names of Horovod's module, from farandole.keras, for the framework that Keras runs on."""

import farandole.keras as _plugin
from farandole.keras import *  # noqa: F403

from horovod._environment import reading_settings as _reading_settings
from horovod._later import attribute_error as _attribute_error
from horovod.keras import callbacks, elastic

init = _reading_settings(_plugin.init)


def __getattr__(name: str) -> object:
    raise _attribute_error(__name__, name)

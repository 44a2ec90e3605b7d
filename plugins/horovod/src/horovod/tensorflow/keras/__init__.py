"""The names of Horovod's module, from farandole_tensorflow.keras."""

from horovod._environment import needing as _needing

with _needing("farandole-tensorflow"):
    from farandole_tensorflow.keras import *  # noqa: F403

import farandole_tensorflow.keras as _plugin

from horovod._environment import reading_settings as _reading_settings
from horovod._later import attribute_error as _attribute_error
from horovod.tensorflow.keras import callbacks, elastic  # type: ignore[no-redef]

init = _reading_settings(_plugin.init)


def __getattr__(name: str) -> object:
    raise _attribute_error(__name__, name)

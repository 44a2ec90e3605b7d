"""The operations, from farandole_mxnet."""

import farandole_mxnet as _plugin
from farandole_mxnet import *  # noqa: F403

from horovod._environment import reading_settings as _reading_settings
from horovod.common.util import handle_average_backwards_compatibility

init = _reading_settings(_plugin.init)

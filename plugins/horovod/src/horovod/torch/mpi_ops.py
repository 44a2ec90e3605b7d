"""The operations, from farandole_torch.mpi_ops."""

import farandole_torch.mpi_ops as _operations
from farandole_torch.mpi_ops import *  # noqa: F403

from horovod._environment import reading_settings as _reading_settings
from horovod.common.util import gpu_available, handle_average_backwards_compatibility, num_rank_is_power_2

init = _reading_settings(_operations.init)

"""The operations, from farandole_tensorflow."""

import farandole as _farandole
from farandole import *  # noqa: F403
from farandole_tensorflow import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    reducescatter,
    size_op,
)

from horovod._environment import reading_settings as _reading_settings
from horovod.common.util import gpu_available, handle_average_backwards_compatibility
from horovod.common.util import num_rank_is_power_2 as check_num_rank_power_of_2

init = _reading_settings(_farandole.init)

"""Objects and variables on all ranks, from farandole_tensorflow."""

from farandole_tensorflow import allgather_object, broadcast_object, broadcast_object_fn, broadcast_variables

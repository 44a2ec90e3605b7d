"""Objects on all ranks, from farandole_mxnet."""

from farandole_mxnet import allgather_object, broadcast_object

"""Objects and states of models on all ranks, from farandole_torch."""

from farandole_torch import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters

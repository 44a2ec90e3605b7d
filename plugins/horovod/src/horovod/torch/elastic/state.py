"""The states of elastic training, from farandole_torch.elastic."""

from farandole_torch.elastic import ObjectState, State, TorchState

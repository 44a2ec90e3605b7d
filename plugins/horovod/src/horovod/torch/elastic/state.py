"""The states of elastic training and the handlers of their attributes, from farandole_torch.elastic."""

from farandole_torch.elastic import (
    ModelStateHandler,
    ObjectState,
    OptimizerStateHandler,
    SamplerStateHandler,
    State,
    StateHandler,
    TorchState,
    get_handler_registry,
    set_handler_registry,
)

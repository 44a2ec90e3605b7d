"""The names of Horovod's module, from farandole_mxnet."""

from horovod._environment import needing as _needing

with _needing("farandole-mxnet"):
    from farandole_mxnet import *  # noqa: F403

from horovod._later import attribute_error as _attribute_error
from horovod.mxnet import (  # type: ignore[no-redef, unused-ignore]  # Python takes the later elastic
    compression,
    elastic,
    functions,
    mpi_ops,
)
from horovod.mxnet.mpi_ops import init


def __getattr__(name: str) -> object:
    raise _attribute_error(__name__, name)

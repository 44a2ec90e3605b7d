"""Explains errors of MXNet's kvstores, whose own messages do not say what to change."""

from __future__ import annotations

from functools import cache, wraps
from typing import Any

import mxnet as mx


@cache  # for the process
def explain_kvstores() -> None:
    """Make kvstores that do not work with Farandole raise errors that say what to use instead.

    Called by `init` and by the first DistributedOptimizer: the import of the plugin changes nothing in MXNet.
    """
    mx.kvstore.create = _explain_distributed(mx.kvstore.create)
    # The only place through which Trainer and Module hand an optimizer over, whatever the kvstore.
    mx.kvstore.KVStore.set_optimizer = _refuse_distributed(mx.kvstore.KVStore.set_optimizer)


def _refuse_distributed(set_optimizer: Any) -> Any:
    """A kvstore updates parameters itself, out of sight of the trainer: on other devices, or in another process."""

    @wraps(set_optimizer)
    def checked(self: Any, optimizer: Any) -> Any:
        if hasattr(optimizer, "_farandole"):
            raise ValueError(
                "a DistributedOptimizer cannot go into a kvstore, which would update the parameters by itself: give "
                "the Trainer or Module kvstore=None, and one context"
            )
        return set_optimizer(self, optimizer)

    return checked


def _explain_distributed(create: Any) -> Any:
    """Without servers of its own, which nobody starts beside Farandole, MXNet names an environment variable only."""

    @wraps(create)
    def explained(name: Any = "local") -> Any:
        try:
            return create(name)
        except mx.MXNetError as error:
            if not str(name).startswith("dist"):
                raise
            raise ValueError(
                f"the kvstore {name!r} needs MXNet's servers, which Farandole does not start: give the Trainer or "
                "Module kvstore=None"
            ) from error

    return explained

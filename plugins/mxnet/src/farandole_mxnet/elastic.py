"""Elastic training with MXNet: a rank is lost or leaves, and the others go on in the same processes.

state = hvd.elastic.MXNetState(net, trainer, sampler=sampler, epoch=0)

@hvd.elastic.run
def train(state): ...

train(state)
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, Concatenate, ParamSpec, TypeVar

import mxnet as mx
import numpy as np
from farandole import HostsUpdatedInterrupt, RecoverableError
from farandole.elastic import Batches, ObjectState, State
from farandole.elastic import ElasticSampler as _ElasticSampler
from farandole.plugin.elastic import StateDictHandler, StateHandler, VariablesHandler, run_within
from mxnet.gluon.parameter import DeferredInitializationError

from farandole_mxnet import _native
from farandole_mxnet._adapter import NDArray
from farandole_mxnet._loader import DataLoader
from farandole_mxnet._operations import broadcast_, collectives
from farandole_mxnet._optimizer import check_contexts
from farandole_mxnet._private import update_counts_of, updater_of

__all__ = ["Batches", "DataLoader", "ElasticSampler", "MXNetState", "ObjectState", "State", "run"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=State)
_TIME_TO_END_S = 5.0


def run(func: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """As `farandole.elastic.run`; what MXNet's engine still has of the last world comes to its end before the next.

    Example:
        >>> @hvd.elastic.run
        ... def train(state):
        ...     while state.step < 3:
        ...         state.step += 1
        ...         state.commit()
        >>> state = hvd.elastic.ObjectState(step=0)
        >>> train(state)
        >>> state.step
        3
    """
    return run_within(_settled, func)


@contextlib.contextmanager
def _settled() -> Iterator[None]:
    try:
        yield
    except (RecoverableError, HostsUpdatedInterrupt):
        _settle()
        raise


class MXNetState(ObjectState):
    """A state with a network and a trainer of Gluon, which stay the objects that they are.

    `commit()` waits for the step, and copies the parameters and the optimizer's states into the copies of the last
    commit but one, on their device.

    Example:
        >>> net = mx.gluon.nn.Dense(1, in_units=1, weight_initializer="ones")
        >>> net.initialize()
        >>> trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
        >>> state = hvd.elastic.MXNetState(net, trainer, epoch=0)
        >>> state.commit()
        >>> net.weight.set_data(mx.nd.zeros((1, 1)))
        >>> state.restore()
        >>> net.weight.data().asnumpy().tolist()
        [[1.0]]
    """

    def __init__(self, net: Any = None, trainer: Any = None, **kwargs: Any) -> None:
        """The state has these as the attributes `net` and `trainer`, and those of `kwargs`: see ObjectState.

        Args:
            net: a Block whose parameters have values.
            trainer: a DistributedTrainer, or a Trainer whose optimizer is distributed.
            kwargs: the other attributes; blocks and trainers among them are handled alike.

        Raises:
            ValueError: parameters without values, or in several contexts.
        """
        self._arrays = self._own = _Arrays()
        super().__init__(net=net, trainer=trainer, **kwargs)
        if net is not None:
            _data_of(net)

    def restore(self) -> None:
        """Take back the last copy. Raises like ObjectState's."""
        _settle()
        super().restore()

    def _handler_of(self, value: Any) -> StateHandler | None:
        if isinstance(value, mx.gluon.Block):
            return VariablesHandler(
                value, lambda: _data_of(value), self._own, functools.partial(_drop_gradients, value)
            )
        if isinstance(value, mx.gluon.Trainer):
            return StateDictHandler(value, self._own, through=_Trained(value))
        return super()._handler_of(value)


class ElasticSampler(_ElasticSampler, mx.gluon.data.Sampler):  # type: ignore[misc]
    """A sampler for `mxnet.gluon.data.DataLoader` that shares out what is left of a pass to the ranks there are.

    `record_batch` says after each step what is done; give the sampler to the state. A `DataLoader` of this module needs
    neither.

    Example:
        >>> sampler = hvd.elastic.ElasticSampler(range(8), shuffle=False)
        >>> data = mx.gluon.data.SimpleDataset(list(range(8)))
        >>> for batch_idx, batch in enumerate(mx.gluon.data.DataLoader(data, batch_size=2, sampler=sampler)):
        ...     sampler.record_batch(batch_idx, batch_size=2)
        >>> sampler.processed_num
        8
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """As `farandole.elastic.ElasticSampler`: share out `dataset`, shuffled by `seed` and the pass's number."""
        _ElasticSampler.__init__(self, dataset, shuffle, seed)


def _settle() -> None:
    """Let what was pushed end, begin nothing of it later, and forget errors that arrays of the failed step carry."""
    _native.end(_TIME_TO_END_S)
    with contextlib.suppress(mx.MXNetError):
        mx.nd.waitall()


class _Arrays:
    """The arrays of a state. MXNet's engine copies them, in the order in which they are used."""

    def is_array(self, value: object) -> bool:
        return isinstance(value, mx.nd.NDArray)

    def copy(self, array: NDArray, spare: Any) -> NDArray:
        array.wait_to_read()  # which raises what has failed: no copy carries an error
        if spare is not None and _outline(spare) == _outline(array):
            return array.copyto(spare)
        return array.copy()

    def write(self, array: NDArray, copied: NDArray) -> bool:
        if _outline(array) != _outline(copied):
            return False
        copied.copyto(array)
        return True

    def outline(self, array: NDArray) -> object | None:
        return _outline(array) if array.stype == "default" else None

    def receiver(self, outline: Any, live: NDArray | None) -> NDArray:
        shape, dtype = outline
        return live if live is not None and _outline(live) == outline else mx.nd.empty(shape, dtype=dtype)

    def broadcast(self, arrays: Sequence[NDArray], root_rank: int) -> None:
        done = []
        for index, array in enumerate(arrays):
            array.wait_to_read()  # it may be in a layout of oneDNN's, which reading its memory undoes
            collectives.adapter.buffer(array)
            done.append(broadcast_(array, root_rank, f"state.{index}"))
        for array in done:
            array.wait_to_read()

    def size_bytes(self, array: NDArray) -> int:
        return int(array.size * np.dtype(array.dtype).itemsize)

    def memory(self, array: NDArray) -> memoryview | None:
        mx.nd.waitall()  # the engine neither reads nor writes it
        buffer = collectives.adapter.buffer(array) if array.stype == "default" else None
        if buffer is None or not buffer.nbytes:
            return None if buffer is None else memoryview(b"")
        return memoryview((ctypes.c_char * buffer.nbytes).from_address(buffer.address)).cast("B")

    def read(self, array: NDArray) -> memoryview:
        content: memoryview = array.asnumpy().reshape(-1).view(np.uint8).data
        return content

    def fill(self, array: NDArray, content: memoryview) -> None:
        mx.nd.array(np.frombuffer(content, array.dtype).reshape(array.shape), dtype=array.dtype).copyto(array)


def _outline(array: NDArray) -> tuple[Any, Any]:
    return array.shape, array.dtype


class _Trained:
    """A Trainer's memory of its steps."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        optimizer = self._trainer.optimizer
        schedule = optimizer.lr_scheduler
        return {
            "states": updater_of(self._trainer).states,
            "counts": update_counts_of(optimizer),
            "num_update": optimizer.num_update,
            "lr": optimizer.lr,
            "schedule": None if schedule is None else vars(schedule),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        optimizer, updater = self._trainer.optimizer, updater_of(self._trainer)
        counts = update_counts_of(optimizer)
        updater.states = state["states"]
        updater.states_synced = dict.fromkeys(updater.states, True)
        counts.clear()
        counts.update(state["counts"])
        optimizer.num_update, optimizer.lr = state["num_update"], state["lr"]
        if optimizer.lr_scheduler is not None:
            vars(optimizer.lr_scheduler).update(state["schedule"])


def _data_of(net: Any) -> list[NDArray]:
    parameters = list(net.collect_params().values())
    try:
        check_contexts(parameters)
        return [each.data() for each in parameters]
    except DeferredInitializationError as error:
        raise ValueError(
            f"the network has parameters whose shape is not known yet ({error}): run one batch through it before the "
            "state, or give its layers in_units or in_channels"
        ) from None
    except RuntimeError as error:
        if isinstance(error, RecoverableError):
            raise
        raise ValueError(f"the network has no values to save, call initialize() first: {error}") from None


def _drop_gradients(net: Any) -> None:
    """Of parameters to whose gradients backward adds; it overwrites the others."""
    for parameter in net.collect_params().values():
        if parameter.grad_req == "add":
            parameter.zero_grad()

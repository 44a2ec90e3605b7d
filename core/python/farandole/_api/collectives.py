"""The operations of every plugin, with Horovod's names, arguments and defaults.

Written once over an Adapter; `farandole.numpy` and most of a plugin's names are these methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from farandole._api.adapter import Adapter
from farandole._api.calls import Image, Parameters, reducing
from farandole._api.forms import Form, GroupedForm, at_once, waited
from farandole._api.objects import broadcast_object
from farandole._api.ops import Kind, ReduceOp, reduction
from farandole._api.process_sets import ProcessSet, for_each_call, usable_id
from farandole._api.row_collectives import RowCollectives
from farandole._training.recorder import Recorder

if TYPE_CHECKING:
    from farandole._core import Persistent
    from farandole._runtime.submit import Repeated

T = TypeVar("T")
_ALLREDUCE = Kind.ALLREDUCE  # saves 70 ns for the lookup of the member


class Collectives(RowCollectives[T]):
    """All operations on the tensors of one framework.

    Common to all of them: every rank of the set must make the call, with the same `name` where one is given; unnamed
    calls are matched by their order. Ranks that disagree about dtype or shape all raise MismatchError. A name may be in
    flight once per rank and set. Forms ending in `_async` return a Handle for `poll` and `synchronize`, forms ending in
    `_` write into the tensor they are given; the others return a new tensor. `process_set`: among which ranks the
    operation takes place, by default all; this rank must be one of them, and `add_process_set` must have made the set
    known. A root is a rank of the world, in sets too.

    Examples are of two ranks, with `import farandole.numpy as hvd` and `import numpy as np`.

    Raises, in all of them: NotInitializedError; ValueError for misuse that this rank sees alone; MismatchError;
    PeerLostError; DeadlineError.
    """

    def __init__(self, adapter: Adapter[T], recorder: Recorder[T] | None = None) -> None:
        """`recorder`: makes new tensors remember those that they came from; without it they have no gradient."""
        super().__init__(adapter, recorder)
        run, start, start_all = self._submitter.run, self._submitter.start_one, self._submitter.start
        waiting_in_place = Form(run, in_place=True)
        starting, starting_in_place = Form(start, in_place=False), Form(start, in_place=True)
        self.allreduce_ = waiting_in_place.allreduce
        self.allreduce_async = starting.allreduce
        self.allreduce_async_ = starting_in_place.allreduce
        self.broadcast_ = waiting_in_place.broadcast
        self.broadcast_async = starting.broadcast
        self.broadcast_async_ = starting_in_place.broadcast
        self.grouped_allreduce_ = GroupedForm(start_all, waited, in_place=True).grouped_allreduce
        self.grouped_allreduce_async = GroupedForm(start_all, at_once, in_place=False).grouped_allreduce
        self.grouped_allreduce_async_ = GroupedForm(start_all, at_once, in_place=True).grouped_allreduce

    def persistent_allreduce(
        self,
        tensor: T,
        name: str | None = None,
        *,
        op: ReduceOp | None = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet | None = None,
    ) -> Persistent[T] | Repeated[T]:
        """Prepare an in-place allreduce for repeated calls, for small tensors that are reduced in each step.

        Each call of the result reduces the tensor's current contents like `allreduce_`, and returns the tensor. Its
        method `start` returns a Handle at once. Other ranks may use any form of the same operation. For a small tensor
        in contiguous host memory, a call takes a third of the time of `allreduce_`, since the arguments are read once:
        later calls use the memory that the tensor has now. For device memory or a strided tensor there is no gain.

        Args:
            tensor: the tensor to reduce in place.
            name: see the class; without one, calls are matched by their order.
            op: see `allreduce`, as the others.
            prescale_factor: likewise.
            postscale_factor: likewise.
            process_set: likewise.

        Example:
            >>> loss = np.zeros(1)
            >>> mean_loss = hvd.persistent_allreduce(loss, "loss")
            >>> for step in range(2):
            ...     loss[0] = 10 * step + hvd.rank()
            ...     mean_loss()
            array([0.5])
            array([10.5])
        """
        reduction(None, op), usable_id(process_set)  # no call has begun, so the other ranks need not know of an error
        parameters = reducing(None, name, op, prescale_factor, postscale_factor, process_set)
        return self._submitter.prepare(_ALLREDUCE, tensor, parameters)

    def broadcast_parameters(
        self, params: Mapping[str, Any] | Iterable[tuple[str, T]] | Iterable[T | None], root_rank: int = 0
    ) -> None:
        """Copy rank `root_rank`'s tensors into those of all ranks, in place; usually `model.state_dict()`.

        Args:
            params: what the framework's plugin documents: a mapping of names to tensors, or (name, tensor) pairs. The
                extra state of PyTorch's modules may be any object, which travels pickled: tensors, dicts and lists are
                changed in place, and others replaced in the mapping, so that a model has them after
                `model.load_state_dict(params)`.
            root_rank: whose values all ranks get.

        Example:
            >>> weights = {"w": np.full(2, float(hvd.rank()))}
            >>> hvd.broadcast_parameters(weights, root_rank=1)
            >>> weights["w"]
            array([1., 1.])
        """
        mapping: MutableMapping[str, Any] = params if isinstance(params, MutableMapping) else {}
        others = sorted(name for name in mapping if self.adapter.names_object(name))
        tensors = {name: value for name, value in mapping.items() if name not in others} if others else params
        handles = [
            self.broadcast_async_(tensor, root_rank, f"parameters.{name}")
            for name, tensor in self.adapter.items(tensors)
        ]
        if others:
            mine = [mapping[name] for name in others]
            of_root = broadcast_object(mine, root_rank, f"parameters.{others[0]}")
            for name, own, received in zip(others, mine, of_root, strict=True):
                mapping[name] = self._put_into(own, received)
        for handle in handles:
            handle.wait()

    def _put_into(self, own: Any, received: Any) -> Any:
        """Copy the received value into this rank's own object if that can be changed; otherwise return the value."""
        if type(own) is type(received) is dict:
            if own is not received:
                own.clear()
                own.update(received)
        elif type(own) is type(received) is list:
            own[:] = received
        else:
            try:
                if self.adapter.describe(own) != self.adapter.describe(received):
                    return received
                self.adapter.assign(own, received)
            except (TypeError, ValueError):  # no tensors
                return received
        return own


def carried_allreduce(
    collectives: Collectives[T],
    process_set: ProcessSet | None,
    wanted: Sequence[tuple[str, object]],
    otherwise: Callable[[list[T], object], object],
    image: Image | None = None,
) -> Callable[[list[T], object], object]:
    """Make the `allreduce(tensors, options)` of a library whose sums Farandole performs.

    A blocking sum of one tensor, in place, returns None, and takes 0.4 us less than through a function in Python.

    Args:
        collectives: perform the sums.
        process_set: of the ranks that take part; None: all.
        wanted: of `options`: attributes by which the library asks for such a sum, and their values then.
        otherwise: performs every other call: of several tensors, with other options, or of a tensor whose memory the
            core cannot use as it is.
        image: finds the wanted values without reading attributes, in 0.6 us less: the type of `options`, the offset of
            a pointer in it, offsets behind the pointer, and the bytes that lie there. None: read the attributes.
    """

    def parameters(number: int) -> Parameters:
        return "", ReduceOp.SUM, 0, 1.0, 1.0, number

    # The number of a set may change in the next world, and a removed set has none.
    of_each_call = parameters(0) if process_set is None else for_each_call(process_set, parameters)
    return collectives._submitter.carried(_ALLREDUCE, of_each_call, wanted, image, otherwise)

"""The compiled core as Python sees it: conversions only, no policy. Everything here is private to `farandole`."""

from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, Generic, TypeVar, final, overload

from farandole._api import handles
from farandole._api.calls import Image, Parameters

T = TypeVar("T")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)

# op, dtype and reduce are numbers of farandole.h: those of ops.Kind, plugin.DType and ops.ReduceOp.
# Error kinds: 1 invalid (ValueError), 2 mismatch, 3 peer lost, 4 deadline, 5 not initialized, 6 internal.

# Input address, output address or 0, dtype, shape; on a CUDA device also 1 and the event after which the input is valid
# and the output may be written, 0 for now.
Tensor = tuple[int, int, int, tuple[int, ...]] | tuple[int, int, int, tuple[int, ...], int, int]

def set_error_types(types: Mapping[int, type[BaseException]]) -> None:
    """Tell the core which exception class to raise for each error kind; called once at import."""

def set_map_function(map: Callable[[handles.Handle[Any], Callable[[Any], Any]], handles.Handle[Any]]) -> None:
    """Sets what `Handle.map` calls with the handle and the function."""

def set_site_function(place: Callable[[FrameType, FrameType | None], str | None]) -> None:
    """Tell the core how to name a place of the user's program, "train.py:12" (None: not the user's), for messages.

    It gets the frame, and the one that this has called, where that is known.
    """

def call_site(above: int) -> str:
    """The place named for the caller of the function `above` frames above the one that asks; "" for none."""

def init(
    rank: int,
    size: int,
    store: str,  # "unix:<abstract name>" or "tcp:<host>:<port>"; "" when size is 1
    key: bytes,  # the job's 32 secret bytes; b"" when size is 1
    address: str = "",  # where other machines reach this rank; "": FARANDOLE_ADDRESS, else this machine only
    listener: int = -1,  # on rank 0: the descriptor of `listen`, which is the core's from now on; -1: it listens now
    look: Callable[[], object] | None = None,  # called about ten times a second meanwhile; what it raises ends the wait
    epoch: int = 0,  # of an elastic job: the number of this world
    recording_path: str = "",  # of the flight recorder's file, which must not be there; "": nothing is recorded
    run: str = "",  # the name of the job there, at most 16 characters
) -> None:
    """Join the world; no-op when initialized. Blocks until all `size` ranks are there (GIL released)."""

def host_addresses() -> list[str]:
    """By which other machines may reach this one, in the order of its interfaces: "10.0.0.7/24", "2001:db8::7/64"."""

def listen(endpoint: str) -> tuple[int, str]:
    """A descriptor that listens there, and where others come to; port 0 lets the kernel choose."""

def exchange(rank: int, size: int, mine: bytes) -> list[bytes]:
    """The bytes of all ranks, by rank, exchanged through the library of the launcher that started them (MPI's).

    Blocks until all have called (GIL released), without a time limit. Raises ValueError where the library of that
    launcher is not found, or knows other ranks.
    """

def shutdown() -> None:
    """Leave the world: complete or fail what is pending, release everything. No-op when not initialized."""

# ---- for the diagnosis, which calls them in its thread

def await_news() -> (
    tuple[
        # What waits for long, as facts.Report takes it: entered, warn_after_ms, is_overdue, waits, needed,
        # knows_who_needs_us. None: nothing has changed.
        tuple[int, int, bool, list[tuple[object, ...]], list[tuple[object, ...]], bool] | None,
        list[int],  # ranks that ask where this one is: each waits for a `reply`
        list[tuple[int, int, str]],  # answers: the rank, how often this one had submitted when it came, its text
    ]
    | None
):
    """Wait until there is something to judge (GIL released); None once the world is left."""

def ask_ranks(ranks: Sequence[int]) -> None:
    """Ask these ranks where they are."""

def reply(asker: int, text: str) -> None:
    """Answer a rank that has asked; after a second the core does so itself."""

def end_world(is_deadlock: bool, culprit: int, why: str, entered: int) -> None:
    """End the world by an error on all ranks, unless the wait is over meanwhile; culprit: -1 for none."""

def only_waits() -> tuple[int, dict[int, tuple[str, str]]] | None:
    """How often this rank has submitted, and by thread the title and the call of the operation that it only waits for.

    None where the threads that are known here are not all that may call, or nobody's program is needed.
    """

def title_of_rank(rank: int) -> str:
    """Return what messages call a rank: "rank 1 (host h1, pid 6103)"."""

def warn(text: str) -> None:
    """Write a line to stderr, as the core's own warnings are written: without waiting for its reader."""

def set_stack_signal(signal: int, descriptor: int) -> None:
    """Tell the core which signal makes faulthandler write the stacks of all threads to this file."""

def is_initialized() -> bool: ...
def late_rank() -> tuple[int, bool] | None:
    """The rank for which a wait has ended this world, perhaps this one; and whether it waits for others itself."""

def lost_rank() -> tuple[int, str] | None:
    """The rank whose death or leaving has ended this world, and the sentence that says so; None: nobody's has."""

def start_timeline(marks_batches: bool) -> None:
    """Record what operations do until `stop_timeline`, also over several worlds; drop what was not taken before."""

def take_events(most: int) -> list[tuple[int, str, str, int, int, int, int, int, int, int, bool]]:
    """The oldest events that were recorded, as the fields of `trace_events.Event`. One thread at a time."""

def take_lost_events() -> int:
    """How many events found no place since the last call."""

def stop_timeline() -> None:
    """Record no more. What is there can still be taken."""

def submit(
    op: int,
    tensors: Sequence[Tensor],
    keep: object,  # kept alive until the operation no longer touches the memory
    parameters: Parameters = ("", 0, 0, 1.0, 1.0, 0),
    splits: Sequence[int] = (),  # alltoall: rows for each member, tensor by tensor; empty: equal parts
    # add_process_set: its ranks, ascending; remove_process_set: its id. All ranks of the world call these two, in one
    # order; with a name the members of the set alone.
    ranks: Sequence[int] = (),
) -> Handle[None]:
    """Start one collective (several tensors: one grouped call). Never blocks on other ranks. Raises for local misuse.

    allreduce and broadcast write to the output address, which may equal the input address. allgather, alltoall and
    reducescatter take output address 0: the core allocates, see `Handle.outputs`. The others take no tensors.
    broadcast: the root's input is sent, the others' are ignored.
    """

def refuse(name: str, process_set: int, why: str) -> None:
    """This rank cannot make a call that the others may make: there it fails, and says why. Never blocks nor raises.

    Uses up the name's next turn, or that of the set's unnamed calls. Calls that the core itself refuses, with an error
    whose `others_know` is True, have used it up.
    """

def exclude_calls(prefix: str, process_set: int, meeting: str, why: str, advice: str) -> int:
    """Until `allow_calls`, this rank makes no such call, and waits in a barrier.

    The calls' names are `prefix`, alone or before a number or "#".

    All ranks of the set come to that barrier, `meeting`, after their last such call. Where one that has not come waits
    for this rank in such a call, the world ends for all ranks with a MismatchError: `why`, who waits, and the `advice`.

    Returns:
        The number for `allow_calls`.
    """

def allow_calls(number: int) -> None:
    """Take back one `exclude_calls`. Never raises."""

def limit_waits(process_set: int, limit_ms: int) -> None:
    """From now on, whoever waits so long for an operation of the set gets a DeadlineError; 0: nobody any more.

    The error names the ranks that are missing. The operation stays in flight.
    """

@overload
def submit_one(
    op: int,
    source: object,
    target: T,
    call: Tensor,  # as in the `tensors` of submit; None: asked of source and target
    parameters: Parameters,
) -> Handle[T]: ...
@overload
def submit_one(op: int, source: object, target: T, call: None, parameters: Parameters) -> Handle[T] | None:
    """`submit` of one tensor, into an output address, for as little time as possible. The handle's result is `target`.

    The two frames above this function count as ours; the core looks for the user's place above them.

    Without `call` both are arrays or tensors of one type, which show their memory through `__array_struct__` or
    `__dlpack_c_exchange_api__`. None, and nothing is submitted, where it cannot be used as it is: not contiguous,
    aligned, in native byte order and in the host's memory, of an element type that is not known, or a target that is
    read-only.
    """

def run_one(
    op: int,
    source: object,
    target: object,
    call: Tensor | None,
    parameters: Parameters,
) -> bool:
    """`submit_one` and `wait` in one call, which is quicker; False where submit_one returns None."""

def carry(
    terms: tuple[
        int,  # op
        type[T],  # of the tensor
        Callable[[], bool],  # whether a profiler is on
        list[Callable[[], None]],  # not empty: a call without a name has to wait for others first
        Parameters | Callable[[], Parameters],
        tuple[tuple[str, object], ...],  # attributes of the options, and the values that they must have
        Image | None,
        Callable[[list[T], object], object],  # takes every other call
    ],
    tensors: list[T],
    options: object,
) -> object:
    """Perform an operation in place and return None, where there is one tensor and the terms hold; else `terms[-1]`.

    It asks nobody whether the core can use the tensor's memory: it looks, as `submit_one` does.
    """

def prepare(op: int, tensor: T, keep: object, call: Tensor, parameters: Parameters) -> Persistent[T]:
    """Prepare an operation in place, to be called again and again. `keep`: keeps the memory of `call` where it is."""

@final
class Persistent(Generic[T]):
    """One collective on one tensor. Each call is an operation of its own, and waits for it."""

    @property
    def tensor(self) -> T:
        """The tensor, in which each operation leaves its result."""

    def __call__(self) -> T: ...  # releases the GIL where it waits for long; returns the tensor
    def start(self) -> Handle[T]:
        """Begin the operation, and return at once."""

@final
class Handle(handles.Handle[R_co], Generic[R_co]):
    """The collector of cycles does not see it: that would cost more than all else of a handle."""

    def done(self) -> bool: ...
    def wait(self, limit_s: float = 0, /) -> R_co:  # releases the GIL
        """`limit_s`: 0 for the limit of the process set, see `limit_waits`."""

    def map(self, function: Callable[[R_co], S]) -> handles.Handle[S]: ...
    def outputs(self) -> list[Output]:
        """The memory that the core has allocated for a completed operation.

        allgather, reducescatter: one per tensor. alltoall: the same, then per tensor the rows received from each member
        (int64). join: the rank that was last (int64 scalar). add_process_set: the new id (int64 scalar).
        """

@final
class Transfer:
    """A message that this rank sends or receives. Dropping it does not stop the transfer."""

    def done(self) -> bool:
        """Returns whether `wait` would return (or raise) at once. Never blocks."""

    def wait(self, timeout: float | None = None) -> None:  # releases the GIL
        """Block until the transfer is complete; Ctrl-C interrupts. May be repeated.

        After `timeout` seconds it is given up, its memory is not touched any more, and DeadlineError is raised; other
        transfers go on. Raises PeerLostError where the other rank is gone, and MismatchError where the message does not
        fit the receive.
        """

    @property
    def source(self) -> int | None:
        """The rank whose message a complete receive has taken; None for a send, and before."""

def send(tensor: object, target: int, tag: int, process_set: int, owner: object = None) -> Transfer:
    """Begin to send a `Tensor`, or an array in contiguous, writable memory of the host. Never blocks on the target.

    `owner`: the object with the memory that a `Tensor` describes; it is kept until the transfer is done.
    """

def receive(tensor: object, source: int | None, tag: int, process_set: int, owner: object = None) -> Transfer:
    """Begin to receive into such memory, see `send`; source None: from any rank."""

@final
class Output:
    """Memory owned by the core, freed when the last reference (or view through the buffer protocol) goes.

    That of a device, which is where inputs on a device have results if their backend can, has no such view.
    """

    shape: tuple[int, ...]
    dtype: int
    address: int
    nbytes: int
    on_device: bool
    def __buffer__(self, flags: int, /) -> memoryview: ...  # flat, writable bytes

def reads_devices() -> bool:
    """Returns whether tensors on a device may be handed over: in a world of several ranks."""

def takes_device_memory() -> bool:
    """Returns whether a backend of this world, one of several ranks, takes tensors as they lie on a device."""

def settings_take_device_memory() -> bool:
    """Returns whether the settings list one, for what must be known before there is a world."""

def info() -> dict[str, object]:
    """Figures for tests and tools: isa, groups, shares_cores, arena_bytes, bytes_submitted, negotiation_messages."""

def find_backend(name: str) -> tuple[str, str]:
    """Returns a backend's library with the version or "", and what is missing or ""; opens the library."""

def performs(backend: str, op: int, dtype: int, reduce: int, on_device: bool, factor: float) -> bool:
    """Returns whether a backend declares that it performs an operation, other than an average.

    `on_device`: without host memory.
    """

backends: tuple[str, ...]
"""What this build can carry collectives with, the preferred one first: "native", ..."""

api_address: int
"""Address of the function table of farandole.h, for plugins' native parts."""

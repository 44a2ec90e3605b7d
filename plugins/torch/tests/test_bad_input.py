"""Wrong descriptions of one operation: each kind in every form, in the world and in a set, with a gradient.

All that take part get a MismatchError that names both ranks and both values; the next operation is right again.
"""

import os
import signal
import tempfile
import threading
import time

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import spawn, world

pytestmark = pytest.mark.timeout(180)

REDUCING = ["allreduce", "allreduce_async", "allreduce_", "allreduce_async_"]
GROUPED = [f"grouped_{each}" for each in REDUCING]
SCATTERING = ["reducescatter", "reducescatter_async", "grouped_reducescatter", "grouped_reducescatter_async"]
GATHERING = ["allgather", "allgather_async", "grouped_allgather", "grouped_allgather_async"]
MOVING = ["alltoall", "alltoall_async"]
ROOTED = ["broadcast", "broadcast_async", "broadcast_", "broadcast_async_"]
FORMS = [*REDUCING, *GROUPED, *SCATTERING, *GATHERING, *MOVING, *ROOTED]


def call(form, tensor, members, **options):
    """To the end; the tensor requires a gradient where a new one is returned."""
    if form in ROOTED:
        options.setdefault("root_rank", members.ranks[0])
    if form.rstrip("_").endswith("async"):
        return hvd.synchronize(call_now(form, tensor, members, options))
    return call_now(form, tensor, members, options)


def call_now(form, tensor, members, options):
    given = tensor if form.endswith("_") or not tensor.is_floating_point() else tensor.requires_grad_()
    return getattr(hvd, form)([given, given.detach().clone()] if "grouped" in form else given, name="one",
                              process_set=members, **options)  # fmt: skip


def kinds(form):
    """(what the first member gives, what the others give, what all must be told)."""
    rows = 6
    good = lambda: torch.ones(rows, 2)  # noqa: E731
    behind = form in (*GATHERING, *MOVING)  # the first dimension may differ, and is not named
    wide = (good, lambda: torch.ones(rows, 3), ("(2,)", "(3,)") if behind else ("(6, 2)", "(6, 3)"))
    flat = (good, lambda: torch.ones(rows), ("(2,)", "()") if behind else ("(6, 2)", "(6,)"))
    types = (good, lambda: torch.ones(rows, 2, dtype=torch.float64), ("float32", "float64"))
    return [wide, flat, types]


def options_of(form):
    """Options on which ranks can differ, and what they are told."""
    if form in ROOTED:
        return [("root_rank", None, None, ("root",))]
    if form in (*REDUCING, *GROUPED, *SCATTERING):
        return [
            ("op", hvd.Sum, hvd.Max, ("sum", "max")),
            ("prescale_factor", 2.0, 3.0, ("2", "3")),
            ("postscale_factor", 2.0, 3.0, ("2", "3")),
        ]
    return []


def refused(attempt, form, ranks, words):
    try:
        attempt()
    except hvd.MismatchError as error:
        wanted = ["'one'", f"rank {ranks[0]}", f"rank {ranks[1]}", *words]
        lacking = [word for word in wanted if word not in str(error)]
        return [f"{form}: {lacking} lacking in: {error}"] if lacking else []
    return [f"{form}: not refused: {words}"]


def all_forms(members):
    wrong = []
    if not members.included():
        return wrong
    ranks, place = members.ranks, members.rank()
    for form in FORMS:
        for first, others, words in kinds(form):
            make = first if place == 0 else others
            wrong += refused(lambda form=form, make=make: call(form, make(), members), form, ranks, words)
        for option, first, others, words in options_of(form):
            value = {option: (first if place == 0 else others) if option != "root_rank" else ranks[min(place, 1)]}
            attempt = lambda form=form, value=value: call(form, torch.ones(6, 2), members, **value)  # noqa: E731
            wrong += refused(attempt, form, ranks, words)
        call(form, torch.ones(6, 2), members)  # the job goes on
    return wrong


def other_operations(members):
    """Each member calls another operation under one name."""
    wrong = []
    if not members.included():
        return wrong
    ranks, place = members.ranks, members.rank()
    for one, other in zip(FORMS, [*FORMS[5:], *FORMS[:5]], strict=True):
        form = one if place == 0 else other
        base = [each.replace("grouped_", "").replace("_async", "").rstrip("_") for each in (one, other)]
        if base[0] != base[1]:
            attempt = lambda form=form: call(form, torch.ones(6, 2), members)  # noqa: E731
            wrong += refused(attempt, f"{one}, {other}", ranks, base)
    return wrong


def in_the_world_and_in_a_set(attempts):
    few = hvd.add_process_set([0, 2])
    wrong = attempts(hvd.global_process_set) + attempts(few)
    hvd.remove_process_set(few)
    return wrong


@pytest.mark.parametrize("attempts", [all_forms, other_operations])
def test_ranks_that_disagree_are_told_and_go_on(attempts):
    wrong = [text for told in world(3).run(in_the_world_and_in_a_set, attempts) for text in told]
    assert not wrong, f"{len(wrong)} wrong, such as\n" + "\n".join(wrong[:5])


def freed():
    """A tensor whose memory is freed, as sharding leaves a parameter whose elements another rank has."""
    tensor = torch.ones(1000)
    tensor.untyped_storage().resize_(0)
    return tensor


def out_of_order(members):
    """Calls without a name that come in another order are told, with their lines; with names they are no mistake."""
    if not members.included():
        return
    first = members.rank() == 0
    tensor = torch.ones(6, 2)
    for one, other in (("allreduce", "allgather"), ("reducescatter", "alltoall"), ("allreduce_", "allgather")):
        for form in (one, other) if first else (other, one):
            with pytest.raises(
                hvd.MismatchError, match=rf"(?s){one.rstrip('_')}.*{other}|{other}.*{one.rstrip('_')}"
            ) as told:
                getattr(hvd, form)(tensor, process_set=members)
            assert str(told.value).count("test_bad_input.py:") >= 2
        forms = [f"{each.rstrip('_')}_async" for each in ((one, other) if first else (other, one))]
        handles = [getattr(hvd, form)(tensor, name=form, process_set=members) for form in forms]
        for handle in handles:
            hvd.synchronize(handle)


def in_world_and_set(function):
    few = hvd.add_process_set([0, 2])
    function(hvd.global_process_set), function(few)
    hvd.remove_process_set(few)


def interrupted(form):
    """Ctrl-C in a notebook, while rank 0 waits for rank 1: the next cell goes on, and nothing is out of step."""
    tensors, options = torch.full((4, 2), hvd.rank() + 1.0), {"root_rank": 1} if form in ROOTED else {}
    given = [tensors.clone(), tensors.clone()] if "grouped" in form else tensors.clone()
    flag = os.path.join(tempfile.gettempdir(), f"farandole-{hvd.broadcast_object(os.getpid(), 0)}")
    handle = None
    if hvd.rank() == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            handle = getattr(hvd, form)(given, name="cell", **options)
            hvd.synchronize(handle)
        if handle is None:
            with pytest.raises(ValueError, match="'cell' is already in flight on rank 0"):
                getattr(hvd, form)(given, name="cell", **options)
        with open(flag, "w"):
            pass
    else:
        while not os.path.exists(flag):
            time.sleep(0.01)
        handle = getattr(hvd, form)(given, name="cell", **options)
    if "async" in form:
        result = hvd.synchronize(handle)
        kept = result[0] if isinstance(result, list | tuple) else result
        assert torch.isfinite(kept).all()
    hvd.barrier()
    if hvd.rank() == 0:
        os.remove(flag)
    assert hvd.allreduce(tensors, op=hvd.Sum).tolist() == [[sum(range(1, hvd.size() + 1))] * 2] * 4
    hvd.allreduce(tensors, name="cell")


def nonsense():
    """A mistake that one rank sees alone is a ValueError or TypeError there, before anything is sent."""
    tensor = torch.ones(6, 2, requires_grad=True)
    for form in FORMS:
        for bad, words in [
            (torch.ones(2, dtype=torch.complex32), "complex32"),
            (torch.ones(2).to_sparse(), "sparse"),
            (torch.ones(2, device="meta"), "meta.* has no data"),
            (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested tensors"),
            (torch.nn.parameter.UninitializedParameter(), "(?i)lazy ?module"),
            (freed(), "no memory"),
            ([1.0], "Tensor|sequence|list"),
            (None, "Tensor|NoneType"),
        ]:
            with pytest.raises((ValueError, TypeError), match=words):
                given = [bad] if "grouped" in form else bad
                getattr(hvd, form)(given, **({"root_rank": 0} if form in ROOTED else {}))
        with pytest.raises((ValueError, TypeError), match="ProcessSet"):
            given = [tensor] if "grouped" in form else tensor
            getattr(hvd, form)(given, process_set=7, **({"root_rank": 0} if form in ROOTED else {}))
    for transform in (torch.func.grad, torch.func.vmap):
        with pytest.raises(ValueError, match=r"without memory of its own, as torch\.func has it"):
            transform(lambda each: hvd.allreduce(each).sum())(torch.ones(2))
    for form in ROOTED:
        with pytest.raises(ValueError, match=rf"root_rank={hvd.size()}"):
            getattr(hvd, form)(tensor.detach(), root_rank=hvd.size())
    for splits in ([-1, 7], [3, 4], [1 << 70, 0], [6], "66", torch.ones(2)):
        with pytest.raises((ValueError, TypeError, OverflowError), match=r"split|rows|large|integer"):
            hvd.alltoall(tensor, splits=splits)
    for empty in (torch.ones(0, 3, requires_grad=True), torch.ones((), requires_grad=True)):
        hvd.allreduce(empty).sum().backward()
        assert empty.grad.shape == empty.shape
    if hvd.rank() == 1:
        hvd.barrier()
    handle = hvd.allreduce_async(tensor, name="twice")
    if hvd.rank() == 0:
        with pytest.raises(ValueError, match=r"'twice'"):
            hvd.allreduce_async(tensor, name="twice")
        hvd.barrier()
    hvd.synchronize(handle)


def test_nonsense_is_refused_where_it_is_said():
    world(2).run(nonsense)


def test_calls_in_another_order_are_told():
    world(3).run(in_world_and_set, out_of_order)


@pytest.mark.parametrize(
    "form",
    ["allreduce", "grouped_allreduce_", "allgather_async", "broadcast_async_", "alltoall", "reducescatter_async"],
)
def test_control_c_in_a_call_leaves_the_job_usable(form):
    world(2).run(interrupted, form)


def persistent_memory():
    hvd.init()
    weight = torch.nn.Parameter(torch.full((2, 3), float(hvd.rank())))
    mean = hvd.persistent_allreduce(weight, "weight")
    assert mean() is weight
    assert (weight == 0.5).all()
    with pytest.raises(RuntimeError, match="resiz"):
        weight.detach().resize_(100_000)
    weight.data = torch.full((2, 3), 7.0)  # the memory of before is still the one that is reduced
    mean()
    assert (weight == 7).all()
    flag = torch.zeros((), dtype=torch.bool)
    either = hvd.persistent_allreduce(flag, "flag", op=hvd.Max)
    flag.fill_(hvd.rank() == 1)
    assert either().item()
    turned = torch.ones(3, 4).T
    assert hvd.persistent_allreduce(turned, "turned", op=hvd.Sum)() is turned
    assert (turned == 2).all()


def test_a_persistent_allreduce_keeps_its_memory():
    spawn(2, persistent_memory, timeout=60)


def persistent_without_numpy():
    def missing(_):
        raise RuntimeError("Numpy is not available")  # torch's words

    torch.Tensor.numpy = missing
    hvd.init()
    values = torch.full((3,), hvd.rank() + 1.0)
    total = hvd.persistent_allreduce(values, "total", op=hvd.Sum)
    assert total() is values
    assert values.tolist() == [3.0] * 3


def test_a_persistent_allreduce_does_without_numpy():
    spawn(2, persistent_without_numpy, timeout=60)

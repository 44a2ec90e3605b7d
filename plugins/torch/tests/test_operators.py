"""torch.ops.farandole: collectives as operators of PyTorch, in Python and in what torch.compile compiles."""

import random
import re
import shutil
import threading
from datetime import timedelta

import farandole_torch as hvd
import pytest
import torch
import torch.distributed as dist
from farandole.testing import spawn, world
from versions import needs

pytestmark = [pytest.mark.timeout(180), needs(2, 9, "what the operators need")]

DTYPES = [torch.uint8, torch.int8, torch.uint16, torch.int16, torch.int32, torch.int64, torch.uint32, torch.uint64]
DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]
SIZES = [0, 1, 2, 7, 1000, 16_000, 300_000]


def loaded():
    from farandole_torch import operators

    return torch.ops.farandole, operators


def values():
    ops, operators = loaded()
    rank, size, group = hvd.rank(), hvd.size(), operators.group_id()
    for dtype in DTYPES:
        for count in SIZES if dtype in (torch.float32, torch.bfloat16) else SIZES[:5]:
            mine = (torch.arange(count * size) % 5 + rank).to(dtype)
            total = mine[:count].clone()
            assert ops.all_reduce_(total, hvd.Sum, group) is None
            assert torch.equal(total, hvd.allreduce(mine[:count], op=hvd.Sum)), (dtype, count)
            whole = torch.empty(count * size, dtype=dtype)
            ops.all_gather_into(whole, mine[:count], group)
            assert torch.equal(whole, hvd.allgather(mine[:count])), (dtype, count)
            part = torch.empty(count, dtype=dtype)
            ops.reduce_scatter_into(part, mine, hvd.Sum, group)
            assert torch.equal(part, hvd.reducescatter(mine, op=hvd.Sum)), (dtype, count)
            ops.all_to_all(whole, mine, group)
            assert torch.equal(whole, hvd.alltoall(mine)), (dtype, count)
            ops.broadcast_(part, size - 1, group)
            assert torch.equal(part, hvd.broadcast(part, size - 1)), (dtype, count)
    for op in (hvd.Average, hvd.Min, hvd.Max, hvd.Product):
        mine = torch.arange(6.0).reshape(2, 3) + rank
        ops.all_reduce_(mine, op, group)
        assert torch.equal(mine, hvd.allreduce(torch.arange(6.0).reshape(2, 3) + rank, op=op))


def mixed(seed):
    """Calls of operators, of Python and of torch.distributed in one order drawn by all ranks."""
    ops, operators = loaded()
    import farandole_torch.distributed  # noqa: F401

    if not dist.is_initialized():
        dist.init_process_group("farandole", init_method="farandole://")
    group, size = operators.group_id(), hvd.size()
    drawn = random.Random(seed)
    for step in range(100):
        count = drawn.choice([1, 3, 700, 20_000])
        x = torch.full((count,), float(hvd.rank() + step))
        kind = drawn.randrange(4)
        if kind == 0:
            ops.all_reduce_(x, hvd.Sum, group)
        elif kind == 1:
            hvd.allreduce_(x, op=hvd.Sum)
        elif kind == 2:
            dist.all_reduce(x)
        else:
            dist.all_reduce(x, async_op=True).wait()
        assert x.unique().tolist() == [size * step + sum(range(size))], (step, kind)


def groups():
    ops, operators = loaded()
    import farandole_torch.distributed  # noqa: F401

    if not dist.is_initialized():
        dist.init_process_group("farandole", init_method="farandole://")
    first = hvd.add_process_set([0, 2])
    assert operators.group_id(first) == first.process_set_id
    assert operators.group_id(dist.group.WORLD) == 0
    if hvd.rank() != 1:
        x = torch.ones(3)
        ops.all_reduce_(x, hvd.Sum, operators.group_id(first))
        assert x.tolist() == [2.0] * 3
        ops.broadcast_(x.fill_(hvd.rank()), 2, operators.group_id(first))
        assert x.tolist() == [2.0] * 3
        group = dist.new_group([0, 2], use_local_synchronization=True)
        dist.all_reduce(x, group=group)
        ops.all_reduce_(x, hvd.Sum, operators.group_id(group))
        assert x.tolist() == [8.0] * 3
    with pytest.raises(ValueError, match="is not a process set of this world"):
        operators.group_id(hvd.ProcessSet([0, 1]))
    assert hvd.remove_process_set(first)


def in_threads():
    """Each thread has a set of its own, so that their calls are in no common order."""
    ops, _ = loaded()
    from farandole.plugin.distributed import add_own_process_set

    sets = [add_own_process_set(list(range(hvd.size()))) for _ in range(3)]
    wrong = []

    def use(place):
        for step in range(300):
            x = torch.full((1 + 500 * place,), float(step + hvd.rank()))
            ops.all_reduce_(x, hvd.Sum, sets[place].process_set_id)
            if x.unique().tolist() != [hvd.size() * step + sum(range(hvd.size()))]:
                wrong.append((place, step))

    threads = [threading.Thread(target=use, args=(place,)) for place in range(len(sets))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def errors():
    ops, operators = loaded()
    group, x = operators.group_id(), torch.ones(4)
    with pytest.raises(RuntimeError, match="the ranks disagree") as raised:
        ops.all_reduce_(torch.ones(4 + hvd.rank()), hvd.Sum, group)
    assert type(raised.value) is RuntimeError
    with pytest.raises(hvd.MismatchError, match=r"^unnamed allreduce .*the ranks disagree"), operators.as_ours():
        ops.all_reduce_(torch.ones(4 + hvd.rank()), hvd.Sum, group)
    with pytest.raises(hvd.ArgumentError, match="unknown reduction 77"), operators.as_ours():
        ops.all_reduce_(x, 77, group)
    with pytest.raises(hvd.ArgumentError, match="process set 1234"), operators.as_ours():
        ops.all_reduce_(x, hvd.Sum, 1234)
    with pytest.raises(hvd.ArgumentError, match=r"all_reduce_: .* not contiguous"), operators.as_ours():
        ops.all_reduce_(torch.ones(4, 4)[:, 1], hvd.Sum, group)
    with pytest.raises(hvd.ArgumentError, match="dtype cannot be reduced"), operators.as_ours():
        ops.all_reduce_(x.to(torch.float8_e5m2), hvd.Sum, group)
    with pytest.raises(hvd.ArgumentError, match="differ in dtype"), operators.as_ours():
        ops.all_gather_into(torch.ones(8, dtype=torch.float64), x, group)
    whole = f"the result has {4 * hvd.size()} elements, and output 3"
    with pytest.raises(hvd.ArgumentError, match=whole), operators.as_ours():
        ops.all_gather_into(torch.ones(3), x, group)
    with pytest.raises(RuntimeError, match="for something else") as raised, operators.as_ours():
        raise RuntimeError("for something else")
    assert type(raised.value) is RuntimeError
    ops.all_reduce_(x, hvd.Sum, group)  # nothing is out of order
    assert x.tolist() == [hvd.size()] * 4


def errors_of_one_rank():
    """The other ranks are told at once."""
    ops, operators = loaded()
    group, x = operators.group_id(), torch.ones(2, 2)
    mistakes = {"not contiguous": x.t()[0], "dtype cannot be reduced": x.to(torch.float8_e5m2)}
    for why, wrong in mistakes.items():
        with pytest.raises(hvd.FarandoleError, match=why), operators.as_ours():
            ops.all_reduce_(wrong if hvd.rank() == 1 else x, hvd.Sum, group)
    x = torch.full((2,), float(hvd.rank()))
    hvd.allreduce_(x, op=hvd.Sum)  # nothing is out of order
    assert x.tolist() == [sum(range(hvd.size()))] * 2


def passed_around(x, rank: int, size: int):
    """A ring. The sum of what all have had, if each call takes place."""
    total = x.clone()
    for step in range(size - 1):
        sent, received = x * 2, torch.empty_like(x)
        if rank % 2:
            torch.ops.farandole.recv(received, (rank - 1) % size, step, 0)
            torch.ops.farandole.send(sent, (rank + 1) % size, step, 0)
        else:
            torch.ops.farandole.send(sent, (rank + 1) % size, step, 0)
            torch.ops.farandole.recv(received, (rank - 1) % size, step, 0)
        x = received / 2
        total = total + x
    return total


def sends(x):
    torch.ops.farandole.send(x * 2, 1, 0, 0)
    return x + 1


def receives(x):
    torch.ops.farandole.recv(x, 0, 0, 0)
    return x + 1


def one_message():
    loaded()
    function = torch.compile(receives if hvd.rank() else sends, fullgraph=True)
    for _ in range(2):
        x = torch.ones(3)
        assert function(x).tolist() == [3.0 if hvd.rank() else 2.0] * 3
        assert x.tolist() == [2.0 if hvd.rank() else 1.0] * 3


def messages(backend):
    ops, operators = loaded()
    rank, size = hvd.rank(), hvd.size()
    faster = torch.compile(passed_around, fullgraph=True, backend=backend) if backend else passed_around
    for count in (3,) if backend else (1, 3, 1000, 100_000):  # larger ones wait for the receiver
        x = torch.full((count,), float(rank))
        assert faster(x, rank, size).unique().tolist() == [sum(range(size))]
        assert x.unique().tolist() == [rank]
    if rank == 0:
        numbers = torch.empty(2, dtype=torch.int64)
        ops.recv(numbers, -1, 77, 0)
        assert numbers.tolist() == [1, 2]
        with pytest.raises(hvd.MismatchError, match="recv from rank 1 with tag 78"), operators.as_ours():
            ops.recv(numbers, 1, 78, 0)
        with pytest.raises(hvd.ArgumentError, match="rank 9 is not in process set 0"), operators.as_ours():
            ops.send(numbers, 9, 0, 0)
        with pytest.raises(hvd.ArgumentError, match="send: the tensor is not contiguous"), operators.as_ours():
            ops.send(torch.ones(4, 4)[:, 1], 1, 0, 0)
    elif rank == 1:
        ops.send(torch.tensor([1, 2]), 0, 77, 0)
        ops.send(torch.tensor([1, 2, 3]), 0, 78, 0)
    hvd.barrier()


def time_limits():
    ops, operators = loaded()
    import farandole_torch.distributed  # noqa: F401

    if not dist.is_initialized():
        dist.init_process_group("farandole", init_method="farandole://")
    group = operators.group_id(dist.new_group(timeout=timedelta(seconds=1)))
    if hvd.rank() == 0:
        with pytest.raises(hvd.DeadlineError, match=r"rank 1.*the timeout of this wait is over"), operators.as_ours():
            ops.all_reduce_(torch.ones(3), hvd.Sum, group)
        with pytest.raises(hvd.DeadlineError, match=r"rank 1 did not take part within"), operators.as_ours():
            ops.recv(torch.ones(3), 1, 0, group)
    hvd.barrier()
    if hvd.rank() == 1:
        late = torch.ones(3)
        ops.all_reduce_(late, hvd.Sum, group)  # the tensor of rank 0 is still there
        assert late.tolist() == [2.0] * 3
    hvd.barrier()


def other_devices():
    ops, operators = loaded()
    ops.all_reduce_(torch.ones(4, device="meta"), hvd.Sum, 0)
    ops.all_gather_into(torch.ones(8, device="meta"), torch.ones(4, device="meta"), 0)
    kernel = ops.all_reduce_.default._op_dk  # as a GPU's tensor would come to it
    with pytest.raises(hvd.ArgumentError, match=r"use torch\.distributed with"), operators.as_ours():
        kernel(torch._C.DispatchKey.CUDA, torch.ones(1), hvd.Sum, 0)


def scaled_sum(x, group: int, size: int):
    total = x * 2
    torch.ops.farandole.all_reduce_(total, hvd.Sum, group)
    whole = x.new_empty(x.numel() * size)
    torch.ops.farandole.all_gather_into(whole, total, group)
    torch.ops.farandole.broadcast_(total, 0, group)
    return total.sin() + whole.sum()


def with_unread_results(x, reads: bool):
    """A rank that does not read a result must take part all the same."""
    first, second = x + 1, x + 2
    torch.ops.farandole.all_reduce_(first, hvd.Sum, 0)
    torch.ops.farandole.all_reduce_(second, hvd.Max, 0)
    return first * 3 if reads else x * 3


def compiled(backend):
    loaded()
    rank, size = hvd.rank(), hvd.size()
    hvd.barrier()
    faster = torch.compile(scaled_sum, fullgraph=True, backend=backend)
    for count in (3,) if backend == "inductor" else (3, 5, 9):  # the second compiles again, for all sizes
        x = torch.arange(float(count)) + rank
        assert torch.allclose(faster(x, 0, size), scaled_sum(x, 0, size))
        assert x.tolist() == [place + rank for place in range(count)]
    in_place = torch.compile(torch.ops.farandole.all_reduce_, fullgraph=True, backend=backend)
    x = torch.ones(3)
    in_place(x, hvd.Sum, 0)
    assert x.tolist() == [size] * 3
    torch._dynamo.reset()
    faster = torch.compile(with_unread_results, fullgraph=True, backend=backend)
    for _ in range(3):
        x = torch.full((4,), float(rank))
        expected = 3.0 * (sum(range(size)) + size) if rank == 0 else 3.0 * rank
        assert faster(x, rank == 0).tolist() == [expected] * 4


def raised_in_a_compiled_function():
    _, operators = loaded()
    faster = torch.compile(scaled_sum, fullgraph=True, backend="aot_eager")
    with pytest.raises(hvd.MismatchError, match="the ranks disagree"), operators.as_ours():
        faster(torch.ones(3 + hvd.rank()), 0, hvd.size())


UNCAUGHT = """
import farandole_torch as hvd
import torch
from farandole_torch import operators

hvd.init()
torch.ops.farandole.all_reduce_(torch.ones(1 + hvd.rank()), hvd.Sum, 0)
"""

KILLED = """
import os, signal
import farandole_torch as hvd
import torch
from farandole_torch import operators

hvd.init()
for step in range(100):
    if (hvd.rank(), step) == (1, 50):
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        torch.ops.farandole.all_reduce_(torch.ones(1000), hvd.Sum, 0)
    except RuntimeError as raised:
        try:
            with operators.as_ours():
                raise
        except hvd.PeerLostError as ours:
            print(f"step {step}: {type(raised).__name__}, {ours}")
        break
"""

WITHOUT = """
import pathlib
pathlib.Path.exists = lambda self: self.name != "libfarandole_torch.so"
import farandole_torch as hvd
hvd.init()
print(hvd.size(), end=" ")
try:
    import farandole_torch.operators
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_values(ranks):
    world(ranks).run(values)


@pytest.mark.parametrize("ranks", [2, 3])
def test_they_are_ordered_with_other_calls(ranks):
    for seed in range(3):
        world(ranks).run(mixed, seed)


def test_groups():
    world(3).run(groups)


def test_threads():
    world(2).run(in_threads)


def test_errors():
    world(2).run(errors)


def test_errors_of_one_rank():
    world(3).run(errors_of_one_rank)


def test_the_timeout_of_a_group_limits_them():
    world(2).run(time_limits)


def test_other_devices():
    world(1).run(other_devices)


@pytest.mark.parametrize("ranks", [2, 3])
def test_messages(ranks):
    world(ranks).run(messages, "")


def test_messages_in_compiled_functions():
    world(2).run(messages, "aot_eager")


@pytest.mark.timeout(400)
@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_inductor_drops_no_message():
    world(2).run(one_message, timeout=350)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", *(["inductor"] if shutil.which("g++") else [])])
def test_compiled(backend):
    world(2).run(compiled, backend, timeout=350)  # inductor compiles C++, for a minute and more


def test_errors_in_compiled_functions():
    world(2).run(raised_in_a_compiled_function)


def test_an_uncaught_error_is_ours(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(UNCAUGHT)
    with pytest.raises(Exception, match=r"MismatchError: unnamed allreduce.*the ranks disagree"):
        spawn(2, script, timeout=60)


def test_the_loss_of_a_rank_is_raised(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(KILLED)
    survivor = spawn(2, script, timeout=60, check=False)[0]
    assert re.search(r"step 50: RuntimeError, .*rank 1", survivor.output), survivor


def test_without_a_binary_the_rest_works(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(WITHOUT)
    assert spawn(1, script, timeout=60)[0].startswith("1 farandole-torch was built here without a C++ compiler")

"""Random calls of torch.distributed in several groups at once, each in a thread of its own, against one process.

Every rank draws the same calls for a group, and knows what all ranks give, so it computes the result by itself.
"""

import random
import threading
import traceback

import torch
import torch.distributed as dist

DTYPES = (torch.float32, torch.float64, torch.int64, torch.uint8, torch.bfloat16, torch.complex64)
WHOLE = {torch.int64, torch.uint8}
SUM, AVG, MIN, MAX, BAND, BXOR = (getattr(dist.ReduceOp, each) for each in ("SUM", "AVG", "MIN", "MAX", "BAND", "BXOR"))


class Case:
    """One call in a group: what it is, and what each rank gives."""

    def __init__(self, seed, ranks, me):
        self.draw, self.ranks, self.me, self.seed = random.Random(seed), ranks, me, seed
        self.size, self.dtype = len(ranks), self.draw.choice(DTYPES)
        self.is_async = self.draw.random() < 0.5
        self.tag = self.draw.randrange(3)
        self.root = self.draw.randrange(self.size)
        self.length = self.draw.choice([0, 1, 3, 17, 1000, 20000])
        self.call = self.draw.choice(CALLS)

    def given(self, rank, length=None, salt=0):
        """Small whole numbers, whose sums are exact in every type."""
        generator = torch.Generator().manual_seed(hash((self.seed, rank, salt)) & 0xFFFFFFFF)
        values = torch.randint(0, 8, (self.length if length is None else length,), generator=generator)
        return values.to(self.dtype)

    def finish(self, work):
        if work is not None:
            work.wait()

    def check(self, got, want):
        assert torch.equal(got, want), (self.seed, self.call.__name__, self.dtype, self.length, got[:9], want[:9])


def reduced(case, tensors):
    """The operation, and its result."""
    ops = [SUM] if case.dtype.is_complex else [SUM, MIN, MAX, *((BAND, BXOR) if case.dtype in WHOLE else ())]
    op = case.draw.choice(ops)
    rows = torch.stack(tensors)
    if op == SUM:
        return op, rows.sum(0).to(case.dtype)
    if op == MIN:
        return op, rows.amin(0)
    if op == MAX:
        return op, rows.amax(0)
    result = rows[0]
    for each in rows[1:]:
        result = result & each if op == BAND else result ^ each
    return op, result


def all_reduce(case, group):
    op, want = reduced(case, [case.given(each) for each in range(case.size)])
    tensor = case.given(case.me)
    case.finish(dist.all_reduce(tensor, op, group=group, async_op=case.is_async))
    case.check(tensor, want)


def reduce(case, group):
    op, want = reduced(case, [case.given(each) for each in range(case.size)])
    tensor = case.given(case.me)
    case.finish(dist.reduce(tensor, op=op, group=group, group_dst=case.root, async_op=case.is_async))
    if case.me == case.root:
        case.check(tensor, want)


def broadcast(case, group):
    tensor = case.given(case.me)
    case.finish(dist.broadcast(tensor, group=group, group_src=case.root, async_op=case.is_async))
    case.check(tensor, case.given(case.root))


def all_gather(case, group):
    tensors = [torch.empty(case.length, dtype=case.dtype) for _ in range(case.size)]
    case.finish(dist.all_gather(tensors, case.given(case.me), group=group, async_op=case.is_async))
    for rank, tensor in enumerate(tensors):
        case.check(tensor, case.given(rank))


def all_gather_into_tensor(case, group):
    whole = torch.empty(case.length * case.size, dtype=case.dtype)
    case.finish(dist.all_gather_into_tensor(whole, case.given(case.me), group=group, async_op=case.is_async))
    case.check(whole, torch.cat([case.given(each) for each in range(case.size)]))


def reduce_scatter(case, group):
    whole = [case.given(each, case.length * case.size) for each in range(case.size)]
    op, want = reduced(case, whole)
    mine = torch.empty(case.length, dtype=case.dtype)
    if case.draw.random() < 0.5:
        work = dist.reduce_scatter_tensor(mine, whole[case.me], op, group=group, async_op=case.is_async)
    else:
        parts = [*whole[case.me].tensor_split(case.size)]
        work = dist.reduce_scatter(mine, parts, op, group=group, async_op=case.is_async)
    case.finish(work)
    case.check(mine, want[case.me * case.length : (case.me + 1) * case.length])


def all_to_all(case, group):
    counts = [[case.draw.randrange(5) for _ in range(case.size)] for _ in range(case.size)]  # from, to
    sent = case.given(case.me, sum(counts[case.me]))
    to_me = [row[case.me] for row in counts]
    got = torch.empty(sum(to_me), dtype=case.dtype)
    case.finish(dist.all_to_all_single(got, sent, to_me, counts[case.me], group=group, async_op=case.is_async))
    parts = [case.given(each, sum(counts[each])).split(counts[each])[case.me] for each in range(case.size)]
    case.check(got, torch.cat(parts))


def gather_and_scatter(case, group):
    is_root = case.me == case.root
    everybody = [case.given(each) for each in range(case.size)]
    gathered = [torch.empty(case.length, dtype=case.dtype) for _ in range(case.size)] if is_root else None
    case.finish(dist.gather(everybody[case.me], gathered, group=group, group_dst=case.root, async_op=case.is_async))
    for got, want in zip(gathered or [], everybody, strict=False):
        case.check(got, want)
    own = torch.empty(case.length, dtype=case.dtype)
    parts = everybody if is_root else None
    case.finish(dist.scatter(own, parts, group=group, group_src=case.root, async_op=case.is_async))
    case.check(own, everybody[case.me])


def barrier(case, group):
    case.finish(dist.barrier(group, async_op=case.is_async))


def messages(case, group):
    """Several between random ranks, in one batch; those of one pair and tag keep their order."""
    passes = [(*case.draw.sample(range(case.size), 2), case.draw.randrange(3)) for _ in range(5)]
    calls, checks = [], []
    for number, (source, target, tag) in enumerate(passes):
        if source == case.me:
            sent = case.given(source, salt=number)
            calls.append(dist.P2POp(dist.isend, sent, group=group, group_peer=target, tag=tag))
        if target == case.me:
            got = torch.empty(case.length, dtype=case.dtype)
            calls.append(dist.P2POp(dist.irecv, got, group=group, group_peer=source, tag=tag))
            checks.append((got, case.given(source, salt=number)))
    for work in dist.batch_isend_irecv(calls) if calls else []:
        work.wait()
    for got, want in checks:
        case.check(got, want)


def message_from_anyone(case, group):
    """The root gets one of each other rank, in the order in which they come."""
    if case.me != case.root:
        return dist.send(case.given(case.me), group=group, group_dst=case.root, tag=case.tag)
    left = set(range(case.size)) - {case.root}
    while left:
        got = torch.empty(case.length, dtype=case.dtype)
        sender = dist.get_group_rank(group, dist.recv(got, group=group, tag=case.tag))
        left.remove(sender)
        case.check(got, case.given(sender))
    return dist.barrier(group)  # the next call may receive by the same tag


def after_messages(case, group):
    message_from_anyone(case, group)
    if case.me != case.root:
        dist.barrier(group)


CALLS = [all_reduce, reduce, broadcast, all_gather, all_gather_into_tensor, reduce_scatter, all_to_all]
CALLS += [gather_and_scatter, barrier, messages, after_messages]


def run(seed, cases):
    """On every rank of a world of 4: as many cases, spread over groups."""
    members = [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2], [1, 3], [0, 2, 3], [2, 3]]
    groups = [dist.new_group(each) for each in members]
    wrong = []

    def use(number):
        ranks = members[number]
        try:
            for step in range(cases // len(groups)):
                case = Case(hash((seed, number, step)), ranks, ranks.index(dist.get_rank()))
                case.call(case, groups[number])
        except Exception:
            wrong.append(f"group {number}, step {step}: {traceback.format_exc()}")

    mine = [number for number, ranks in enumerate(members) if dist.get_rank() in ranks]
    threads = [threading.Thread(target=use, args=(number,)) for number in mine]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong, "\n".join(wrong)
    for number in mine:
        dist.destroy_process_group(groups[number])

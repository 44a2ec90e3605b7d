"""DistributedDataParallel over the backend "farandole" in its other modes: static graphs, hooks, uneven data."""

import pytest
import torch
import torch.distributed as dist
from farandole.testing import world
from test_distributed import inputs_of, joined
from versions import needs

pytestmark = [pytest.mark.timeout(180), needs(2, 7, "what the backend needs")]

SMALL_BUCKETS_MB = 0.0001


def network():
    """Three matrices, so that several buckets have something to compress."""
    torch.manual_seed(5)
    layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)]
    return torch.nn.Sequential(*layers).double()


def losses_of(model, rank, step):
    return model(inputs_of(rank, step)).square().mean()


def reference(ranks_of_step):
    """One process with the rows of the ranks that take part in each step."""
    whole = network()
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for step, ranks in enumerate(ranks_of_step):
        optimizer.zero_grad()
        (sum(losses_of(whole, rank, step) for rank in ranks) / len(ranks)).backward()
        optimizer.step()
    return flat(whole)


def flat(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def groups():
    """One whose sums wait until backward is over, and one whose sums begin at once, whatever this machine is."""
    for defers in (True, False):
        group = dist.new_group()
        group._defers = defers
        yield group
        dist.destroy_process_group(group)


def trained(parallel, rank, steps=4, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(parallel.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        losses_of(parallel, rank, step).backward()
        optimizer.step()
    return flat(parallel)


def with_options():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    rank, size = joined()
    expected = reference([range(size)] * 4)
    for group in groups():
        for options in (
            {"static_graph": True},
            {"static_graph": True, "bucket_cap_mb": SMALL_BUCKETS_MB},
            {"static_graph": True, "find_unused_parameters": True, "gradient_as_bucket_view": True},
            {"find_unused_parameters": True, "bucket_cap_mb": SMALL_BUCKETS_MB},
            {"gradient_as_bucket_view": True, "bucket_cap_mb": SMALL_BUCKETS_MB},
        ):
            parallel = torch.nn.parallel.DistributedDataParallel(network(), process_group=group, **options)
            assert torch.allclose(trained(parallel, rank), expected, rtol=1e-9, atol=1e-12), options
        sharded = ZeroRedundancyOptimizer(parallel.parameters(), torch.optim.SGD, process_group=group, lr=0.1)
        parallel.module.load_state_dict(network().state_dict())
        assert torch.allclose(trained(parallel, rank, optimizer=sharded), expected, rtol=1e-9, atol=1e-12)


def with_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook

    rank, size = joined()
    expected = reference([range(size)] * 4)

    def power(group):  # of full rank, so it changes nothing
        return powerSGD_hook.PowerSGDState(group, 8, start_powerSGD_iter=2, min_compression_rate=0.1)

    cases = [
        (lambda group: group, default_hooks.allreduce_hook, 1e-9),
        (lambda group: group, default_hooks.fp16_compress_hook, 1e-2),
        (power, powerSGD_hook.powerSGD_hook, 1e-6),
        (power, default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook), 1e-1),
        (lambda group: PostLocalSGDState(group, group, start_localSGD_iter=2), post_localSGD_hook, 1e-9),
        (lambda group: group, quantization_hooks.quantization_pertensor_hook, None),
    ]
    for group in groups():
        for state_of, hook, tolerance in cases:
            for static_graph in (False, True):
                parallel = torch.nn.parallel.DistributedDataParallel(
                    network(), process_group=group, bucket_cap_mb=SMALL_BUCKETS_MB, static_graph=static_graph
                )
                parallel.register_comm_hook(state_of(group), hook)
                got = trained(parallel, rank)
                gathered = [torch.empty_like(got) for _ in range(size)]
                dist.all_gather(gathered, got, group=group)
                what = hook.__qualname__, static_graph, group._defers
                assert all(torch.equal(got, each) for each in gathered), what
                if tolerance is not None:
                    assert torch.allclose(got, expected, rtol=tolerance, atol=tolerance), what
        parallel = torch.nn.parallel.DistributedDataParallel(network(), process_group=group)
        parallel._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
        assert torch.allclose(trained(parallel, rank), expected, rtol=1e-9, atol=1e-12)


def with_accumulation():
    """Gradients of two batches, of which the first stays on its rank."""
    rank, size = joined()
    for group in groups():
        parallel = torch.nn.parallel.DistributedDataParallel(network(), process_group=group)
        whole = network()
        with parallel.no_sync():
            losses_of(parallel, rank, 0).backward()
        losses_of(parallel, rank, 1).backward()
        (sum(losses_of(whole, each, step) for each in range(size) for step in range(2)) / size).backward()
        for got, want in zip(parallel.parameters(), whole.parameters(), strict=True):
            assert torch.allclose(got.grad, want.grad, rtol=1e-9, atol=1e-12)


def with_uneven_data():
    """Rank r has 1 + 2r batches. Sums are divided by the number of ranks that still have some, or by all."""
    from torch.distributed.algorithms.join import Join

    rank, size = joined()
    present = [[each for each in range(size) if step < 1 + 2 * each] for step in range(1 + 2 * (size - 1))]
    expected = reference(present)
    for group in groups():
        for divides_by_all in (False, True):
            parallel = torch.nn.parallel.DistributedDataParallel(network(), process_group=group)
            with Join([parallel], divide_by_initial_world_size=divides_by_all):
                trained(parallel, rank, 1 + 2 * rank)
            assert torch.allclose(flat(parallel), expected, rtol=1e-9, atol=1e-12) != divides_by_all


@pytest.mark.parametrize("mode", [with_options, with_hooks, with_accumulation, with_uneven_data])
def test_distributed_data_parallel(mode):
    world(2).run(mode)

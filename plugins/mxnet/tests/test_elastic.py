"""Elastic training with MXNet: states of networks and trainers, and errors that arrays carry."""

import itertools

import farandole_mxnet as hvd
import mxnet as mx
import numpy as np
import pytest
from batches_simulation import History, Place
from farandole._elastic import batches as batches_module
from farandole.testing import world
from farandole_mxnet._private import updater_of

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def alone():
    hvd.init()
    yield
    hvd.shutdown()


def network(seed=11, layers=2, **options):
    net = mx.gluon.nn.HybridSequential()
    for _ in range(layers):
        net.add(mx.gluon.nn.Dense(3, in_units=3, **options))
    net.add(mx.gluon.nn.BatchNorm(in_channels=3))
    net.initialize()
    values = np.random.RandomState(seed)
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.array(values.uniform(0.1, 0.5, parameter.shape)))
    net.hybridize()
    return net


def step(net, trainer, seed=0):
    inputs = mx.nd.array(np.random.RandomState(seed).randn(4, 3))
    with mx.autograd.record():
        loss = net(inputs).square().mean()
    loss.backward()
    trainer.step(4)


def values_of(net):
    return [each.data().asnumpy().tolist() for each in net.collect_params().values()]


def adam(net):
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.1)
    return hvd.DistributedTrainer(net.collect_params(), mx.optimizer.Adam(learning_rate=0.1, lr_scheduler=schedule))


def by_optimizer(net):
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
    return mx.gluon.Trainer(net.collect_params(), optimizer, kvstore=None)


@pytest.mark.parametrize("make", [adam, by_optimizer])
def test_training_goes_on_from_the_last_commit_as_if_nothing_had_been(alone, make):
    net = network()
    trainer = make(net)
    state = hvd.elastic.MXNetState(net, trainer, epoch=0)
    state.commit()  # before the optimizer has a state
    start = values_of(net)
    for number in range(3):
        step(net, trainer, number)
    state.restore()
    assert values_of(net) == start
    for number in range(3):
        step(net, trainer, number)
    state.epoch = 1
    state.commit()
    kept = values_of(net)
    step(net, trainer, 3)
    step(net, trainer, 4)
    expected, rate = values_of(net), trainer.learning_rate
    for _ in range(2):
        state.restore()
        assert (values_of(net), state.epoch) == (kept, 1)
        step(net, trainer, 3)
        step(net, trainer, 4)
        assert values_of(net) == expected
        assert trainer.learning_rate == rate


def test_commits_reuse_two_copies(alone):
    net = network()
    state = hvd.elastic.MXNetState(net)
    kept = []
    for _ in range(4):
        state.commit()
        kept.append([id(each) for each in state._handlers["net"]._kept])
    assert kept[0] == kept[2] != kept[1] == kept[3]


def test_a_network_without_values_is_refused(alone):
    with pytest.raises(ValueError, match="run one batch through it before the state"):
        net = mx.gluon.nn.Dense(1)
        net.initialize()
        hvd.elastic.MXNetState(net)
    with pytest.raises(ValueError, match=r"call initialize\(\) first"):
        hvd.elastic.MXNetState(mx.gluon.nn.Dense(1, in_units=1))


def test_keywords_may_have_any_name_but_those_of_methods(alone):
    state = hvd.elastic.MXNetState(commits=0, to_copy=1, from_copy=[2])
    names = {name for name in dir(state) if not name.startswith("_")}
    names -= {name for name in dir(hvd.elastic.State) if not name.startswith("_")}
    assert names == {"net", "trainer", "commits", "to_copy", "from_copy"}
    state.commit()
    state.commits, state.from_copy = 9, 9
    state.restore()
    assert (state.commits, state.to_copy, state.from_copy) == (0, 1, [2])


def test_a_sampler_of_gluon_feeds_a_loader(alone):
    sampler = hvd.elastic.ElasticSampler(range(10), seed=3)
    assert isinstance(sampler, mx.gluon.data.Sampler)
    loader = mx.gluon.data.DataLoader(
        mx.gluon.data.SimpleDataset(list(range(10))), batch_size=3, sampler=sampler, last_batch="keep"
    )
    first = next(iter(loader)).asnumpy().tolist()
    sampler.record_batch(0, 3)
    rest = [index for batch in loader for index in batch.asnumpy().tolist()]
    assert sorted(first + rest) == list(range(10))


def numbers(count=23):
    return mx.gluon.data.ArrayDataset(list(range(count)), [number**2 for number in range(count)])


BATCHES = [[0, 1, 2], [3, 4], [5, 6, 7, 8], *([each] for each in range(9, 23))]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4},
        {"batch_size": 4, "shuffle": True, "seed": 2, "num_workers": 2, "thread_pool": True},
        {"batch_size": 4, "num_workers": 1},
        {"batch_sampler": BATCHES, "num_workers": 1, "thread_pool": True},
    ],
    ids=["plain", "threads", "workers", "batch sampler"],
)
def test_a_loader_gives_the_rest_after_a_change(alone, options):
    loader = hvd.elastic.DataLoader(numbers(), **options)
    check_rest(loader, loader, lambda number: None)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_of_gluons_own_with_a_sampler_gives_the_rest_after_a_change(alone, num_workers):
    sampler = hvd.elastic.ElasticSampler(range(23))
    loader = mx.gluon.data.DataLoader(numbers(), 4, sampler=sampler, last_batch="keep", num_workers=num_workers)
    check_rest(loader, sampler, lambda number: sampler.record_batch(number, 4))


def check_rest(loader, held, record):
    state = hvd.elastic.MXNetState(held=held, epoch=0)
    for _ in range(2):
        held.set_epoch(state.epoch)
        seen = []
        for number, (batch, _) in enumerate(loader):
            if number == 3:  # this step fails, while workers have loaded the next batches
                break
            seen += batch.asnumpy().tolist()
            record(number)
            state.commit()
        state.restore()
        held.set_epoch(state.epoch)
        rest = [int(index) for batch, _ in loader for index in batch.asnumpy()]
        assert sorted(seen + rest) == list(range(23))
        state.epoch += 1


@pytest.mark.parametrize("options", [{"batch_size": 4}, {"batch_sampler": BATCHES}], ids=["plain", "batch sampler"])
def test_a_pass_that_was_complete_when_its_state_was_saved_gives_nothing_more(alone, options):
    loader = hvd.elastic.DataLoader(numbers(), **options)
    for _ in range(2):
        assert len(list(itertools.islice(loader, len(loader)))) == len(loader)  # it asks for no batch after the last
        loader.load_state_dict(loader.state_dict())
        assert (len(loader), list(loader)) == (0, [])


def test_no_sample_is_lost_and_none_comes_twice_over_many_changes_of_the_ranks(monkeypatch):
    def new_state(plan, seed):
        samples = mx.gluon.data.SimpleDataset(list(range(plan.length)))
        options = {"shuffle": True, "seed": seed, "last_batch": "discard" if plan.drop_last else "keep"}
        return hvd.elastic.MXNetState(
            data=hvd.elastic.DataLoader(samples, plan.batch_size, **options), epoch=0, seen=[]
        )

    place = Place()
    monkeypatch.setattr(batches_module, "world", place)
    for seed in range(2):
        History(seed, place, 5, new_state, lambda batch: batch.asnumpy().tolist()).run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "^the loader needs the batch_size"),
        ({"batch_size": 2, "last_batch": "rollover"}, "^last_batch='rollover' leaves samples to the next pass"),
        ({"batch_size": 2, "auto_reload": True}, "^auto_reload=True begins a loop before the program"),
        ({"batch_size": 2, "batch_sampler": BATCHES}, "^batch_sampler decides what is in a batch"),
        ({"batch_size": 2, "sampler": hvd.elastic.ElasticSampler(range(23))}, "^sampler: ElasticSampler divides"),
    ],
)
def test_a_loader_refuses_what_it_cannot_share_out(alone, options, message):
    with pytest.raises(ValueError, match=message):
        hvd.elastic.DataLoader(numbers(), **options)


def _shared_out():
    loader = hvd.elastic.DataLoader(numbers(), 4, shuffle=True)
    state = hvd.elastic.MXNetState(loader=loader)
    state.sync()
    batches = []
    for batch, squares in loader:
        assert (batch**2 == squares).asnumpy().all()
        batches.append(batch.asnumpy().tolist())
        state.commit()
    return batches, len(loader)


def test_ranks_have_as_many_batches_and_each_sample_once():
    (first, count), (second, _) = world(2).run(_shared_out)
    assert [len(batch) for batch in first + second] == [4, 4, 4, 4, 4, 3]
    assert count == 3
    assert sorted(index for batch in first + second for index in batch) == list(range(23))


def _synced():
    net = network(seed=hvd.rank())
    trainer = adam(net)
    state = hvd.elastic.MXNetState(net, trainer, epoch=hvd.rank())
    if hvd.rank() == 1:
        with mx.autograd.record():
            loss = net(mx.nd.ones((4, 3))).square().mean()
        loss.backward()
        trainer.update(4)  # this rank's own
        state.save()
        state._commits = 2
    mine = hvd.allgather_object(values_of(net))
    state.sync()
    counts = sorted(trainer.optimizer._index_update_count.values())
    return (
        values_of(net) == mine[1],
        mine[0] != mine[1],
        state.epoch,
        state._commits,
        set(counts),
        trainer.learning_rate,
    )


def test_all_take_the_state_of_the_rank_with_the_most_commits():
    first, second = world(2).run(_synced)
    assert first == second
    assert first[:5] == (True, True, 1, 2, {1})


def _joined():
    """Ranks 0 to 2 have the same state but for statistics of a layer, rank 3 has just joined."""
    is_new = hvd.rank() // 3
    net = network(seed=is_new)
    trainer = adam(net)
    state = hvd.elastic.MXNetState(net, trainer, epoch=is_new)
    if not is_new:
        with mx.autograd.record():
            loss = net(mx.nd.ones((4, 3))).square().mean()
        loss.backward()
        trainer.update(4)  # as on the two others
        net[2].running_mean.set_data(mx.nd.full((3,), hvd.rank()))
        state._syncs = 1
    mine = hvd.allgather_object(values_of(net))
    state.sync()
    level = values_of(net) == mine[0] != mine[3]
    net[0].weight.set_data(mx.nd.zeros((3, 3)))
    state.restore()
    counts = set(trainer.optimizer._index_update_count.values())
    moments = hvd.allgather_object(
        [each.asnumpy().tolist() for pair in updater_of(trainer).states.values() for each in pair]
    )
    return level, values_of(net) == mine[0], state.epoch, counts, all(each == moments[0] != [] for each in moments)


def test_three_send_what_they_have_in_common_to_one_that_joins():
    assert world(4).run(_joined) == [(True, True, 0, {1}, True)] * 4


def _restored_after_a_failure():
    """A gradient that could not be averaged is an error of every array that depends on it, until the state is back."""
    net = network()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    state = hvd.elastic.MXNetState(net, trainer)
    state.sync()
    kept = values_of(net)
    # As many gradients on all ranks, of which one has another shape on rank 1.
    weight = mx.nd.ones(2 + hvd.rank())
    hvd.allreduce_(weight, name="uneven")
    net[0].weight.data()[:] = net[0].weight.data() + weight[:1].sum()
    try:
        state.commit()
    except hvd.MismatchError:
        state.restore()
        step(net, trainer)
        after = values_of(net)
        state.restore()
        return values_of(net) == kept, after != kept, state._commits
    return "no error"


def test_no_error_is_left_in_the_arrays_after_restore():
    assert world(2).run(_restored_after_a_failure) == [(True, True, 0)] * 2

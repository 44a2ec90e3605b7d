"""The loader of elastic training with PyTorch: each sample of a pass once, and PyTorch's own behaviour otherwise."""

import itertools

import farandole_torch as hvd
import pytest
import torch
from batches_simulation import History, Place
from farandole._elastic import batches as batches_module
from farandole.testing import world

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def alone():
    hvd.init()
    yield
    hvd.shutdown()


def test_a_sampler_of_torch_feeds_a_loader(alone):
    sampler = hvd.elastic.ElasticSampler(range(10), seed=3)
    assert isinstance(sampler, torch.utils.data.Sampler)
    loader = torch.utils.data.DataLoader(range(10), batch_size=3, sampler=sampler)
    state = hvd.elastic.TorchState(sampler=sampler)
    first = next(iter(loader)).tolist()
    sampler.record_batch(0, 3)
    state.commit()
    sampler.record_batch(1, 3)
    state.restore()
    rest = [index for batch in loader for index in batch.tolist()]
    assert sorted(first + rest) == list(range(10))


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 23

    def __getitem__(self, index):
        return index, torch.tensor(index**2)


class Buckets(torch.utils.data.Sampler):
    """Batches of uneven size, in another order for each pass."""

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 8

    def __iter__(self):
        batches = [list(range(begin, min(begin + 3, 23))) for begin in range(0, 23, 3)]
        return iter(batches[self.epoch :] + batches[: self.epoch])


def as_dictionary(samples):
    return {"index": [index for index, _ in samples], "squares": [int(square) for _, square in samples]}


OPTIONS = {
    "plain": {},
    "shuffled": {"shuffle": True, "seed": 5},
    "workers": {"num_workers": 2, "shuffle": True},
    "persistent": {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4},
    "collated": {"collate_fn": as_dictionary, "num_workers": 1},
    "batch sampler": {"batch_size": 1, "batch_sampler": Buckets(), "num_workers": 1},
    "sampler": {"sampler": [3, 1, 2, *range(4, 23), 0]},
}


def indices_of(batch):
    return [int(index) for index in (batch["index"] if isinstance(batch, dict) else batch[0])]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_a_loader_records_what_the_loop_got_and_gives_the_rest_after_a_change(alone, options):
    loader = hvd.elastic.DataLoader(Squares(), **{"batch_size": 4, **options})
    state = hvd.elastic.TorchState(loader=loader, epoch=0)
    for _ in range(2):
        loader.set_epoch(state.epoch)
        seen = []
        for number, batch in enumerate(loader):
            if number == 3:  # this step fails, while workers have loaded the next batches
                break
            seen += indices_of(batch)
            state.commit()
        state.restore()
        loader.set_epoch(state.epoch)
        assert len(loader) == (5 if "batch_sampler" in options else 3)
        rest = [index for batch in loader for index in indices_of(batch)]
        assert sorted(seen + rest) == list(range(23))
        state.epoch += 1


@pytest.mark.parametrize("options", ["shuffled", "persistent", "batch sampler", "sampler"])
def test_a_pass_that_was_complete_when_its_state_was_saved_gives_nothing_more(alone, options):
    loader = hvd.elastic.DataLoader(Squares(), **{"batch_size": 4, **OPTIONS[options]})
    for _ in range(2):
        assert len(list(itertools.islice(loader, len(loader)))) == len(loader)  # it asks for no batch after the last
        loader.load_state_dict(loader.state_dict())
        assert (len(loader), list(loader)) == (0, [])


def test_no_sample_is_lost_and_none_comes_twice_over_many_changes_of_the_ranks(monkeypatch):
    def new_state(plan, seed):
        options = {"shuffle": True, "seed": seed, "drop_last": plan.drop_last}
        loader = hvd.elastic.DataLoader(range(plan.length), plan.batch_size, **options)
        return hvd.elastic.TorchState(data=loader, epoch=0, seen=[])

    place = Place()
    monkeypatch.setattr(batches_module, "world", place)
    for seed in range(5):
        History(seed, place, 10, new_state, torch.Tensor.tolist).run()


def test_a_loader_is_pytorchs(alone):
    loader = hvd.elastic.DataLoader(Squares(), 4, drop_last=True)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert (loader.batch_size, loader.drop_last, len(loader)) == (4, True, 5)
    assert [len(batch[0]) for batch in loader] == [4] * 5
    assert [len(batch[0]) for batch in hvd.elastic.DataLoader(Squares(), 4)] == [4] * 5 + [3]
    with pytest.raises(ValueError, match="num_workers"):
        hvd.elastic.DataLoader(Squares(), prefetch_factor=2)


def test_a_batch_that_cannot_be_loaded_is_not_recorded(alone):
    class Fails(Squares):
        def __getitem__(self, index):
            if index == 6:
                raise OSError("sample 6 cannot be read")
            return super().__getitem__(index)

    loader = hvd.elastic.DataLoader(Fails(), 4, num_workers=1)
    with pytest.raises(OSError, match="sample 6 cannot be read"):
        list(loader)
    assert loader.processed_num == 4


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(5))


@pytest.mark.parametrize(
    ("dataset", "options", "error", "message"),
    [
        (Endless(), {}, TypeError, "^an IterableDataset cannot begin in the middle"),
        (Squares(), {"batch_size": None}, ValueError, "^batch_size=None gives no batches to share out"),
        (Squares(), {"in_order": False}, ValueError, "^in_order=False gives batches in an order"),
        (Squares(), {"sampler": [1], "shuffle": True}, ValueError, "^give sampler or shuffle, not both"),
        (
            Squares(),
            {"batch_sampler": Buckets(), "drop_last": True},
            ValueError,
            "^batch_sampler decides what is in a batch",
        ),
        (
            Squares(),
            {"sampler": torch.utils.data.DistributedSampler(Squares(), 2, 0)},
            ValueError,
            "^sampler: DistributedSampler divides the samples",
        ),
        (
            Squares(),
            {"sampler": hvd.elastic.ElasticSampler(Squares())},
            ValueError,
            "^sampler: ElasticSampler divides the samples",
        ),
    ],
)
def test_a_loader_refuses_what_it_cannot_share_out(alone, dataset, options, error, message):
    with pytest.raises(error, match=message):
        hvd.elastic.DataLoader(dataset, **options)


def _shared_out(batch_size, options):
    loader = hvd.elastic.DataLoader(Squares(), batch_size, **options)
    state = hvd.elastic.TorchState(loader=loader)
    state.sync()
    batches = []
    for batch in loader:
        batches.append((indices_of(batch), loader.is_common))
        state.commit()
    return batches, len(loader)


@pytest.mark.parametrize("batch_size", [1, 4, 11])
@pytest.mark.parametrize("options", [{"shuffle": True}, {"num_workers": 1}], ids=["shuffled", "workers"])
def test_ranks_have_as_many_batches_and_each_sample_once(batch_size, options):
    (first, count), (second, _) = world(2).run(_shared_out, batch_size, options)
    assert len(first) == len(second) == count
    seen = []
    for (one, is_common), (other, _) in zip(first, second, strict=True):
        assert 0 < len(one) <= batch_size
        assert 0 < len(other) <= batch_size
        seen += one if is_common else one + other
        assert one == other or not is_common
    assert sorted(seen) == list(range(23))


def _of_unseeded_samplers():
    torch.manual_seed(hvd.rank())
    loader = hvd.elastic.DataLoader(Squares(), sampler=torch.utils.data.RandomSampler(Squares()))
    try:
        hvd.elastic.TorchState(loader=loader).sync()
    except ValueError as error:
        return str(error)
    return ""


def test_samplers_that_give_another_order_on_each_rank_are_told():
    told = world(2).run(_of_unseeded_samplers)
    assert told[0] == ""
    assert told[1].startswith("the samples are in another order than when their state was saved")

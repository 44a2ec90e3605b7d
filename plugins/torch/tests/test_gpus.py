"""Which GPU a rank gets: CUDA itself is a stand-in here, torch's way of beginning with it is its own."""

import warnings

import farandole_torch as hvd
import pytest
import torch
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(100)


class Cuda:
    """A fake torch.cuda with `count` GPUs."""

    def __init__(self, monkeypatch, count):
        self.count, self.current, self.initialized = count, 0, False
        self.queued = []
        for name in ("set_device", "device_count", "current_device", "is_initialized", "_lazy_call"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))

    def set_device(self, device):
        self.initialize()
        assert 0 <= device < self.count, "invalid device ordinal"
        self.current = device

    def device_count(self):
        return self.count

    def current_device(self):
        return self.current

    def is_initialized(self):
        return self.initialized

    def _lazy_call(self, function):
        self.queued.append(function)

    def initialize(self):
        if not self.initialized:
            self.initialized = True
            for function in self.queued:
                function()


def start(count, chosen=None):
    with pytest.MonkeyPatch.context() as patch:
        cuda = Cuda(patch, count)
        if chosen is not None:
            cuda.set_device(chosen)
        hvd.init()
        assert cuda.initialized == (chosen is not None), "init() has begun with CUDA"
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            cuda.initialize()  # model.cuda()
        hvd.shutdown()
        return cuda.current, [str(each.message) for each in warned]


def start_twice(count):
    with pytest.MonkeyPatch.context() as patch:
        cuda = Cuda(patch, count)
        for _ in range(2):
            hvd.init()
            hvd.shutdown()
        cuda.initialize()
        return cuda.current, len(cuda.queued)


def choose_as_horovods_scripts_do(count):
    with pytest.MonkeyPatch.context() as patch:
        cuda = Cuda(patch, count)
        hvd.init()
        cuda.set_device(hvd.local_rank())
        hvd.shutdown()
        return cuda.current


def test_a_script_that_chooses_none_gets_the_gpu_of_its_local_rank():
    assert spawn(3, start, 4, timeout=60) == [(rank, []) for rank in range(3)]


def test_what_the_script_has_chosen_stays():
    assert spawn(2, start, 4, 3, timeout=60) == [(3, [])] * 2


def test_scripts_that_choose_by_local_rank_get_the_same():
    assert spawn(2, choose_as_horovods_scripts_do, 2, timeout=60) == [0, 1]


def test_a_gpu_that_a_rank_sees_alone_is_its_own():
    assert spawn(2, start, 1, timeout=60) == [(0, [])] * 2


def test_ranks_without_a_gpu_of_their_own_are_told():
    results = spawn(3, start, 2, timeout=60)
    assert [current for current, _ in results] == [0, 1, 0]
    assert results[0][1] == results[1][1] == []
    assert "rank 2 is number 2 of the 3 ranks on this host and sees 2 GPUs only" in results[2][1][0]


def test_it_is_asked_once_and_not_after_the_end():
    assert spawn(2, start_twice, 4, timeout=60) == [(0, 1)] * 2


def test_torch_calls_what_waits_for_cuda():
    """The real one: what `init` relies on is there, and says that this machine's torch has not begun with CUDA."""
    before = len(torch.cuda._queued_calls)
    torch.cuda._lazy_call(lambda: None)
    assert len(torch.cuda._queued_calls) == before + (not torch.cuda.is_initialized())
    del torch.cuda._queued_calls[before:]


def test_a_negative_view_is_resolved_before_it_is_copied_to_the_host(monkeypatch):
    """Torch copies a strided one from a GPU with the wrong sign, which tests/gpus shows where there is a GPU."""
    copied = []
    monkeypatch.setattr(torch.Tensor, "copy_", lambda target, source: copied.append(source))
    values = torch.arange(3.0) + 1
    view = torch.complex(torch.zeros(3), -values).conj().imag
    assert view.is_neg()
    hvd._adapter.TensorAdapter().assign(torch.empty(3), view)
    assert not copied[0].is_neg() and torch.equal(copied[0], values)

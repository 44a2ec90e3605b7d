"""Tensors on real GPUs by the C interface, as plugins hand them over whose frameworks show no stream and no event."""

import ctypes

import c_interface as c
import pytest
import torch
import torch_device
from farandole.plugin.native import api_address
from farandole.testing import spawn

pytestmark = pytest.mark.timeout(120)

SLOW_CYCLES = 20_000_000  # about 10 ms of a GPU


def enqueue(tensor, done):
    """An allreduce in place, ready after all that the GPU was asked for; `done` when the result may be read."""
    shape = (ctypes.c_int64 * 1)(tensor.numel())
    address = tensor.data_ptr()
    view = c.Tensor(ctypes.sizeof(c.Tensor), c.FLOAT32, address, address, shape, 1, c.CUDA, None)
    request = c.Request(struct_size=ctypes.sizeof(c.Request), operation=c.ALLREDUCE, tensors=ctypes.pointer(view))
    request.tensor_count, request.reduce, request.name = 1, c.SUM, b"by.c"
    request.prescale = request.postscale = 1.0
    request.done, request.ready, request.done_when_readable = done, c.READY_AFTER_ALL, 1
    begin = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(c.Request), ctypes.c_void_p)
    function = begin(c.Api.from_address(api_address()).enqueue)
    assert function(ctypes.byref(request), None) == 0


def reduce_by_c():
    import threading

    import farandole

    farandole.init()
    device, other = torch.device(torch_device.DEVICE), torch.cuda.Stream()
    for step in range(5):
        tensor = torch.full((100_000,), -77.0, device=device)
        torch.cuda._sleep(SLOW_CYCLES)
        tensor.fill_(float(farandole.rank() + step))
        over, events = threading.Event(), []

        @c.DONE
        def done(_argument, code, _message, event, over=over, events=events):
            events.append((code, event))
            over.set()

        enqueue(tensor, done)
        assert over.wait(30)
        assert events == [(0, None)], "the code, and no event to wait for"
        with torch.cuda.stream(other):  # of which nobody has said anything
            total = tensor.sum().item()
        assert total == 100_000 * (sum(range(farandole.size())) + step * farandole.size())
    farandole.shutdown()


@pytest.mark.parametrize("backend", ["native", "nccl,native"])
def test_a_tensor_of_a_framework_without_streams_is_reduced_once_it_is_computed(backend):
    spawn(2, reduce_by_c, timeout=100, env={"FARANDOLE_BACKEND": backend})

import farandole_torch
import torch
import torch_device
from farandole.testing import conformance


def tensor(values, dtype):
    return torch.tensor(values, dtype=getattr(torch, dtype), device=torch_device.DEVICE)


SUBJECT = conformance.Subject(
    module=farandole_torch,
    make=lambda values, shape, dtype: tensor(values, dtype).reshape(shape),
    values=lambda tensor: tensor.flatten().tolist(),
    strided=lambda values, dtype: tensor(values, dtype).repeat_interleave(2)[::2],
    unsupported=lambda: torch.zeros(3, dtype=torch.complex32, device=torch_device.DEVICE),
    absent=frozenset({"sparse_allreduce"}),  # torch has sparse tensors of its own, see test_sparse
)
test_conformance = conformance.tests(SUBJECT)

import farandole_torch
import torch
from farandole.testing import conformance

SUBJECT = conformance.Subject(
    module=farandole_torch,
    make=lambda values, shape, dtype: torch.tensor(values, dtype=getattr(torch, dtype)).reshape(shape),
    values=lambda tensor: tensor.flatten().tolist(),
    strided=lambda values, dtype: torch.tensor(values, dtype=getattr(torch, dtype)).repeat_interleave(2)[::2],
    unsupported=lambda: torch.zeros(3, dtype=torch.complex64),
    absent=frozenset({"sparse_allreduce"}),  # torch has sparse tensors of its own, see test_sparse
)
test_conformance = conformance.tests(SUBJECT)

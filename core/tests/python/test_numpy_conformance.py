import importlib.util

import farandole.numpy
import numpy as np
from farandole.testing import conformance

_HAS_BFLOAT16 = importlib.util.find_spec("ml_dtypes") is not None


def _make(values, shape, dtype):
    if dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    return np.array(values, dtype=dtype).reshape(shape)


SUBJECT = conformance.Subject(
    module=farandole.numpy,
    make=_make,
    values=lambda tensor: tensor.ravel().tolist(),
    strided=lambda values, dtype: np.repeat(np.array(values, dtype=dtype), 2)[::2],
    unsupported=lambda: np.zeros(3, np.complex64),
    dtypes=tuple(dtype for dtype in conformance.ALL_DTYPES if dtype != "bfloat16" or _HAS_BFLOAT16),
)
test_conformance = conformance.tests(SUBJECT)

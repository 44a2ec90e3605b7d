"""numpy's arrays as the subject of the conformance suite."""

import farandole.numpy
import ml_dtypes
import numpy as np
from farandole.testing import conformance


def _make(values, shape, dtype):
    return np.array(values, dtype=ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype).reshape(shape)


SUBJECT = conformance.Subject(
    module=farandole.numpy,
    make=_make,
    values=lambda tensor: tensor.ravel().tolist(),
    strided=lambda values, dtype: np.repeat(np.array(values, dtype=dtype), 2)[::2],
    unsupported=lambda: np.zeros(3, np.clongdouble),
    dtypes=conformance.ALL_DTYPES,
)

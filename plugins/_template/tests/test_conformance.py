import farandole_template
import numpy as np
from farandole.testing import conformance

SUBJECT = conformance.Subject(
    module=farandole_template,
    make=lambda values, shape, dtype: np.array(values, dtype=dtype).reshape(shape),
    values=lambda tensor: tensor.ravel().tolist(),
    strided=lambda values, dtype: np.repeat(np.array(values, dtype=dtype), 2)[::2],
    unsupported=lambda: np.zeros(3, np.clongdouble),
    dtypes=tuple(dtype for dtype in conformance.ALL_DTYPES if dtype != "bfloat16"),
)
test_conformance = conformance.tests(SUBJECT)

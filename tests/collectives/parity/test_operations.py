"""Same numbers in, same bits out: in numpy and in the framework that is here. The suite runs beside each framework.

Results of numpy's API are compared with formulas, so frameworks that cannot be in one process have the same bits, too.
By default that is done beside PyTorch alone, and graphs of TensorFlow, whose kernels are those of eager calls, are run
with one element type of each kind: bool, a whole number, a float that is added in float32, and float32.
FARANDOLE_LONG=1: numpy's results beside each framework, and all element types.
"""

import os

import comparing
import pytest
from calls import RANKS
from faces import FRAMEWORKS, LACKING, WAYS
from farandole.testing import world
from meanings import COMPLEX
from meanings import DTYPES as ALL_DTYPES

pytestmark = pytest.mark.timeout(300)


def judge(answers):
    assert all(count > 10 for count, _ in answers)
    texts = [f"rank {rank}: {text}" for rank, (_, found) in enumerate(answers) for text in found]
    assert not texts, "\n".join([f"{len(texts)} differences", *texts[:12]])


def test_a_framework_is_here():
    assert FRAMEWORKS


LONG = bool(os.environ.get("FARANDOLE_LONG"))
DTYPES = [dtype for dtype in ALL_DTYPES if dtype not in COMPLEX and (LONG or dtype not in ("uint32", "uint64"))]
if LONG or "torch" in FRAMEWORKS:

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_numpy_has_the_bits_of_the_formulas(dtype):
        judge(world(RANKS).run(comparing.compare_with_formulas, dtype))


IN_A_GRAPH = DTYPES if LONG else ("bool", "int32", "bfloat16", "float32")
CASES = [
    (framework, way, dtype)
    for framework in FRAMEWORKS
    for way in WAYS[framework]
    for dtype in DTYPES
    if dtype not in LACKING.get(framework, ()) and (way != "in a function" or dtype in IN_A_GRAPH)
]


@pytest.mark.parametrize(("framework", "way", "dtype"), CASES)
def test_a_framework_has_the_bits_of_numpy(framework, way, dtype):
    judge(world(RANKS).run(comparing.compare, framework, way, dtype, timeout=120))

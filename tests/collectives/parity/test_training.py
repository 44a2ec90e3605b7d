"""A step of training has the same bits in every framework, whatever makes its optimizer distributed."""

import comparing
import pytest
from calls import RANKS
from faces import FRAMEWORKS
from farandole.testing import world
from steps import Options

pytestmark = pytest.mark.timeout(300)

TRAINERS = {
    "torch": ["DistributedOptimizer"],
    "mxnet": ["DistributedOptimizer", "DistributedTrainer"],
    "tensorflow": ["DistributedGradientTape", "DistributedOptimizer of Keras", "DistributedOptimizer of TF1"],
}
OPTIONS = [
    Options(),
    Options(groups=2),
    Options(predivide=3.0),
    Options(compression="fp16"),
    Options(compression="bf16", groups=1),
    Options(op="Sum"),
]


def takes(framework, trainer, options):
    """MXNet's wrappers always average, its optimizer does not compress, and it has no bfloat16."""
    if framework != "mxnet":
        return True
    compressions = ("none",) if trainer == "DistributedOptimizer" else ("none", "fp16")
    return options.op == "Average" and options.compression in compressions


CASES = [
    (framework, trainer, options)
    for framework in FRAMEWORKS
    for trainer in TRAINERS[framework]
    for options in OPTIONS
    if takes(framework, trainer, options)
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("framework", "trainer", "options"), CASES, ids=lambda value: str(value).replace(" ", ""))
def test_training_has_the_bits_of_numpy(framework, trainer, options, dtype):
    assert world(RANKS).run(comparing.compare_training, framework, trainer, dtype, options, timeout=120) == [""] * RANKS


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_without_averages_the_bits_are_others(dtype):
    assert world(RANKS).run(comparing.averaging_shows, dtype) == [True] * RANKS

"""Every public function and class has an example in its docstring, and its examples hold on two ranks."""

import docstring_examples
import farandole.numpy
import farandole_tensorflow
import farandole_tensorflow.keras
import pytest

pytestmark = pytest.mark.timeout(300)
WORDS = {"keras": "tensorflow:keras", "np": "numpy", "tf": "tensorflow"}
WORDS |= {"elastic": "farandole_tensorflow.elastic", "farandole": "farandole"}


@pytest.mark.parametrize("module", [farandole_tensorflow, farandole_tensorflow.keras], ids=["plain", "keras"])
def test_every_public_name_has_an_example(module):
    assert docstring_examples.lacking(module, but=[farandole.numpy]) == []


@pytest.mark.parametrize("module", ["farandole_tensorflow", "farandole_tensorflow.keras"])
def test_examples_hold_on_two_ranks(module):
    assert docstring_examples.run_on_two_ranks(module, WORDS, but=["farandole.numpy"]) == ["", ""]

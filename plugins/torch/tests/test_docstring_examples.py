"""Every public function and class has an example in its docstring, and its examples hold on two ranks."""

import os

os.environ["KERAS_BACKEND"] = "torch"  # before Keras is imported; the ranks import this file, too

import docstring_examples
import farandole.numpy
import farandole_torch
import farandole_torch.keras
import pytest

pytestmark = pytest.mark.timeout(300)
WORDS = {"keras": "keras", "np": "numpy", "torch": "torch"}
WORDS |= {"elastic": "farandole_torch.elastic", "farandole": "farandole"}


@pytest.mark.parametrize("module", [farandole_torch, farandole_torch.keras], ids=["plain", "keras"])
def test_every_public_name_has_an_example(module):
    assert docstring_examples.lacking(module, but=[farandole.numpy]) == []


@pytest.mark.parametrize("module", ["farandole_torch", "farandole_torch.keras"])
def test_examples_hold_on_two_ranks(module):
    assert docstring_examples.run_on_two_ranks(module, WORDS, but=["farandole.numpy"]) == ["", ""]

"""Every public function and class has an example in its docstring, and its examples hold on two ranks."""

import docstring_examples
import farandole.numpy
import farandole_mxnet

WORDS = {"mx": "mxnet", "np": "numpy", "elastic": "farandole_mxnet.elastic", "farandole": "farandole"}


def test_every_public_name_has_an_example():
    assert docstring_examples.lacking(farandole_mxnet, but=[farandole.numpy]) == []


def test_examples_hold_on_two_ranks():
    assert docstring_examples.run_on_two_ranks("farandole_mxnet", WORDS, but=["farandole.numpy"]) == ["", ""]

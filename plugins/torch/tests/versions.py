"""Tests of what older versions of PyTorch lack."""

import re

import pytest
import torch

TORCH = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])


def needs(major, minor, what):
    """With an older version the test is left out: it is none of what is there."""
    return pytest.mark.needs((major, minor), what)


def is_lacking(item):
    return any(mark.args[0] > TORCH for mark in item.iter_markers("needs"))

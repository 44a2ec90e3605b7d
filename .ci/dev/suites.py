"""Which Python tests there are, and beside which frameworks each of them runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dev import ROOT, pins
from dev.environments import Framework, Together, mxnet, pytorch, schemas, tensorflow

Beside = Sequence[Framework | Together]

TORCH, MXNET = pytorch(), mxnet()
OLDEST, *_, NEWEST = (tensorflow(version) for version in pins.TENSORFLOW_PYTHONS)
_SPARK = Together((TORCH, NEWEST), pins.SPARK, "spark")
_SPARK_3_5 = Together((TORCH, NEWEST), pins.SPARK_3_5, "spark-3.5")
_NEWEST_SPARK = "connect digits failing_calls horovod_estimators keras_training lightning_training reader"

# By what a path starts with; the first that fits counts. Elsewhere `mxnet` or `tensorflow` in the path says it, and
# what has neither runs beside PyTorch.
BESIDE: dict[str, Beside] = {
    "plugins/ray/tests/test_cluster": (Together((TORCH, NEWEST), pins.RAY, "ray"),),
    "tests/collectives/parity": (TORCH, MXNET, NEWEST),
    "tests/frameworks/together": (Together((MXNET, OLDEST)), Together((TORCH, NEWEST)), Together((MXNET, TORCH))),
    "tests/hosts/test_kubernetes_schemas": (schemas(),),
    "tests/hosts/test_launchers_tensorflow": (Together((TORCH, NEWEST)),),
    "tests/integrations": (Together((TORCH,), pins.INTEGRATIONS, "integrations"),),
    "tests/programs/test_tensorflow": (OLDEST,),
    **{f"tests/spark/test_{name}": (_SPARK,) for name in [*_NEWEST_SPARK.split(), "synapseml", "torch_training"]},
    "tests/spark": (_SPARK, _SPARK_3_5),
}
# Run only when they are named: they need a GPU, fetch hundreds of MB, or take long.
ONLY_NAMED = re.compile(
    r"tests/(gpus|integrations|page|programs|spark)/|plugins/ray/tests/test_cluster"
    r"|tests/hosts/test_(kubernetes|launchers|mpi|mxnet|slurm|tensorflow|torch)_"
)
# Suites that run as several jobs, since the longest chain of jobs must not be longer than all others together.
PARTS = {"tests/launch": 4, "tests/hosts": 2, "tests/faults": 2, "plugins/tensorflow/tests": 2}
# Suites with a longer form.
LONG = ["tests/collectives/meaning", "tests/collectives/parity", "tests/faults", "tests/frameworks/examples"]
LONG += ["plugins/tensorflow/tests/test_keras_fit.py", "plugins/torch/tests/test_drawn_training.py"]
LONG += ["plugins/torch/tests/test_random_groups.py", "tests/launch/test_failures.py"]
LONG += ["tests/packaging/test_mxnet_wheel.py"]


class Run(NamedTuple):
    """A run of pytest, beside each of some frameworks."""

    what: str
    beside: Beside
    arguments: list[str]


def beside_of(path: str) -> Beside:
    """The environments for a path of the tree."""
    named = [beside for start, beside in BESIDE.items() if path.startswith(start)]
    return named[0] if named else (MXNET,) if "mxnet" in path else (NEWEST,) if "tensorflow" in path else (TORCH,)


def test_files(path: str = "") -> list[str]:
    """The files of tests at or below a path; without one, those of the default run."""
    below = [path] if path else ["core/tests/python", "plugins/*/tests", "tests"]
    found = [file for each in below for place in ROOT.glob(each) for file in place.rglob("test_*.py")]
    names = sorted(str(file.relative_to(ROOT)) for file in found or [ROOT / path])
    return [name for name in names if path or not ONLY_NAMED.match(name)]


def within(path: str) -> dict[Beside, list[str]]:
    """What runs beside what of this argument of pytest: itself, or the files of a folder with several."""
    groups: dict[Beside, list[str]] = {}
    for file in test_files(path.partition("::")[0]):
        groups.setdefault(beside_of(file), []).append(file)
    return groups if len(groups) > 1 else {beside: [path] for beside in groups}


def runs_of(paths: Sequence[str] = ()) -> list[Run]:
    """The runs of the tests at or below these paths, by default of all: for each folder, its environments and parts."""
    groups: dict[tuple[str, Beside], list[str]] = {}
    for file in (file for path in paths or [""] for file in test_files(path)):
        groups.setdefault((str(Path(file).parent), beside_of(file)), []).append(file)
    runs = []
    for (folder, beside), files in groups.items():
        parts = min(PARTS.get(folder, 1), len(files))
        for part in range(parts):
            name = f"{folder}, part {part + 1}" if parts > 1 else folder
            runs.append(Run(name, beside, files[part::parts]))
    return runs


def chosen(arguments: Sequence[str], otherwise: Sequence[str] = ()) -> list[Run]:
    """A run for each set of environments of the tests that pytest's arguments name; without arguments, the others."""
    if not arguments:
        return runs_of(otherwise)
    named = {each: within(each) for each in arguments if (ROOT / each.partition("::")[0]).exists()}
    runs = []
    for beside in dict.fromkeys(beside for groups in named.values() for beside in groups) or [(TORCH,)]:
        parts = [part for each in arguments for part in named.get(each, {beside: [each]}).get(beside, [])]
        runs.append(Run(" ".join(parts), beside, parts))
    return runs

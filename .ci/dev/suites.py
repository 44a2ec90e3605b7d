"""Which Python tests there are, and beside which frameworks each of them runs."""

from __future__ import annotations

from collections.abc import Sequence

from dev import ROOT, pins
from dev.environments import Framework, Together, mxnet, pytorch, schemas, tensorflow

Beside = Sequence[Framework | Together]
Runs = dict[str, tuple[Beside, list[str]]]  # what it is called -> its environments, arguments of pytest

TORCH, MXNET = pytorch(), mxnet()
OLDEST, *_, NEWEST = (tensorflow(version) for version in pins.TENSORFLOW_PYTHONS)
EXAMPLES = "tests/frameworks/examples"

# Programs for Horovod, fetched from the package index, run by a session of their own.
PROGRAMS: dict[str, Beside] = {
    "tests/programs/test_mxnet_programs.py": (MXNET,),
    "tests/programs/test_tensorflow_programs.py": (OLDEST,),
    "tests/programs/test_torch_programs.py": (TORCH,),
}

# Scripts of other libraries, which need about 40 MB more than PyTorch: for the session `integrations`.
INTEGRATIONS: dict[str, Beside] = {
    "tests/integrations": (Together((TORCH,), pins.INTEGRATIONS, "integrations"),),
}

# The live page in Chromium, of which Debian's is fetched where there is none: for the session `page`.
PAGE: dict[str, Beside] = {"tests/page": (TORCH,)}

# Ray on a host of a lab, which needs about 210 MB more than PyTorch and TensorFlow: for the session `ray`.
RAY: dict[str, Beside] = {
    "plugins/ray/tests/test_cluster.py": (Together((TORCH, NEWEST), pins.RAY, "ray"),),
}

# A small Spark, which needs Java and about 500 MB more than PyTorch and TensorFlow: for the session `spark`.
SPARK: dict[str, Beside] = {
    "tests/spark/test_classic.py": (
        Together((TORCH, NEWEST), pins.SPARK, "spark"),
        Together((TORCH, NEWEST), pins.SPARK_3_5, "spark-3.5"),
    ),
    "tests/spark/test_connect.py": (Together((TORCH, NEWEST), pins.SPARK, "spark"),),
    "tests/spark/test_elastic.py": (
        Together((TORCH, NEWEST), pins.SPARK, "spark"),
        Together((TORCH, NEWEST), pins.SPARK_3_5, "spark-3.5"),
    ),
    "tests/spark/test_digits.py": (Together((TORCH, NEWEST), pins.SPARK, "spark"),),
}

# Other frameworks, MPI, pods and a small Slurm on several hosts: for the session `hosts`, with all long forms.
HOSTS: dict[str, Beside] = {
    "tests/hosts/test_kubernetes_pods.py": (TORCH,),
    "tests/hosts/test_kubernetes_schemas.py": (schemas(),),
    "tests/hosts/test_launchers_tensorflow.py": (Together((TORCH, NEWEST)),),
    "tests/hosts/test_launchers_torch.py": (TORCH,),
    "tests/hosts/test_mpi_starts.py": (TORCH,),
    "tests/hosts/test_slurm_functions.py": (TORCH,),
    "tests/hosts/test_slurm_steps.py": (TORCH,),
    "tests/hosts/test_mxnet_digits.py": (MXNET,),
    "tests/hosts/test_tensorflow_digits.py": (NEWEST,),
    "tests/hosts/test_torch_digits.py": (TORCH,),
}
# A folder or file of tests -> the environments of its default run. tests/gpus is run by hand.
SUITES: dict[str, Beside] = {
    "core/tests/python": (TORCH,),
    "plugins/_template/tests": (TORCH,),
    "plugins/horovod/tests/test_common.py": (TORCH,),
    "plugins/horovod/tests/test_horovodrun.py": (TORCH,),
    "plugins/horovod/tests/test_mxnet.py": (MXNET,),
    "plugins/horovod/tests/test_ray.py": (TORCH,),
    "plugins/horovod/tests/test_run.py": (TORCH,),
    "plugins/horovod/tests/test_spark.py": (TORCH,),
    "plugins/horovod/tests/test_tensorflow.py": (NEWEST,),
    "plugins/horovod/tests/test_torch.py": (TORCH,),
    "plugins/mxnet/tests": (MXNET,),
    "plugins/ray/tests/test_calls.py": (TORCH,),
    "plugins/ray/tests/test_request.py": (TORCH,),
    "plugins/spark/tests": (TORCH,),
    "plugins/tensorflow/tests": (NEWEST,),
    "plugins/torch/tests": (TORCH,),
    "tests/architecture": (TORCH,),
    "tests/benchmarks": (TORCH,),
    "tests/collectives/backends": (TORCH,),
    "tests/collectives/meaning": (TORCH,),
    "tests/collectives/parity": (TORCH, MXNET, NEWEST),
    "tests/diagnosis": (TORCH,),
    "tests/faults": (TORCH,),
    f"{EXAMPLES}/test_mxnet_examples.py": (MXNET,),
    f"{EXAMPLES}/test_tensorflow_examples.py": (NEWEST,),
    f"{EXAMPLES}/test_torch_examples.py": (TORCH,),
    "tests/frameworks/together": (Together((MXNET, OLDEST)), Together((TORCH, NEWEST)), Together((MXNET, TORCH))),
    "tests/hosts/test_elastic_discovery.py": (TORCH,),
    "tests/hosts/test_elastic_hosts.py": (TORCH,),
    "tests/hosts/test_failing_jobs.py": (TORCH,),
    "tests/hosts/test_functions.py": (TORCH,),
    "tests/hosts/test_jobs.py": (TORCH,),
    "tests/hosts/test_lab.py": (TORCH,),
    "tests/hosts/test_torchrun.py": (TORCH,),
    "tests/launch": (TORCH,),
    "tests/packaging/test_horovod_wheel.py": (TORCH,),
    "tests/packaging/test_misfits.py": (TORCH,),
    "tests/packaging/test_mxnet_wheel.py": (MXNET,),
    "tests/packaging/test_release.py": (TORCH,),
    "tests/packaging/test_tensorflow_wheel.py": (NEWEST,),
    "tests/packaging/test_torch_wheel.py": (TORCH,),
    "tests/planted": (TORCH,),
    "tests/soak": (TORCH,),
}
LONG = ["tests/collectives/meaning", "tests/collectives/parity", "tests/faults", EXAMPLES]  # suites with a longer form
LONG += ["plugins/torch/tests/test_drawn_training.py", "tests/launch/test_failures.py"]
LONG += ["tests/packaging/test_mxnet_wheel.py"]


def within(path: str) -> list[tuple[str, Beside]]:
    """The suites below a folder; or the path itself with the environments of its suite, PyTorch's where it has none."""
    suites = SUITES | PROGRAMS | INTEGRATIONS | PAGE | RAY | SPARK | HOSTS
    below = [(suite, beside) for suite, beside in suites.items() if suite.startswith(f"{path.rstrip('/')}/")]
    file = path.partition("::")[0].rstrip("/")
    own = [beside for suite, beside in suites.items() if f"{file}/".startswith(f"{suite}/")]
    return below or [(path, own[0] if own else (TORCH,))]


def runs_of(paths: Sequence[str] = tuple(SUITES)) -> Runs:
    """A run for each suite of these paths, by default all."""
    return {suite: (beside, [suite]) for path in paths for suite, beside in within(path)}


def chosen(arguments: Sequence[str], otherwise: Sequence[str] = tuple(SUITES)) -> Runs:
    """A run for each set of environments of the tests that pytest's arguments name; without arguments, the others."""
    if not arguments:
        return runs_of(otherwise)
    named = {path: within(path) for path in arguments if (ROOT / path.partition("::")[0]).exists()}
    runs: Runs = {}
    for beside in dict.fromkeys(beside for found in named.values() for _, beside in found) or [(TORCH,)]:
        parts: list[str] = []
        for argument in arguments:
            found = named.get(argument, [(argument, beside)])
            parts += [suite for suite, where in found if where == beside]
        runs[" ".join(parts)] = beside, parts
    return runs

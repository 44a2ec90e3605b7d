"""The table of suites: each test belongs to exactly one, and the arguments of pytest find the right environments."""

import json
import subprocess

import pytest
from tree import ROOT, tracked_paths

PYTHON = ROOT / ".nox" / "bootstrap" / "bin" / "python"  # which has nox
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from dev import suites

runs = suites.chosen(sys.argv[2:])
print(json.dumps([[run.what, [each.called for each in run.beside], run.arguments] for run in runs]))
"""


def runs(*arguments: str) -> list[tuple[str, list[str], list[str]]]:
    """The runs for these arguments of pytest: what each is called, names of environments, its arguments."""
    assert PYTHON.exists(), "start these tests with noxfile.py, which makes .nox/bootstrap"
    command = [str(PYTHON), "-c", PROGRAM, str(ROOT / ".ci"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_file_of_tests_is_run_once() -> None:
    files = [path for path in tracked_paths(ROOT) if path.rpartition("/")[2].startswith("test_") and path[-3:] == ".py"]
    only_named = ("tests/gpus/", "tests/integrations/", "tests/page/", "tests/programs/", "tests/spark/")
    only_named += ("plugins/ray/tests/test_cluster",)
    named = ("kubernetes", "launchers", "mpi", "mxnet", "slurm", "tensorflow", "torch")
    only_named += tuple(f"tests/hosts/test_{name}_" for name in named)
    asked = [argument for _, _, arguments in runs() for argument in arguments]
    times = {file: sum(f"{file}/".startswith(f"{each}/") for each in asked) for file in files}
    assert {file for file, count in times.items() if count != 1} == {
        file for file in files if file.startswith(only_named)
    }
    assert all(times[file] == 0 for file in files if file.startswith(only_named))


def test_a_test_runs_beside_the_framework_in_its_path() -> None:
    beside = {argument: environments for _, environments, arguments in runs() for argument in arguments}
    for file in ("plugins/horovod/tests/test_mxnet.py", "plugins/mxnet/tests/test_engine.py"):
        assert beside[file] == ["MXNet"]
    for file in ("tests/packaging/test_tensorflow_wheel.py", "plugins/tensorflow/tests/test_graphs.py"):
        assert beside[file] == ["TensorFlow 2.21"]
    for file in ("plugins/horovod/tests/test_torch.py", "tests/launch/test_spec.py"):
        assert beside[file] == ["PyTorch"]


def test_the_parts_of_a_long_suite_have_names_of_their_own() -> None:
    names = [(what, *environments) for what, environments, _ in runs()]
    assert len(names) == len({*names}) and ("tests/launch, part 1", "PyTorch") in names


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tests/launch", "-k", "cli"], {"tests/launch -k cli": ["PyTorch"]}),
        (["-k", "cli"], {"-k cli": ["PyTorch"]}),
        (
            ["plugins/mxnet/tests/test_exit.py::test_x", "tests/faults"],
            {"plugins/mxnet/tests/test_exit.py::test_x": ["MXNet"], "tests/faults": ["PyTorch"]},
        ),
        (["tests/gpus", "-x"], {"tests/gpus -x": ["PyTorch"]}),
        (["tests/collectives/parity/"], {"tests/collectives/parity/": ["PyTorch", "MXNet", "TensorFlow 2.21"]}),
        (
            ["tests/packaging", "-x"],
            {
                "tests/packaging/test_mxnet_wheel.py -x": ["MXNet"],
                "tests/packaging/test_tensorflow_wheel.py -x": ["TensorFlow 2.21"],
                "tests/packaging/test_horovod_wheel.py tests/packaging/test_misfits.py "
                "tests/packaging/test_release.py tests/packaging/test_torch_wheel.py -x": ["PyTorch"],
            },
        ),
    ],
)
def test_tests_that_are_named_run_beside_their_frameworks(arguments: list[str], expected: dict) -> None:
    found = runs(*arguments)
    assert {what: beside for what, beside, _ in found} == expected
    assert all(what == " ".join(given) for what, _, given in found)

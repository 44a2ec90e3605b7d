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

runs = suites.chosen(sys.argv[2:]) if sys.argv[2:] else suites.runs_of()
print(json.dumps({what: [[each.called for each in beside], arguments] for what, (beside, arguments) in runs.items()}))
"""


def runs(*arguments: str) -> dict:
    """The runs for these arguments of pytest: what each is called -> names of environments, its arguments."""
    assert PYTHON.exists(), "start these tests with noxfile.py, which makes .nox/bootstrap"
    command = [str(PYTHON), "-c", PROGRAM, str(ROOT / ".ci"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_file_of_tests_belongs_to_one_suite() -> None:
    suites = runs()
    files = [path for path in tracked_paths(ROOT) if path.rpartition("/")[2].startswith("test_") and path[-3:] == ".py"]
    own_session = ("tests/gpus/", "tests/integrations/", "tests/page/", "tests/programs/", "tests/spark/")
    own_session += ("plugins/ray/tests/test_cluster.py",)
    named = ("kubernetes", "launchers", "mpi", "mxnet", "slurm", "tensorflow", "torch")
    own_session += tuple(f"tests/hosts/test_{name}_" for name in named)
    files = [path for path in files if not path.startswith(own_session)]
    of = {path: [suite for suite in suites if f"{path}/".startswith(f"{suite}/")] for path in files}
    assert {path: found for path, found in of.items() if len(found) != 1} == {}
    assert {suite for found in of.values() for suite in found} == {*suites}, "a suite without tests"


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
    assert {what: beside for what, (beside, _) in found.items()} == expected
    assert all(what == " ".join(given) for what, (_, given) in found.items())

import ast
import importlib
import importlib.util
import re
import runpy
import subprocess
import sys

import pytest
from python_rules import (
    CORE,
    LAUNCH,
    PRIVATE_FILES,
    core_import_violations,
    declared_name_violations,
    declared_names,
    import_by_name_violations,
    imports,
    module_of,
    plugin_import_violations,
    private_framework_violations,
    private_name,
    python_environment_violations,
    shadowed_module_violations,
)
from tree import ROOT, Plant, Source, python_sources

LISTED = {module_of(source.path): names for source in python_sources() if (names := declared_names(source)) is not None}


def test_the_core_and_the_launcher_import_nothing_heavy() -> None:
    assert core_import_violations(python_sources()) == []


def test_the_core_imports_by_name_in_few_files_that_it_does_not_import() -> None:
    assert import_by_name_violations(python_sources()) == []


def test_plugins_use_public_names_and_no_other_plugin() -> None:
    assert plugin_import_violations(python_sources()) == []


def test_no_module_replaces_a_name_of_its_package() -> None:
    assert shadowed_module_violations(python_sources()) == []


def test_what_frameworks_do_not_promise_is_used_in_one_module_each() -> None:
    assert private_framework_violations(python_sources()) == []


@pytest.mark.parametrize("source", [each for each in python_sources() if each.path.rpartition("/")[2] in PRIVATE_FILES])
def test_what_is_not_promised_is_listed_with_the_versions_it_was_checked_on(source: Source) -> None:
    table = ast.get_docstring(source.tree()) or ""
    used = {private_name(node) for node in ast.walk(source.tree())} - {""}
    assert [name for name in sorted(used) if name not in table and f"def {name}" not in source.text] == []
    assert f"Checked on {_supported(source.path)}" in table


def _supported(path: str) -> str:
    """The versions for which there are sessions, as the module says them; Keras's follow TensorFlow and the index."""
    pins = runpy.run_path(str(ROOT / ".ci" / "dev" / "pins.py"))
    if "farandole_torch" in path:
        return (
            f"PyTorch {min(pins['TORCH_PYTHONS'], key=_numbers)} to {pins['TORCH'].split('==')[1].removesuffix('.0')};"
        )
    if "farandole_tensorflow" in path:
        versions = sorted(pins["TENSORFLOW_PYTHONS"], key=_numbers)
        return f"TensorFlow {versions[0]} to {versions[-1]};"
    if "farandole_ray" in path:
        return f"Ray {pins['RAY'][0].split('==')[1]};"
    if "farandole_spark" in path:
        return f"PySpark {pins['SPARK_3_5'][0].split('==')[1].removesuffix('.*')} to "
    return f"MXNet {pins['MXNET'][0].split('==')[1]}," if "farandole_mxnet" in path else "Keras "


def _numbers(version: str) -> list[int]:
    return [int(each) for each in version.split(".")]


def test_the_environment_is_read_in_one_python_file_each() -> None:
    assert python_environment_violations(python_sources()) == []


def test_public_names_are_sorted_and_bound() -> None:
    assert declared_name_violations(python_sources()) == []


# Their own tests import their names; Keras takes five seconds to import.
OF_KERAS = ("farandole_spark.keras", "farandole_torch.keras")
# A module of ours -> the package that it extends.
BESIDE = {"farandole_torch.lightning": "lightning", "farandole_ray": "ray", "farandole_ray.horovod": "ray"}
BESIDE |= {f"farandole_spark.ml.{name}": "pyspark" for name in ("keras", "lightning", "params", "torch")}


@pytest.mark.parametrize(
    "module", [name for name in LISTED if name.startswith("farandole") and not name.startswith(OF_KERAS)]
)
def test_public_names_can_be_imported(module: str) -> None:
    """Where the distribution is installed, as it is in the session; the rule above holds without."""
    needed = {module.partition(".")[0]} | {other for part, other in BESIDE.items() if module == part}
    if all(importlib.util.find_spec(each) for each in needed):
        loaded = importlib.import_module(module)
        assert [name for name in LISTED[module] if not hasattr(loaded, name)] == []


def test_the_launcher_does_not_load_the_compiled_module() -> None:
    if importlib.util.find_spec("farandole"):
        code = "import sys, farandole.launch.cli; sys.exit('farandole._core' in sys.modules or 'numpy' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


# ---- The rules can fail ----------------------------------------------------------------------------------------------


def test_paths_become_modules() -> None:
    assert module_of("core/python/farandole/launch/cli.py") == "farandole.launch.cli"
    assert module_of("core/python/farandole/__init__.py") == "farandole"
    assert module_of("plugins/torch/src/farandole_torch/optimizer.py") == "farandole_torch.optimizer"


def test_relative_imports_are_resolved() -> None:
    inside = Source(
        "core/python/farandole/launch/cli.py", "from . import job\nfrom .. import _ops\nfrom ..numpy import f\n"
    )
    package = Source("core/python/farandole/launch/__init__.py", "from .job import Job\n")
    assert [origin for _, origin, _ in imports(inside)] == ["farandole.launch", "farandole", "farandole.numpy"]
    assert [origin for _, origin, _ in imports(package)] == ["farandole.launch.job"]


def test_a_framework_in_the_core_is_found(plant: Plant) -> None:
    files = plant({"core/python/farandole/_api/ops.py": "import os\nimport numpy\ndef f():\n    import torch.nn\n"})
    assert core_import_violations(files) == ["core/python/farandole/_api/ops.py:4: the core may not import torch.nn"]


def test_a_framework_by_name_in_the_core_is_found(plant: Plant) -> None:
    text = "import importlib\nimportlib.import_module('torch')\n__import__('torch')\nfrom farandole import keras\n"
    files = plant(
        {
            "core/python/farandole/_api/ops.py": text,
            "core/python/farandole/keras.py": text[:50],
            "plugins/torch/src/farandole_torch/a.py": "import importlib\nimport farandole.keras as k\n",
        }
    )
    found = [line.split(": ")[0] for line in import_by_name_violations(files)]
    assert found == [*(f"core/python/farandole/_api/ops.py:{line}" for line in (2, 3, 4)),
                     "plugins/torch/src/farandole_torch/a.py:2"]  # fmt: skip


def test_a_launcher_that_knows_the_core_is_found(plant: Plant) -> None:
    text = """
import click
from farandole.launch import job
from farandole import launch, _core
import farandole._api.ops, numpy
"""
    assert len(core_import_violations(plant({"core/python/farandole/launch/cli.py": text}))) == 3


def test_a_core_that_knows_the_launcher_is_found(plant: Plant) -> None:
    files = plant(
        {
            "core/python/farandole/_api/ops.py": "import farandole.launch.cli\n",
            "core/python/farandole/testing/spawn.py": "import farandole.launch.local\n",
        }
    )
    assert len(core_import_violations(files)) == 1


def test_a_plugin_that_reaches_inside_is_found(plant: Plant) -> None:
    text = """
import farandole
from farandole import __version__, rank
from farandole._api import ops
from farandole._runtime.native import core
from farandole.plugin import Adapter
import farandole_mxnet
import farandole.launch.cli
from farandole_torch import _hooks
farandole._core.info()
farandole.plugin._secret
"""
    files = plant({"plugins/torch/src/farandole_torch/a.py": text})
    assert [line.split(":")[1] for line in plugin_import_violations(files)] == ["10", "11", "4", "5", "7", "8"]


def test_a_private_name_of_a_framework_is_found_elsewhere_than_in_the_list(plant: Plant) -> None:
    text = """
import os, sys
import torch._dynamo
from tensorflow.python.eager import context
from farandole_torch._other import _own
def _mine(a): return a._mine() + a._held + sys._getframe(0) + os._exit(1)
torch._C.call(), getattr(torch, "_private"), tensor._version
self._held = self._farandole = 1
self._params
"""
    files = plant({f"plugins/torch/src/farandole_torch/{name}.py": text for name in ("a", "_private")})
    files += plant({"core/python/farandole/_keras/a.py": "hasattr(v, '_value')\n"})
    found = [line.split(": ")[0] for line in private_framework_violations(files)]
    lines = sorted(line.rpartition(":")[2] for line in found if "torch" in line)
    assert lines == ["3", "4", "7", "7", "7", "9"]
    assert "core/python/farandole/_keras/a.py:1" in found


def test_a_second_reader_of_the_environment_is_found(plant: Plant) -> None:
    files = plant(
        {
            "core/python/farandole/_start/environment.py": "import os\nos.environ\n",
            "core/python/farandole/_api/ops.py": "import os\nos.environ['A']\nos.getenv('B')\nos.getpid()\n",
            "core/python/farandole/launch/cli.py": "from os import environ\n",
            "plugins/torch/src/farandole_torch/a.py": "from os import getenv\n",
            "core/tests/python/test_a.py": "import os\nos.environ\n",
        }
    )
    assert len(python_environment_violations(files)) == 4


def test_unsorted_missing_and_absent_names_are_found(plant: Plant) -> None:
    files = plant(
        {
            "core/python/farandole/__init__.py": "a = b = 1\n__all__ = ['b', 'a']\n",
            "core/python/farandole/plugin.py": "def f():\n    inner = 1\n__all__ = ['f', 'inner']\n",
            "plugins/torch/src/farandole_torch/__init__.py": "x = 1\n",
            "plugins/torch/src/farandole_torch/lazy.py": "def __getattr__(name): ...\n__all__ = ['later']\n",
        }
    )
    assert [line.split(":")[0] for line in declared_name_violations(files)] == [
        "core/python/farandole/__init__.py",
        "core/python/farandole/plugin.py",
        "plugins/torch/src/farandole_torch/__init__.py",
    ]


def test_a_module_that_replaces_a_name_is_found(plant: Plant) -> None:
    text = "from farandole.launch import messages\nfrom farandole.launch.job import run\n"
    files = plant(
        {
            "core/python/farandole/launch/__init__.py": text,
            "core/python/farandole/launch/messages.py": "",
            "core/python/farandole/launch/run.py": "",
        }
    )
    assert [each.rpartition(": ")[2] for each in shadowed_module_violations(files)] == ["run is also a module of it"]


def test_programs_read_events_and_not_sentences() -> None:
    """Outside of the launcher nothing looks for words in text that the launcher prints."""
    looks = r"(re\.\w+|startswith|removeprefix|partition|split|\bin)\b[^\n]*[\"'](farandole: |rank \(?\\?d|its last)"
    inside = (CORE, "plugins/")
    files = [each for each in python_sources() if each.path.startswith(inside) and "/tests/" not in each.path]
    assert [each.path for each in files if not each.path.startswith(LAUNCH) and re.search(looks, each.text)] == []
    assert re.search(looks, 'x = re.compile(r"farandole: rank (\\d+) on ")')
    assert re.search(looks, 'x.startswith("farandole: ")')


def test_a_rank_on_another_host_is_few_modules_away_from_the_command() -> None:
    page = (ROOT / "docs/design/launcher.md").read_text()
    table = page.partition("runs through these modules")[2].partition("\nThe decisions are")[0]
    modules = set(re.findall(r"`([a-z_/]+)`", table))
    assert 8 < len(modules) <= 12, modules
    assert [each for each in modules if not (ROOT / f"core/python/farandole/launch/{each}.py").is_file()] == []


def test_classes_of_the_launcher_inherit_once() -> None:
    bases: dict[str, list[str]] = {}
    for source in python_sources():
        if source.path.startswith(LAUNCH):
            for node in ast.walk(source.tree()):
                if isinstance(node, ast.ClassDef):
                    bases[node.name] = [ast.unparse(each) for each in node.bases]
    deep = [name for name, of in bases.items() if any(set(bases.get(each, ())) & bases.keys() for each in of)]
    assert deep == []

"""horovod.ray without Ray: one sentence, and the names and arguments of 0.28.1. With Ray: plugins/ray/tests."""

import ast
import importlib
import sys
from pathlib import Path

import farandole_ray
import pytest

# Of 0.28.1, by their signatures.
EXECUTOR = """self settings num_workers num_hosts num_workers_per_host cpus_per_worker use_gpu gpus_per_worker
use_current_placement_group min_workers max_workers reset_limit cooldown_range elastic_timeout
override_discovery""".split()
ELASTIC = "self settings use_gpu cpus_per_slot gpus_per_slot env_vars override_discovery".split()
START = "self executable_cls executable_args executable_kwargs extra_env_vars".split()
METHODS = {"start", "run", "run_remote", "execute", "execute_single", "shutdown", "create_settings"}


def test_without_ray_it_says_what_to_install(monkeypatch):
    for name in [each for each in sys.modules if each.startswith(("farandole_ray.", "horovod.ray"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ImportError, match=r"^horovod\.ray needs ray: python -m pip install 'farandole-horovod\[ray\]'$"
    ):
        importlib.import_module("horovod.ray")


def methods(file, kind):
    """The methods of a class by their sources, since Ray is not here: the names of their parameters."""
    tree = ast.parse((Path(farandole_ray.__file__).parent / file).read_text())
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind)
    functions = (node for node in found.body if isinstance(node, ast.FunctionDef))
    return {each.name: [argument.arg for argument in each.args.args] for each in functions}


def test_it_has_horovods_names_and_arguments():
    executor, elastic = methods("_executor.py", "RayExecutor"), methods("horovod.py", "ElasticRayExecutor")
    assert executor["__init__"] == EXECUTOR and executor["start"] == START and executor.keys() >= METHODS
    assert elastic["__init__"] == ELASTIC and elastic["run"] == ["self", "worker_fn", "callbacks"]
    discovery = methods("horovod.py", "RayHostDiscovery")
    assert discovery["__init__"] == ["self", "use_gpu", "cpus_per_slot", "gpus_per_slot"]
    assert discovery["find_available_hosts_and_slots"] == ["self"]
    assert {"min_num_proc", "max_num_proc", "reset_limit", "elastic_timeout", "timeout_s"} <= {
        *elastic["create_settings"]
    }

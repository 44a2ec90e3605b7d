"""horovod.ray without Ray: one sentence, and the names and arguments of 0.28.1. With Ray: plugins/ray/tests."""

import ast
import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import farandole_ray
import pytest
from farandole_ray._discovery import RayHostDiscovery, TestDiscovery

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
    discovery = methods("_discovery.py", "RayHostDiscovery")
    assert discovery["__init__"] == ["self", "use_gpu", "cpus_per_slot", "gpus_per_slot"]
    assert discovery["find_available_hosts_and_slots"] == ["self"]
    assert {"min_num_proc", "max_num_proc", "reset_limit", "elastic_timeout", "timeout_s"} <= {
        *elastic["create_settings"]
    }


def test_nodes_that_come_and_go_by_chance(monkeypatch, capsys):
    nodes = [{"Alive": True, "NodeManagerAddress": f"10.0.0.{n}", "Resources": {"CPU": 2.0}} for n in range(4)]
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(nodes=lambda: nodes))
    assert RayHostDiscovery().find_available_hosts_and_slots() == {f"10.0.0.{n}": 2 for n in range(4)}
    discovery = TestDiscovery(min_hosts=2, max_hosts=3, change_frequency_s=0)
    counts = [len(discovery.find_available_hosts_and_slots()) for _ in range(100)]
    assert counts[0] == 4 and set(counts[3:]) == {2, 3}
    assert "is hidden" in capsys.readouterr().out
    still = TestDiscovery(1, 4, change_frequency_s=1e9, verbose=False)
    still.find_available_hosts_and_slots()
    hosts = still.find_available_hosts_and_slots()
    still.remove_host(hosts)
    assert len(still.find_available_hosts_and_slots()) == 3
    still.add_host(hosts)
    assert still.find_available_hosts_and_slots() == hosts
    assert capsys.readouterr().out == ""

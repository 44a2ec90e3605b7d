"""The manifests of docs/guide/kubernetes.md are valid, and fit `farandole run`. No cluster has seen them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml
from farandole.launch.cli import run
from kubeflow_trainer_api import models

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "kubernetes.md"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
MANIFESTS: dict[str, Any] = {each["kind"]: each for text in BLOCKS for each in yaml.safe_load_all(text)}
MODELS: dict[str, Any] = {
    "ClusterTrainingRuntime": models.TrainerV1alpha1ClusterTrainingRuntime,
    "JobSet": models.JobsetV1alpha2JobSet,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """The keys and values of `given` that a model did not keep, since it does not know them."""
    if isinstance(given, dict):
        inner = kept if isinstance(kept, dict) else {}
        return [each for key, value in given.items() for each in lost(value, inner.get(key), f"{path}.{key}")]
    if isinstance(given, list):
        inner = kept if isinstance(kept, list) and len(kept) == len(given) else [None] * len(given)
        return [each for value, other in zip(given, inner, strict=True) for each in lost(value, other, f"{path}[]")]
    return [] if given == kept else [path]


def test_the_page_has_a_manifest_for_each_operator() -> None:
    assert sorted(MANIFESTS) == ["ClusterTrainingRuntime", "JobSet", "MPIJob", "TrainJob"]


@pytest.mark.parametrize("kind", MODELS)
def test_a_manifest_fits_its_model(kind: str) -> None:
    made = MODELS[kind].from_dict(MANIFESTS[kind])
    assert made is not None and lost(MANIFESTS[kind], made.to_dict()) == []


@pytest.mark.parametrize("kind", MODELS)
def test_a_key_that_a_model_does_not_know_is_found(kind: str) -> None:
    wrong = {**MANIFESTS[kind], "spec": {**MANIFESTS[kind]["spec"], "nodes": 2}}
    assert lost(wrong, MODELS[kind].from_dict(wrong).to_dict()) == [".spec.nodes"]


def templates(found: Any) -> list[dict[str, Any]]:
    """The pod templates inside an object: the specs that have containers."""
    if isinstance(found, list):
        return [each for inner in found for each in templates(inner)]
    if not isinstance(found, dict):
        return []
    return [found] if "containers" in found else [each for inner in found.values() for each in templates(inner)]


@pytest.mark.parametrize(("kind", "count"), [("JobSet", 1), ("MPIJob", 2), ("ClusterTrainingRuntime", 1)])
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_the_pods_of_a_manifest_are_valid(kind: str, count: int, version: str) -> None:
    found = templates(MANIFESTS[kind])
    assert len(found) == count
    for spec in found:
        containers = [{"image": "of-the-TrainJob", **each} for each in spec["containers"]]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {**spec, "containers": containers}}
        kubernetes_validate.validate(pod, version, strict=True)


def commands() -> list[list[str]]:
    specs = [spec for each in MANIFESTS.values() for spec in templates(each)]
    words = [container.get("command") for spec in specs for container in spec["containers"]]
    words.append(MANIFESTS["TrainJob"]["spec"]["trainer"]["command"])
    return [each for each in words if each and each[0] == "farandole"]


@pytest.mark.parametrize("command", commands())
def test_a_command_is_one_of_farandole_run(command: list[str]) -> None:
    assert len(commands()) == 3 and command[1] == "run"
    context = run.make_context("run", command[2:], resilient_parsing=False)
    assert isinstance(context, click.Context) and context.params["command"] == ("python", "train.py")


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_the_number_of_nodes_and_the_name_of_node_0_are_those_of_the_pods(kind: str) -> None:
    manifest = MANIFESTS[kind]
    jobs = MANIFESTS["JobSet" if kind == "JobSet" else "ClusterTrainingRuntime"]
    replicated = (jobs["spec"] if kind == "JobSet" else jobs["spec"]["template"]["spec"])["replicatedJobs"][0]
    trainer = manifest["spec"].get("trainer")
    count = trainer["numNodes"] if trainer else replicated["template"]["spec"]["completions"]
    command = trainer["command"] if trainer else templates(manifest)[0]["containers"][0]["command"]
    given = dict(zip(command[2:-4:2], command[3:-4:2], strict=False))
    name = manifest["metadata"]["name"]
    assert given["--nnodes"] == str(count)
    assert given["--rendezvous"] == f"{name}-{replicated['name']}-0-0.{name}:29500"

"""The manifests of docs/guide/kubernetes.md fit `farandole run` and each other. No cluster has seen them."""

from __future__ import annotations

import click
import pytest
from farandole.launch.cli import run
from manifests import GUIDE, templates


def test_the_page_has_a_manifest_for_each_operator() -> None:
    assert sorted(GUIDE) == ["ClusterTrainingRuntime", "JobSet", "MPIJob", "TrainJob"]


def commands() -> list[list[str]]:
    specs = [spec for each in GUIDE.values() for spec in templates(each)]
    words = [container.get("command") for spec in specs for container in spec["containers"]]
    words.append(GUIDE["TrainJob"]["spec"]["trainer"]["command"])
    return [each for each in words if each and each[0] == "farandole"]


@pytest.mark.parametrize("command", commands())
def test_a_command_is_one_of_farandole_run(command: list[str]) -> None:
    assert len(commands()) == 3 and command[1] == "run"
    context = run.make_context("run", command[2:], resilient_parsing=False)
    assert isinstance(context, click.Context) and context.params["command"] == ("python", "train.py")


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_the_number_of_nodes_and_the_name_of_node_0_are_those_of_the_pods(kind: str) -> None:
    manifest = GUIDE[kind]
    jobs = GUIDE["JobSet" if kind == "JobSet" else "ClusterTrainingRuntime"]
    replicated = (jobs["spec"] if kind == "JobSet" else jobs["spec"]["template"]["spec"])["replicatedJobs"][0]
    trainer = manifest["spec"].get("trainer")
    count = trainer["numNodes"] if trainer else replicated["template"]["spec"]["completions"]
    command = trainer["command"] if trainer else templates(manifest)[0]["containers"][0]["command"]
    given = dict(zip(command[2:-4:2], command[3:-4:2], strict=False))
    name = manifest["metadata"]["name"]
    assert given["--nnodes"] == str(count)
    assert given["--rendezvous"] == f"{name}-{replicated['name']}-0-0.{name}:29500"

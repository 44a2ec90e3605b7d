"""Manifests fit the schemas of many versions of Kubernetes, and the models of operators. No cluster.

The schemas are large, so they are fetched only if this file is named. tests/launch/test_k8s.py holds the fields to
those that were validated here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from farandole.launch import kubernetes
from manifests import FULL, GUIDE, job, templates

REASON = "`python3 noxfile.py -s python -- tests/hosts/test_kubernetes_schemas.py` installs the schemas"
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=REASON)
models = pytest.importorskip("kubeflow_trainer_api.models", reason=REASON)

VERSIONS = ("1.26", "1.30", "1.34", "1.37")  # 1.26 has podFailurePolicy by default
KEY = bytes(range(32))
MODELS: dict[str, Any] = {
    "ClusterTrainingRuntime": models.TrainerV1alpha1ClusterTrainingRuntime,
    "JobSet": models.JobsetV1alpha2JobSet,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}


def mistakes(documents: Any, version: str) -> Iterator[str]:
    for each in documents:
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{each['kind']}: {'.'.join(map(str, error.path))}: {error.message}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "given",
    [{}, FULL, {**FULL, "secret": "some.key"}, {"shm": "0", "hosts": 1}],
    ids=["least", "full", "secret", "without shm"],
)
def test_manifests_are_valid(given: dict[str, Any], version: str) -> None:
    text = kubernetes.as_yaml(kubernetes.documents(job(**given), KEY))
    assert list(mistakes(yaml.safe_load_all(text), version)) == []


def test_the_validation_finds_mistakes() -> None:
    made = kubernetes.documents(job(), KEY)
    made[2]["spec"]["completion"] = 2
    del made[2]["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"]
    assert [each.split(":")[0] for each in mistakes(made, "1.34")] == ["Job"]


def lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """The keys and values of `given` that a model did not keep, since it does not know them."""
    if isinstance(given, dict):
        inner = kept if isinstance(kept, dict) else {}
        return [each for key, value in given.items() for each in lost(value, inner.get(key), f"{path}.{key}")]
    if isinstance(given, list):
        inner = kept if isinstance(kept, list) and len(kept) == len(given) else [None] * len(given)
        return [each for value, other in zip(given, inner, strict=True) for each in lost(value, other, f"{path}[]")]
    return [] if given == kept else [path]


@pytest.mark.parametrize("kind", MODELS)
def test_a_manifest_of_the_guide_fits_its_model(kind: str) -> None:
    made = MODELS[kind].from_dict(GUIDE[kind])
    assert made is not None and lost(GUIDE[kind], made.to_dict()) == []


@pytest.mark.parametrize("kind", MODELS)
def test_a_key_that_a_model_does_not_know_is_found(kind: str) -> None:
    wrong = {**GUIDE[kind], "spec": {**GUIDE[kind]["spec"], "nodes": 2}}
    assert lost(wrong, MODELS[kind].from_dict(wrong).to_dict()) == [".spec.nodes"]


@pytest.mark.parametrize(("kind", "count"), [("JobSet", 1), ("MPIJob", 2), ("ClusterTrainingRuntime", 1)])
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_the_pods_of_a_manifest_of_the_guide_are_valid(kind: str, count: int, version: str) -> None:
    found = templates(GUIDE[kind])
    assert len(found) == count
    for spec in found:
        containers = [{"image": "of-the-TrainJob", **each} for each in spec["containers"]]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {**spec, "containers": containers}}
        assert list(mistakes([pod], version)) == []

"""Manifests of Kubernetes: the jobs of `farandole k8s` that tests print, and those of docs/guide/kubernetes.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from farandole.launch.kubernetes import PodJob

_PAGE = Path(__file__).parents[2] / "docs" / "guide" / "kubernetes.md"
_BLOCKS = re.findall(r"^```yaml\n(.*?)^```", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
GUIDE: dict[str, Any] = {each["kind"]: each for text in _BLOCKS for each in yaml.safe_load_all(text)}
FULL: dict[str, Any] = {
    "namespace": "team",
    "gpus": 8,
    "cpus": "4",
    "memory": "8.5Gi",
    "shm": "4Gi",
    "env": {"A": "$(B) c"},
}


def job(**given: Any) -> PodJob:
    """Two pods of four ranks, but for what is given."""
    usual = {"name": "train", "image": "registry.example.com/team/train:1", "hosts": 2, "slots": 4}
    return PodJob(**{**usual, "command": ("python", "train.py"), **given})


def templates(found: Any) -> list[dict[str, Any]]:
    """The pod templates inside an object: the specs that have containers."""
    if isinstance(found, list):
        return [each for inner in found for each in templates(inner)]
    if not isinstance(found, dict):
        return []
    return [found] if "containers" in found else [each for inner in found.values() for each in templates(inner)]

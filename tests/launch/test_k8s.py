"""`farandole k8s`: what it prints is valid for many versions of Kubernetes, and means what was asked. No cluster."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml
from farandole.launch import kubernetes
from farandole.launch.kubernetes import PodJob
from farandole.launch.options import OptionError

VERSIONS = ("1.26", "1.30", "1.34", "1.37")  # 1.26 has podFailurePolicy by default
KEY = bytes(range(32))
FULL: dict[str, Any] = {
    "namespace": "team",
    "gpus": 8,
    "cpus": "4",
    "memory": "8.5Gi",
    "shm": "4Gi",
    "secret": "some.key",
    "env": {"A": "$(B) c"},
}


def job(**given: Any) -> PodJob:
    usual = {"name": "train", "image": "registry.example.com/team/train:1", "hosts": 2, "slots": 4}
    return PodJob(**{**usual, "command": ("python", "train.py"), **given})


def mistakes(documents: Any, version: str) -> Iterator[str]:
    for each in documents:
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{each['kind']}: {'.'.join(map(str, error.path))}: {error.message}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("given", [{}, FULL, {"shm": "0", "hosts": 1}], ids=["least", "full", "without shm"])
def test_manifests_are_valid(given: dict[str, Any], version: str) -> None:
    text = kubernetes.as_yaml(kubernetes.documents(job(**given), KEY))
    assert list(mistakes(yaml.safe_load_all(text), version)) == []


def test_the_validation_finds_mistakes() -> None:
    made = kubernetes.documents(job(), KEY)
    made[2]["spec"]["completion"] = 2
    del made[2]["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"]
    assert [each.split(":")[0] for each in mistakes(made, "1.34")] == ["Job"]


def test_the_objects_belong_together() -> None:
    secret, service, made = kubernetes.documents(job(namespace="team"), KEY)
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert base64.b64decode(secret["data"]["key"]) == KEY
    assert {each["metadata"]["namespace"] for each in (secret, service, made)} == {"team"}
    assert service["spec"]["selector"] == {"job-name": made["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["key"]["secret"]["secretName"] == secret["metadata"]["name"]
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    (item,) = volumes["key"]["secret"]["items"]
    command = container["command"]
    assert f"{mounted['key']}/{item['path']}" == command[command.index("--key-file") + 1]
    assert command[command.index("--rendezvous") + 1] == f"train-0.{pod['subdomain']}:29500"
    assert made["spec"]["completions"] == made["spec"]["parallelism"] == int(command[command.index("--nnodes") + 1])
    assert base64.b64encode(KEY).decode() not in str(made) and "env" not in container


def test_a_secret_that_exists_is_not_printed() -> None:
    made = kubernetes.documents(job(secret="mine"), KEY)
    assert [each["kind"] for each in made] == ["Service", "Job"]
    assert made[1]["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"] == "mine"


def test_words_of_the_user_are_not_expanded() -> None:
    command = job(command=("sh", "-c", "echo $HOME $(date) $$")).container_command
    assert re.sub(r"\$\$", "$", command[-1]) == "echo $HOME $(date) $$"
    assert not re.search(r"(?<!\$)(\$\$)*\$\(", command[-1])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "Train"}, "--name must be at most 61 small letters, digits and inner hyphens"),
        ({"name": "1train"}, "a letter first, not '1train'"),
        ({"name": "a" * 62}, "--name must be at most 61"),
        ({"name": "a" * 61, "hosts": 11}, "--name must be at most 60"),
        ({"namespace": "a.b"}, "--namespace must be small letters"),
        ({"secret": "A"}, "--secret must be the name of a Secret"),
        ({"image": "a b"}, "--image must be the name of a container's image"),
        ({"hosts": 1025, "slots": 64}, "--hosts 1025 with 64 ranks each are 65600 ranks, above 65536"),
        ({"memory": "8GB"}, "--memory must be a quantity of Kubernetes"),
        ({"cpus": "-1"}, "--cpus must be a quantity of Kubernetes"),
        ({"shm": ""}, "--shm must be a quantity of Kubernetes"),
    ],
)
def test_values_that_kubernetes_would_refuse_are_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as found:
        job(**given)
    assert words in str(found.value)


def test_the_command_prints_a_manifest_with_a_new_key_and_warns_of_it(run: Callable) -> None:
    results = [
        run("--image", "i:1", "--hosts", 2, "--gpus", 3, "-x", "A=1", "--", "python", "train.py", "--x", verb="k8s")
        for _ in range(2)
    ]
    keys = set()
    for each in results:
        assert each.code == 0 and "the job's key, in the Secret train-key" in each.err and each.err.count("\n") == 1
        secret, _, made = yaml.safe_load_all(each.out)
        keys.add(base64.b64decode(secret["data"]["key"]))
        (container,) = made["spec"]["template"]["spec"]["containers"]
        command = container["command"]
        assert command[command.index("--nproc-per-node") + 1] == "3"
        assert command[command.index("--") :] == ["--", "python", "train.py", "--x"]
        assert container["env"] == [{"name": "A", "value": "1"}]
    assert [len(key) for key in keys] == [32, 32], "a new one each time"


def test_a_preview_holds_no_key(run: Callable) -> None:
    result = run("--image", "i:1", "--hosts", 2, "--dry-run", "--", "train", verb="k8s")
    assert (result.code, result.err) == (0, "")
    assert "1     train-1  0" in result.out and "each pod runs: farandole run --nnodes 2" in result.out
    assert "Secret" not in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--image", "i"], "Missing option '--hosts'"),
        (["--image", "i", "--hosts", "2"], "say what to run: farandole k8s"),
        (["--image", "i", "--hosts", "2", "-x", "FARANDOLE_RANK=1", "t"], "-x FARANDOLE_RANK: the launcher sets it"),
    ],
)
def test_a_wrong_line_is_one_sentence(run: Callable, arguments: list[str], words: str) -> None:
    result = run(*arguments, verb="k8s")
    assert (result.code, result.out) == (2, "") and words in result.err and result.err.count("\n") == 1

"""`farandole k8s`: its manifest means what was asked. No cluster."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from farandole.launch import kubernetes
from farandole.launch.spec import SpecError
from manifests import FULL, job

KEY = bytes(range(32))
# The hosts' session has validated these fields: run tests/hosts/test_kubernetes_schemas.py after a change.
FIELDS = """
Job: apiVersion kind metadata.{name,namespace} spec.{backoffLimit,completionMode,completions,parallelism}
Job: spec.podFailurePolicy.rules.{action,onPodConditions.status,onPodConditions.type}
Job: spec.template.spec.containers.{command,env.name,env.value,image,name}
Job: spec.template.spec.containers.resources.limits.{cpu,memory,nvidia.com/gpu}
Job: spec.template.spec.containers.volumeMounts.{mountPath,name,readOnly}
Job: spec.template.spec.{restartPolicy,subdomain}
Job: spec.template.spec.volumes.emptyDir.{medium,sizeLimit}
Job: spec.template.spec.volumes.{name,secret.defaultMode,secret.items.key,secret.items.path,secret.secretName}
Secret: apiVersion data.key immutable kind metadata.{name,namespace} type
Service: apiVersion kind metadata.{name,namespace} spec.{clusterIP,publishNotReadyAddresses,selector.job-name}
"""


def fields(found: Any, path: str = "") -> set[str]:
    """The paths of all values inside an object."""
    if isinstance(found, dict):
        return {each for key, value in found.items() for each in fields(value, f"{path}.{key}")}
    if isinstance(found, list) and found and isinstance(found[0], dict):
        return {each for value in found for each in fields(value, path)}
    return {path[1:]}


def known_fields(kind: str) -> set[str]:
    known = set()
    for line in FIELDS.strip().splitlines():
        of, _, words = line.partition(": ")
        for word in words.split() if of == kind else []:
            before, brace, inner = word.partition("{")
            known |= {before + each for each in inner.rstrip("}").split(",")} if brace else {word}
    return known


def test_the_fields_are_those_that_were_validated() -> None:
    made = list(yaml.safe_load_all(kubernetes.as_yaml(kubernetes.documents(job(**FULL), KEY))))
    assert {each["kind"]: fields(each) for each in made} == {each["kind"]: known_fields(each["kind"]) for each in made}


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
    with pytest.raises(SpecError) as found:
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
        (["--image", "i"], "Missing option '--hosts'; farandole k8s --help lists all."),
        (["--image", "i", "--hosts", "two", "t"], "'two' is not a valid whole number"),
        (["--image", "i", "--hosts", "2", "-np", "4", "t"], "No such option '-n'; farandole k8s --help lists all."),
        (["--image", "i", "--hosts", "2"], "say what to run: farandole k8s"),
        (["--image", "i", "--hosts", "2", "-x", "FARANDOLE_RANK=1", "t"], "-x FARANDOLE_RANK: the launcher sets it"),
    ],
)
def test_a_wrong_line_is_one_sentence(run: Callable, arguments: list[str], words: str) -> None:
    result = run(*arguments, verb="k8s")
    assert (result.code, result.out) == (2, "") and words in result.err and result.err.count("\n") == 1

"""Pods of `farandole k8s` on the hosts of a lab: the manifest's command, key, names and folders, without a cluster.

A host stands in for each pod: it has an address, a name, /run and /dev/shm of its own, as a pod has. The kubelet's part
is done here: JOB_COMPLETION_INDEX, $(NAME) in words, the Secret as a file, the Service's names.
"""

from __future__ import annotations

import base64
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from host_jobs import PLACES, Job, await_nothing
from lab import Host, Lab

LONG = bool(os.environ.get("FARANDOLE_LONG"))
pytestmark = pytest.mark.timeout(300)

# Rank 3 ends at step 20 if it is told to; "ready" tells that the others have begun.
STEPS = """
import sys, time, numpy as np, farandole.numpy as hvd
hvd.init()
for step in range(100_000):
    hvd.allreduce(np.ones(4), name="step")
    if step == 20:
        print("ready", flush=True)
        if sys.argv[1:] == ["fail"] and hvd.rank() == 3:
            raise SystemExit(7)
    time.sleep(0.002)
"""


class Pods:
    """The pods of one manifest, on as many hosts."""

    def __init__(self, lab: Lab, folder: Path, count: int = 2) -> None:
        self.hosts = lab.hosts(count)
        self._names, self._folder, self._jobs = lab.files.folder / "hosts", folder, []
        (folder / "bin").mkdir()
        for name, start in (("farandole", "-m farandole.launch"), ("python", "")):
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} {start} "$@"\n')
            (folder / "bin" / name).chmod(0o700)

    def print_manifest(self, *words: str, **options: object) -> None:
        """Of `farandole k8s`, which runs on the first host."""
        given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        command = [sys.executable, "-m", "farandole.launch", "k8s", "--image", "i:1", "--hosts", str(len(self.hosts))]
        done = self.hosts[0].run([*command, "--slots", "2", *given, "--", "python", *words])
        assert done.returncode == 0, done.stderr
        self.secret, self.service, self.job = yaml.safe_load_all(done.stdout)

    def publish(self, ipv6: bool = False) -> None:
        """The names of the Service become known, as <pod>.<service>."""
        name, service = self.job["metadata"]["name"], self.job["spec"]["template"]["spec"]["subdomain"]
        assert service == self.service["metadata"]["name"]
        with self._names.open("a") as names:
            for pod, host in enumerate(self.hosts):
                names.write(f"{host.address6 if ipv6 else host.address} {name}-{pod}.{service}\n")

    def start(self, pod: int, index: int | None = None, key: str = "") -> Job:
        """The container of a pod. `key`: of another Secret, in base64."""
        template, host = self.job["spec"]["template"]["spec"], self.hosts[pod]
        (container,) = template["containers"]
        self._mount(host, template, container, key or self.secret["data"]["key"])
        variables = {"JOB_COMPLETION_INDEX": str(pod if index is None else index)}
        variables |= {each["name"]: expand(each["value"], variables) for each in container.get("env", [])}
        variables["PATH"] = f"{self._folder / 'bin'}:{os.environ['PATH']}"
        words = [expand(word, variables) for word in container["command"]]
        command = ["env", *(f"{name}={value}" for name, value in variables.items()), *words]
        self._jobs.append(Job(host.start(command, cwd=self._folder, stdin=-3, stdout=-1, stderr=-1, text=True)))
        return self._jobs[-1]

    def _mount(self, host: Host, template: dict[str, Any], container: dict[str, Any], key: str) -> None:
        at = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        (volume,) = [each for each in template["volumes"] if "secret" in each]
        assert volume["secret"]["secretName"] == self.secret["metadata"]["name"]
        for item in volume["secret"]["items"]:
            path = f"{at[volume['name']]}/{item['path']}"
            host.run(["mkdir", "-p", os.path.dirname(path)])
            host.run(["python3", "-c", f"open({path!r}, 'wb').write(bytes.fromhex('{base64.b64decode(key).hex()}'))"])
            host.run(["chmod", oct(volume["secret"]["defaultMode"])[2:], path])

    def close(self) -> None:
        for job in self._jobs:
            if job.process.poll() is None:
                job.process.kill()
                job.process.communicate()


def expand(text: str, variables: dict[str, str]) -> str:
    """As the kubelet does: $(NAME) of a known variable, $$ for $."""
    return re.sub(
        r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)",
        lambda found: "$" if found[0] == "$$" else variables.get(found[1], found[0]),
        text,
    )


@pytest.fixture
def pods(lab: Lab, tmp_path: Path) -> Iterator[Callable[..., Pods]]:
    """pods(PLACES, ...) are those of a manifest whose command is this script."""
    made: list[Pods] = []

    def make(script: str, *words: str, count: int = 2, **options: object) -> Pods:
        (tmp_path / "train.py").write_text(script)
        made.append(Pods(lab, tmp_path, count))
        made[-1].print_manifest("train.py", *words, **options)
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("count", [2, 4] if LONG else [2])
def test_pods_are_one_job_whose_names_come_late(pods: Callable[..., Pods], count: int) -> None:
    made = pods(PLACES, count=count)
    jobs = [made.start(pod) for pod in reversed(range(count))]
    time.sleep(1)  # their first look at the name finds nothing
    made.publish()
    results = [job.finish() for job in reversed(jobs)]
    for pod, (code, out, err) in enumerate(results):
        assert (code, err) == (0, "")
        assert sorted(out.splitlines()) == [
            f"[{rank} h{pod}] {rank} {2 * count} {rank % 2} {pod} h{pod} {made.hosts[0].address}"
            for rank in (2 * pod, 2 * pod + 1)
        ]
    await_nothing(made.hosts)


def test_pods_with_ipv6_alone_meet(pods: Callable[..., Pods]) -> None:
    made = pods(PLACES)
    made.publish(ipv6=True)
    results = [job.finish() for job in [made.start(pod) for pod in range(2)]]
    assert [(code, err) for code, _, err in results] == [(0, "")] * 2
    assert all(out.count(f" {made.hosts[0].address6}\n") == 2 for _, out, _ in results)


def test_a_failing_rank_ends_all_pods_quickly_with_its_code(pods: Callable[..., Pods]) -> None:
    made = pods(STEPS, "fail")
    made.publish()
    jobs = [made.start(pod) for pod in range(2)]
    for job in jobs:
        job.await_lines(2, "ready")
    began = time.monotonic()
    (zero, _, err0), (one, _, err1) = (job.finish() for job in jobs)
    assert time.monotonic() - began < 10
    assert (zero, one) == (7, 7)
    assert "rank 3 on h1" in err0 and "its lines are in the output of node 1." in err0
    assert "rank 3 on h1" in err1 and "failed first: exit code 7" in err1
    await_nothing(made.hosts)


def test_a_rank_that_ends_before_init_ends_all_pods(pods: Callable[..., Pods]) -> None:
    """Ranks of other pods that wait in init() hear of it."""
    made = pods("import os\nif os.environ['RANK'] == '3': raise SystemExit(5)\n" + PLACES)
    made.publish()
    began = time.monotonic()
    jobs = [made.start(pod) for pod in range(2)]
    results = [job.finish() for job in jobs]
    assert [code for code, _, _ in results] == [5, 5]
    assert all("rank 3 on h1" in err for _, _, err in results)
    assert time.monotonic() - began < 20


def test_a_missing_pod_is_named_by_its_number(pods: Callable[..., Pods]) -> None:
    made = pods(PLACES, count=3, start_timeout=6)
    made.publish()
    jobs = [made.start(0), made.start(2)]
    for code, out, err in (job.finish() for job in jobs):
        assert (code, out) == (2, "")
        assert "node 1 of 3 did not connect to train-0.train:29500 within 6 s" in err and err.count("\n") == 1


def test_pods_without_pod_0_say_so(pods: Callable[..., Pods]) -> None:
    made = pods(PLACES, start_timeout=3)
    code, _, err = made.start(1).finish()
    assert code == 2 and "node 1 did not reach node 0 at train-0.train:29500 within 3 s" in err
    assert "train-0.train is no name that this host knows" in err
    code, _, err = made.start(0).finish()
    assert code == 2 and "node 0 cannot listen at train-0.train:29500: train-0.train is unknown" in err
    made.publish()
    code, _, err = made.start(1).finish()
    assert code == 2 and f"{made.hosts[0].address}: Connection refused" in err
    code, _, err = made.start(1, index=0).finish()
    assert code == 2 and f"train-0.train is {made.hosts[0].address} here, no address of this host" in err


def test_another_key_is_one_sentence_on_each_pod(pods: Callable[..., Pods]) -> None:
    made = pods(PLACES, start_timeout=6)
    made.publish()
    jobs = [made.start(0), made.start(1, key=base64.b64encode(b"x" * 32).decode())]
    (zero, _, err0), (one, _, err1) = (job.finish() for job in jobs)
    assert (zero, one) == (2, 2)
    assert "have different keys: --key-file must hold the same one on all nodes." in err1
    assert f"a launcher at {made.hosts[1].address} has another key" in err0


# Says what it hears from pod 0, to which it sends its argument, and when the connection ends.
STRANGER = """
import socket, sys, time
until = time.monotonic() + 30
while True:
    try:
        connection = socket.create_connection(("10.77.0.10", 29500), 30)
        break
    except OSError:
        assert time.monotonic() < until
        time.sleep(0.05)
began, heard = time.monotonic(), b""
connection.sendall(sys.argv[1].encode())
try:
    while piece := connection.recv(1000):
        heard += piece
except ConnectionResetError:
    pass
print(len(heard), time.monotonic() - began)
"""


def test_strangers_hear_a_hello_and_are_dismissed(pods: Callable[..., Pods]) -> None:
    made = pods(PLACES)
    made.publish()
    jobs = [made.start(0)]
    for said, limit_s in (("", 10), ("x" * 48, 3), ("GET / HTTP/1.1\r\n\r\n", 10)):
        done = made.hosts[1].run([sys.executable, "-c", STRANGER, said], timeout=60)
        heard, seconds = done.stdout.split()
        assert heard == "34" and float(seconds) < limit_s, done
    jobs.append(made.start(1))
    assert [job.finish()[0] for job in jobs] == [0, 0]


def test_an_index_twice_or_out_of_range_is_one_sentence(pods: Callable[..., Pods]) -> None:
    made = pods(PLACES, count=3, start_timeout=60)
    made.publish()
    code, _, err = made.start(0, index=3).finish()
    assert code == 2 and "--node-rank must be from 0 to 2 with --nnodes 3, not '3'." in err
    first, with_index_1 = made.start(0), {1: made.start(1), 2: made.start(2, index=1)}
    while not (ended := [pod for pod, job in with_index_1.items() if job.process.poll() is not None]):
        time.sleep(0.05)
    code, _, err = with_index_1.pop(ended[0]).finish()
    ((pod, admitted),) = with_index_1.items()
    assert code == 2 and f"node 1 has connected already, from h{pod}; give each node its own --node-rank." in err
    jobs = [first, admitted, made.start(ended[0], index=2)]
    assert [job.finish()[0] for job in jobs] == [0, 0, 0], "the job waited for the right one"


@pytest.mark.parametrize("pod", [0, 1])
def test_a_pod_that_vanishes_is_named_by_the_others(pods: Callable[..., Pods], pod: int) -> None:
    made = pods(STEPS)
    made.publish()
    jobs = [made.start(each) for each in range(2)]
    for job in jobs:
        job.await_lines(2, "ready")
    made.hosts[pod].blackhole()
    began = time.monotonic()
    code, _, err = jobs[1 - pod].finish()
    assert time.monotonic() - began < 15
    assert code == 255 and f"rank {2 * pod} on h{pod}" in err and "was lost first" in err, err
    assert jobs[pod].finish()[0] != 0, "its own ranks miss the others, too"
    made.hosts[pod].heal()
    await_nothing(made.hosts)


@pytest.mark.parametrize(("ended", "pod"), [("TERM", 0), ("TERM", 1), ("KILL", 0), ("KILL", 1)])
def test_a_pod_that_is_ended_ends_the_others(pods: Callable[..., Pods], ended: str, pod: int) -> None:
    made = pods(STEPS)
    made.publish()
    jobs = [made.start(each) for each in range(2)]
    for job in jobs:
        job.await_lines(2, "ready")
    code_of = {"TERM": 143, "KILL": 137}
    made.hosts[pod].run(["kill", f"-{ended}", *_launchers(made.hosts[pod])[:1]])
    code, _, err = jobs[1 - pod].finish()
    assert code == code_of[ended], err
    assert f"somebody ended the launcher of node {pod} by SIG{ended}" in err
    jobs[pod].finish()
    await_nothing(made.hosts)


def test_a_running_job_listens_nowhere(pods: Callable[..., Pods]) -> None:
    made = pods(STEPS)
    made.publish()
    jobs = [made.start(pod) for pod in range(2)]
    for job in jobs:
        job.await_lines(2, "ready")
    listening = [line.split()[3] for host in made.hosts for line in host.run(["ss", "-Hltn"]).stdout.splitlines()]
    assert listening and all(address.endswith(":22") for address in listening), listening
    jobs[0].process.terminate()
    assert [job.finish()[0] for job in jobs] == [143, 143]


def _launchers(host: Host) -> list[str]:
    """The launcher's processes of a host, the outer one first."""
    script = "for p in /proc/[0-9]*; do echo ${p#/proc/} $(tr '\\0' ' ' < $p/cmdline); done 2>/dev/null"
    lines = host.run(["sh", "-c", script]).stdout.splitlines()
    return sorted((line.split()[0] for line in lines if "farandole.launch run" in line), key=int)

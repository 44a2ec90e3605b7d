"""The verbs of `farandole` beside `run`: bench, doctor, inspect, k8s, live. trace_verbs.py has others."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from farandole.launch.shared_options import CONTEXT, Count, num_proc_option, options_of, print_error
from farandole.launch.spec import Metrics, SpecError, Where

_COUNT = Count(1, 65536)
DEFAULT_SIZES = "4,1K,16K,64K,256K,1M,4M,16M,64M"
MOST_BYTES = 64 << 30
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(?P<number>[0-9]{1,12})(?P<unit>[KMG]?)", re.IGNORECASE)


@click.command(context_settings=CONTEXT, short_help="Measure collectives on this machine.")
@num_proc_option("2", "Number of ranks; 2 by default.")
@click.option("--sizes", metavar="LIST", help="Bytes, with K, M or G: 4,64K,1M (default: 4 to 64M).")
@click.option(
    "--operation", type=click.Choice(["allreduce", "allgather", "broadcast"]), default="allreduce", show_default=True
)
@click.option("--seconds", type=float, metavar="S", default=1.0, help="About how long each size takes; 1 by default.")
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), metavar="FILE", help="Also write the rows to FILE."
)
def bench(num_proc: str, sizes: str | None, operation: str, seconds: float, json_path: Path | None) -> int:
    """Measure a collective on numpy arrays: how long it takes, and how many bytes a second that is.

    \b
        farandole bench -np 4 --sizes 4,64K,16M
        farandole bench --operation allgather --json rows.json
    """  # noqa: D301  (click wants the character)
    from farandole.launch import environment, placement
    from farandole.launch.job_runner import run_job
    from farandole.launch.plan import Job
    from farandole.launch.relay import OutputOptions

    if importlib.util.find_spec("numpy") is None:
        raise click.UsageError(f"bench needs numpy, which is not installed: {sys.executable} -m pip install numpy")
    base = environment.inherited()
    try:
        settings = environment.settings(base)
        environment.check_backends(base)
        placements = placement.plan(num_proc, None, environment.local_names())
        byte_sizes = parse_sizes(DEFAULT_SIZES if sizes is None else sizes)
    except SpecError as error:
        raise click.UsageError(str(error)) from error
    if not 0 < seconds <= 3600:
        raise click.UsageError(f"--seconds must be above 0 and at most 3600, not {seconds:g}.")
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise click.UsageError(f"--json {json_path}: there is no folder {json_path.absolute().parent}.")
    args = [sys.executable, "-m", "farandole.benchmark", "--operation", operation, "--seconds", f"{seconds:g}"]
    args += ["--sizes", *map(str, byte_sizes), *([] if json_path is None else ["--json", str(json_path)])]
    return run_job(Job(args, placements, base, settings.grace_s, OutputOptions(prefix=False)))


def parse_sizes(text: str) -> list[int]:
    """`4,64K,1M` -> bytes."""
    return [_parse_size(word.strip()) for word in text.split(",")]


def _parse_size(word: str) -> int:
    match = _SIZE.fullmatch(word)
    if match is None:
        raise click.UsageError(f"--sizes wants bytes with K, M or G for powers of 1024, as in 4,64K,1M, not {word!r}.")
    size = int(match["number"]) * _UNITS[match["unit"].upper()]
    if size == 0 or size % 4:
        raise click.UsageError(f"a size must be a positive multiple of 4 bytes, the size of a float32, not {word!r}.")
    if size > MOST_BYTES:
        raise click.UsageError(f"a size may be 64G at most, not {word!r}.")
    return size


@click.command(context_settings=CONTEXT, short_help="Check this machine, or several hosts, before a job.")
@options_of(Where)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=60.0,
    metavar="SECONDS",
    help="How long each trial of the compiled core may take (60).",
)
def doctor(as_json: bool, limit_s: float, **given: Any) -> int:
    """Check this machine and installation: one line for each thing, with what to do where it is not OK.

    With -H or --hostfile all those hosts, the versions on them, their clocks and the network between them.

    Starts ranks of its own for a moment. Ends with 1 if something is FAIL, else 0.
    """
    from farandole.launch import environment
    from farandole.observe.doctor import report, run_checks

    where = Where(**given)
    if where.hosts is not None or where.hostfile is not None:
        return _check_hosts(as_json, limit_s, where)
    if where != Where():
        raise click.UsageError("-p, -i, --python and --network-interfaces are for other hosts; name them with -H.")
    findings = run_checks.run_checks(environment.inherited(), limit_s)
    click.echo(report.as_json(findings) if as_json else report.as_text(findings))
    return report.exit_code(findings)


def _check_hosts(as_json: bool, limit_s: float, where: Where) -> int:
    from farandole.launch import environment
    from farandole.launch import hosts as names_of_hosts
    from farandole.launch.head.check_hosts import CheckOrder, check_hosts
    from farandole.launch.options import reach_options
    from farandole.observe.doctor import report

    if where.hosts is not None and where.hostfile is not None:
        raise click.UsageError("give one of --hosts and --hostfile: both name the hosts.")
    base = environment.inherited()
    try:
        file, text = where.hostfile, where.hosts or ""
        listed = names_of_hosts.read_hostfile(file) if file else names_of_hosts.parse_hosts(text)
        local = environment.local_names() | environment.local_addresses()
        names = [each.host for each in names_of_hosts.under_one_name(listed.slots, local)]
        elsewhere = not all(names_of_hosts.is_local(name, local) for name in names)
        options = reach_options(where, elsewhere)
        environment.settings(base)
    except SpecError as error:
        raise click.UsageError(str(error)) from error
    order = CheckOrder(names, local, options, base, limit_s)
    return check_hosts(order, report.hosts_as_json if as_json else report.hosts_as_text)


@click.command(context_settings=CONTEXT, short_help="Show what the ranks of a running job wait for.")
@click.argument("job", required=False, default="", metavar="[JOB]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--stacks/--no-stacks", default=True, help="Stacks of the ranks, where py-spy is installed (on).")
@click.option("--native", is_flag=True, help="Also show C++ stacks, which stops each rank for a moment.")
def inspect(job: str, as_json: bool, stacks: bool, native: bool) -> int:
    """Say who keeps a job waiting, without disturbing it: one sentence, then what each rank of this host does.

    JOB is the pid of a rank, or the beginning of the job's name; by default your only job on this host. The ranks may
    have been started by farandole run, torchrun, mpirun or srun.

    Reads what the ranks have recorded, also those that hang or were killed.
    """
    from farandole.launch import environment
    from farandole.observe.inspect import inspect as look
    from farandole.observe.jobs import InspectionError

    try:
        text, hint = look(environment.inherited(), job, as_json=as_json, with_stacks=stacks, native=native)
    except InspectionError as error:
        print_error(str(error))
        return 1
    click.echo(text)
    if hint:
        print_error(hint)
    return 0


@click.command(context_settings=CONTEXT, short_help="Show a running job in the browser.")
@click.argument("job", required=False, default="", metavar="[JOB]")
@click.option(
    "--port", type=Count(0, 65535), default=0, metavar="PORT", help="Port of the page; by default any free one."
)
@options_of(Metrics)
def live(job: str, port: int, **given: Any) -> int:
    """Serve a page that shows what the ranks of a job on this host do, until they have ended.

    JOB is as for farandole inspect. The page is for this user on this machine: its address, which is printed, is a
    secret. `farandole run --live` does the same for a job that it starts.
    """
    from farandole.launch import environment
    from farandole.observe.jobs import InspectionError
    from farandole.observe.live.command import Wanted, wanted, watch

    try:
        served = wanted(port, Metrics(**given)) or Wanted()
        watch(environment.inherited(), job, served, print_error)
    except SpecError as error:
        raise click.UsageError(str(error)) from error
    except InspectionError as error:
        print_error(str(error))
        return 1
    except OSError as error:
        print_error(f"cannot serve the page: {error.strerror or error}.")
        return 1
    return 0


@click.command(
    context_settings={**CONTEXT, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
    short_help="Print the manifest of a job of Kubernetes.",
)
@click.option("--name", default="train", show_default=True, help="Of the Job and its Service.")
@click.option("--image", required=True, metavar="IMAGE", help="The container's image, with farandole and the program.")
@click.option("--hosts", type=_COUNT, required=True, metavar="N", help="Number of pods.")
@click.option("--slots", type=_COUNT, metavar="N", help="Ranks of each pod; by default one for each GPU, or one.")
@click.option("--gpus", type=Count(0, 1024), default=0, metavar="N", help="NVIDIA GPUs of each pod.")
@click.option("--cpus", metavar="QUANTITY", help="Limit of CPUs of each pod: 4, 500m.")
@click.option("--memory", metavar="QUANTITY", help="Limit of memory of each pod, with its /dev/shm: 8Gi.")
@click.option("--shm", default="1Gi", show_default=True, metavar="QUANTITY", help="Size of /dev/shm; 0: the runtime's.")
@click.option("--namespace", metavar="NAME", help="Of all objects.")
@click.option(
    "--secret", metavar="NAME", help="A Secret that exists, with the key in its field `key`; none is printed."
)
@click.option("-x", "--env", multiple=True, metavar="NAME[=VALUE]", help="A variable for the ranks; repeatable.")
@click.option("--port", type=Count(1, 65535), default=29500, show_default=True, metavar="PORT", help="Of pod 0.")
@click.option(
    "--start-timeout",
    type=click.FloatRange(min=0, min_open=True, max=1e6),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the pods wait for each other at first, with the time to pull the image.",
)
@click.option("--dry-run", is_flag=True, help="Print the pod of each rank and the containers' command instead.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGS]...")
def k8s(command: tuple[str, ...], dry_run: bool, env: tuple[str, ...], slots: int | None, **given: Any) -> int:
    """Print the manifest of a job whose pods run COMMAND as ranks: an Indexed Job, a Service and a Secret.

    \b
        farandole k8s --image IMAGE --hosts 2 --gpus 4 -- python train.py > job.yaml
        kubectl apply -f job.yaml

    No operator is needed, and nothing is sent to a cluster. The Secret holds a new key, so the output is a secret, too.
    """  # noqa: D301  (click wants the character)
    from farandole.launch import environment, kubernetes
    from farandole.launch.local import KEY_BYTES

    if not command:
        raise click.UsageError("say what to run: farandole k8s --image IMAGE --hosts 2 -- python train.py")
    start_timeout_s = given.pop("start_timeout")
    try:
        variables = environment.given_variables(env, environment.inherited())
        job = kubernetes.PodJob(
            **given,
            command=command,
            slots=slots or max(1, given["gpus"]),
            start_timeout_s=start_timeout_s,
            env=variables,
        )
        if dry_run:
            click.echo(kubernetes.preview(job))
            return 0
        text = kubernetes.as_yaml(kubernetes.documents(job, os.urandom(KEY_BYTES)))
    except SpecError as error:
        raise click.UsageError(str(error)) from error
    click.echo(text, nl=False)
    if job.secret is None:
        print_error(
            f"the manifest holds the job's key, in the Secret {job.secret_name}: keep it as a secret, or name one that "
            "exists with --secret."
        )
    return 0

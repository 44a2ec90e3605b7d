"""RayExecutor: ranks on the nodes of a Ray cluster, by Horovod's names."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from farandole import ArgumentError, ArgumentTypeError, FarandoleError
from farandole.engine import pack_call, result_in, traceback_in
from farandole.launch import JobSpec

from farandole_ray import _environment, _request, _trainer, _way
from farandole_ray._actor import GONE
from farandole_ray._desk import Desk
from farandole_ray._elastic import Elastic
from farandole_ray._launcher import Launcher, new_mark
from farandole_ray._places import Group, Place
from farandole_ray._settings import Settings
from farandole_ray._wire import Keys, new_keys

Callback = Callable[[Any], object]

_NAME = "RayExecutor"
_LOOK_S = 0.05
_LINES_S = 5.0  # for the last lines of a call, where a rank has closed its stdout
_SHORT_S = 0.005
_GRACE_S = 10.0  # from the first failure to the end of the other ranks


class RayExecutor:
    """Ranks that Ray places: `start()` them, call functions on all with `run`, `shutdown()`.

    Each rank is a process of its own, which ends with Ray's actor for it. Ranks count node by node. State that a call
    leaves in a rank's modules, such as `init()`, is there for the next one.

    Example:
        >>> executor = RayExecutor(num_workers=4)
        >>> executor.start()
        >>> executor.run(train, args=(0.1,))
        >>> executor.shutdown()
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30.0,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = 100.0,
        nics: str | Sequence[str] | None = None,
        autoscales: bool = False,
        verbose: bool = False,
        prefix_output_with_timestamp: bool = False,
    ) -> Settings:
        """Times and ways.

        Args:
            timeout_s: seconds that the ranks have to start and to meet.
            ssh_identity_file: taken for the sake of Horovod's programs; nothing here uses ssh.
            ssh_str: likewise.
            placement_group_timeout_s: seconds to wait for places that other programs use.
            nics: network interfaces between nodes, "eth0,ib0" or a list; by default any that connects them.
            autoscales: nodes come when they are asked for, so wait also for more than the cluster has.
            verbose: say what is started, and when each rank ends.
            prefix_output_with_timestamp: begin each line of a rank with the time of day.
        """
        names = nics.split(",") if isinstance(nics, str) else nics or ()
        return Settings(
            timeout_s, placement_group_timeout_s, tuple(names), autoscales, prefix_output_with_timestamp, verbose
        )

    def __init__(
        self,
        settings: Settings | None = None,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: float = 1,
        use_gpu: bool = False,
        gpus_per_worker: float | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: tuple[float, float] | None = None,
        elastic_timeout: float = 600.0,
        override_discovery: bool = True,
    ) -> None:
        """Check what is asked for; Ray hears of it from `start`.

        Args:
            settings: see `create_settings`.
            num_workers: ranks, packed onto as few nodes as they fit.
            num_hosts: nodes, each with `num_workers_per_host` ranks, in the place of `num_workers`.
            num_workers_per_host: see there.
            cpus_per_worker: Ray's CPUs of each rank.
            use_gpu: each rank has GPUs, which it sees through CUDA_VISIBLE_DEVICES; those of a node's ranks are one
                list there, so a rank takes number `local_rank()`.
            gpus_per_worker: how many, by default 1.
            use_current_placement_group: in a trial of Ray Tune, say: use its places.
            min_workers: the job is elastic: it goes on with so many ranks at least while nodes come and go.
            max_workers: it has so many at most, by default `num_workers`, else `min_workers`.
            reset_limit: end the job at the first change of the ranks after so many.
            cooldown_range: seconds until a lost rank is replaced, twice as long each time, and the most of them.
            elastic_timeout: seconds to wait for `min_workers` places, and for living ranks to notice a lost one.
            override_discovery: taken for the sake of Horovod's programs.

        Raises:
            ArgumentError: arguments that contradict each other, or numbers that cannot be.
        """
        self.settings = settings or Settings()
        self._elastic: Elastic | None = None
        if min_workers is None:
            if max_workers is not None or reset_limit is not None or cooldown_range is not None:
                raise ArgumentError("RayExecutor: max_workers, reset_limit and cooldown_range need min_workers=N, too.")
        else:
            most = max_workers or num_workers or min_workers
            num_workers, num_hosts = most, None
            if not 1 <= min_workers <= most:
                raise ArgumentError(f"RayExecutor: min_workers={min_workers} is not between 1 and max_workers={most}.")
        self._request = _request.make(
            num_workers, num_hosts, num_workers_per_host, cpus_per_worker, use_gpu, gpus_per_worker
        )
        if min_workers is not None:
            self._elastic = Elastic(
                self._request, self.settings, min_workers, reset_limit, cooldown_range, elastic_timeout
            )
        self._use_current = use_current_placement_group
        self._group: Group | None = None
        self._desk: Desk | None = None
        self._launcher: Launcher | None = None
        self._variables: dict[str, str] = {}
        self._where: list[Place] = []  # by rank, the place whose actor hands it calls

    @property
    def num_workers(self) -> int:
        """The ranks; of an elastic job the most of them."""
        return self._request.workers

    def start(
        self,
        executable_cls: type | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, str] | None = None,
    ) -> None:
        """Get places from Ray, and start the ranks there.

        Args:
            executable_cls: each rank makes an object of it, for `execute`.
            executable_args: its arguments.
            executable_kwargs: its keyword arguments.
            extra_env_vars: variables of the ranks.

        Raises:
            FarandoleError: the cluster has too few places, or they are not free in time, or the ranks do not start.
        """
        if self._group is not None:
            raise FarandoleError("RayExecutor is started already; call shutdown() before another start().")
        if not ray.is_initialized():
            ray.init()
        self._variables = {name: str(value) for name, value in (extra_env_vars or {}).items()}
        if self._elastic is not None:
            if executable_cls is not None:
                raise ArgumentError("RayExecutor: ranks that come later have no objects: leave executable_cls out.")
            return
        keys = new_keys()
        self._group = Group(self._request, self.settings, keys, self._use_current)
        try:
            self._start_ranks(keys)
            if executable_cls is not None:
                arguments = executable_cls, tuple(executable_args or ()), dict(executable_kwargs or {})
                self._call_all(pack_call(_trainer.make_object, arguments, {}, _NAME))
        except BaseException:
            self.shutdown()
            raise

    def _start_ranks(self, keys: Keys) -> None:
        assert self._group is not None
        self._desk = Desk(self._group, keys.ways)
        hosts = self._desk.hosts()
        ways = shlex.join([sys.executable, "-I", "-S", str(Path(_way.__file__)), self._desk.name, "reach"])
        where = ",".join(f"{host}:{slots}" for host, slots in hosts.items())
        variables = _environment.of_launcher({**self._variables, "FARANDOLE_SSH": ways})
        spec = JobSpec.of(_environment.COMMAND, num_proc=self._request.workers, hosts=where, **leaves_of(self.settings))
        self._launcher = Launcher(spec, variables)
        ready: list[Any] = []
        self._where, rank = [], 0
        waits_s = self.settings.timeout_s
        for host, slots in hosts.items():
            first = next(each for each in self._group.places if each.host == host)
            self._where += [first] * slots
            ready.append(first.actor.await_ranks.remote(list(range(rank, rank + slots)), waits_s))
            rank += slots
        if not all(self._await(ready)):
            raise FarandoleError(f"RayExecutor: not all ranks have started within {waits_s:g} s; see their output.")

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> list[Any]:
        """Call a function on each rank, and return the results in the order of the ranks.

        `callbacks` are called here, in this thread, with the values of each `farandole_ray.log` of a rank.

        Raises what it raised on the rank that failed first, whose traceback is its cause; or what a callback raised.
        Then all ranks have ended.
        """
        callbacks = _checked(callbacks)
        call = pack_call(fn, tuple(args or ()), dict(kwargs or {}), _NAME)
        if self._elastic is not None:
            return self._elastic.run(call, self._variables, callbacks)
        return self._call_all(call, callbacks=callbacks)

    def run_remote(
        self, fn: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """The same without waiting: a reference for each rank, for `ray.get`."""
        self._check_started()
        call, ranks = ray.put(pack_call(fn, tuple(args or ()), dict(kwargs or {}), _NAME)), len(self._where)
        return [place.actor.result.remote(rank, ranks, call, new_mark()) for rank, place in enumerate(self._where)]

    def execute(self, fn: Callable[[Any], Any], callbacks: Sequence[Callback] | None = None) -> list[Any]:
        """Call a function with the object of `executable_cls` on each rank; with None where there is no such class."""
        return self._call_all(pack_call(_trainer.with_object, (fn,), {}, _NAME), callbacks=_checked(callbacks))

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """The same on rank 0 alone."""
        return self._call_all(pack_call(_trainer.with_object, (fn,), {}, _NAME), [0])[0]

    def shutdown(self) -> None:
        """End the ranks, and give Ray back what they had."""
        if self._launcher is not None:
            for place in dict.fromkeys(self._where):
                place.actor.end.remote()
            self._launcher.ended.wait(_GRACE_S)
            self._launcher.end()
            self._launcher.show()
        if self._desk is not None:
            self._desk.close()
        if self._group is not None:
            self._group.close()
        self._launcher = self._desk = self._group = None
        self._where = []

    # Calls

    def _check_started(self) -> None:
        if self._elastic is not None:
            raise ArgumentError("RayExecutor: an elastic job (min_workers) has ranks only during run(); use run().")
        if self._launcher is None:
            raise FarandoleError("RayExecutor has no ranks: call start() first, and again after shutdown().")
        if self._launcher.ended.is_set():
            self._launcher.show()
            why = self._launcher.said or "they were told to"
            raise FarandoleError(f"RayExecutor: the ranks have ended: {why}\nCall shutdown() and start() for new ones.")

    def _call_all(
        self, call: bytes, ranks: Sequence[int] | None = None, callbacks: Sequence[Callback] = ()
    ) -> list[Any]:
        self._check_started()
        assert self._launcher is not None
        mark, chosen = new_mark(), range(len(self._where)) if ranks is None else ranks
        self._launcher.listen(mark, callbacks)
        try:
            reference = ray.put(call)
            references = [self._where[rank].actor.outcome.remote(rank, reference, mark) for rank in chosen]
            outcomes = dict(zip(chosen, self._await(references), strict=True))
            self._show_all(mark, len(references))
        except BaseException:  # an interrupt, or a callback's own error
            self._launcher.end()
            self._launcher.show()
            raise
        return [result_in(outcome, rank, len(self._where)) for rank, outcome in outcomes.items()]

    def _await(self, references: list[Any]) -> list[Any]:
        """The values. Raises what the rank that failed first has raised, or the launcher's words."""
        assert self._launcher is not None
        left = list(references)
        while left:
            ready, left = ray.wait(left, num_returns=len(left), timeout=_LOOK_S)
            self._launcher.show()
            if self._launcher.ended.is_set() or any(_has_failed(each) for each in ready):
                self._fail(references)
        values: list[Any] = ray.get(references)
        return values

    def _show_all(self, mark: bytes, ranks: int) -> None:
        """Results are here sooner than lines, which go through the launcher."""
        assert self._launcher is not None
        until = time.monotonic() + _LINES_S
        while not self._launcher.has_all(mark, ranks) and time.monotonic() < until:
            time.sleep(_SHORT_S)
        self._launcher.show()

    def _fail(self, references: list[Any]) -> None:
        """Raises: each rank's end has its time first, so that the launcher knows who was first."""
        assert self._launcher is not None
        self._launcher.ended.wait(_GRACE_S)
        self._launcher.end()
        self._launcher.show()
        ready, _ = ray.wait(references, num_returns=len(references), timeout=0)
        outcomes = {references.index(each): _value(each) for each in ready}
        raised = {
            rank: each for rank, each in outcomes.items() if isinstance(each, bytes) and each and traceback_in(each)
        }
        first = self._launcher.blamed if self._launcher.blamed in raised else next(iter(raised), None)
        if first is not None and self._launcher.blamed in (None, first):
            result_in(raised[first], first, len(self._where))
        raise FarandoleError(self._launcher.said or "the ranks have ended without a word; see their output.")


def leaves_of(settings: Settings) -> dict[str, Any]:
    """The part of a job's spec that the settings have."""
    return {
        "start_timeout": settings.timeout_s,
        "verbose": settings.verbose,
        "network_interfaces": ",".join(settings.nics) if settings.nics else None,
        "timestamp": settings.timestamp,
    }


def _checked(callbacks: Sequence[Callback] | None) -> Sequence[Callback]:
    for each in callbacks or ():
        if not callable(each):
            raise ArgumentTypeError(
                f"RayExecutor: callbacks are functions of what ranks log, and a {type(each).__name__} is none."
            )
    return callbacks or ()


def _value(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        return error


def _has_failed(reference: Any) -> bool:
    value = _value(reference)
    return isinstance(value, Exception) or value == GONE or (isinstance(value, bytes) and bool(traceback_in(value)))

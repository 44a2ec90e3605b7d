"""RayExecutor: ranks on the nodes of a Ray cluster, by Horovod's names."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import ray
from farandole import ArgumentError, ArgumentTypeError, FarandoleError
from farandole.engine import Call, TaskServer, WaitMessages, pack_call, result_in, traceback_in

from farandole_ray import _request, _trainer
from farandole_ray._actor import GONE
from farandole_ray._actors import Group, Pool, StartedActor
from farandole_ray._job import Job, new_mark
from farandole_ray._settings import Settings

Callback = Callable[[Any], object]

_NAME = "RayExecutor"
_LOOK_S = 0.05
_LINES_S = 5.0  # for the last lines of a call, where a rank has closed its stdout
_SHORT_S = 0.005
_GRACE_S = 10.0  # from the first failure to the end of the other ranks
_PATIENCE_S = 5.0  # before the user hears what is waited for: actors take some seconds to start
_SETTLE_S = 1.0  # for more places than are needed, before an elastic job starts


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
        """Check the arguments; `start` asks Ray for the resources.

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
        self._least, self._elastic_timeout = min_workers, elastic_timeout
        self._elastic_leaves = {
            "min_np": min_workers,
            "max_np": num_workers,
            "elastic_timeout": elastic_timeout,
            "reset_limit": reset_limit,
            "blacklist_cooldown_range": cooldown_range,
        }
        self._use_current = use_current_placement_group
        self._open: ExitStack | None = None  # all that `shutdown` gives back
        self._job: Job | None = None
        self._variables: dict[str, str] = {}
        self._where: list[StartedActor] = []  # by rank, the actor that hands it calls

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
        if self._open is not None:
            raise FarandoleError("RayExecutor is started already; call shutdown() before another start().")
        if not ray.is_initialized():
            ray.init()
        self._variables = {name: str(value) for name, value in (extra_env_vars or {}).items()}
        if self._least is not None:
            if executable_cls is not None:
                raise ArgumentError("RayExecutor: ranks that come later have no objects: leave executable_cls out.")
            return
        self._open = ExitStack()
        try:
            self._start_ranks(self._open)
            if executable_cls is not None:
                arguments = executable_cls, tuple(executable_args or ()), dict(executable_kwargs or {})
                self._call_all(pack_call(_trainer.make_object, arguments, {}, _NAME))
        except BaseException:
            self.shutdown()
            raise

    def _start_ranks(self, given_back: ExitStack) -> None:
        call = given_back.enter_context(Call(_trainer.serve_calls, (), None, _NAME))
        server = given_back.enter_context(_server())
        group = Group(self._request, self.settings, server, self._use_current)
        given_back.callback(group.close)
        self._where = group.by_rank()
        self._job = self._launch(call, server, self.num_workers, self.settings.leaves)
        waits_s = self.settings.timeout_s
        ready = [
            started.actor.await_ranks.remote([rank for rank, at in enumerate(self._where) if at is started], waits_s)
            for started in dict.fromkeys(self._where)
        ]
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
        if self._least is not None:
            return self._run_elastic(call, callbacks)
        return self._call_all(call, callbacks=callbacks)

    def run_remote(
        self, fn: Callable[..., Any], args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """The same without waiting: a reference for each rank, for `ray.get`."""
        self._check_started()
        call, ranks = ray.put(pack_call(fn, tuple(args or ()), dict(kwargs or {}), _NAME)), len(self._where)
        return [started.actor.result.remote(rank, ranks, call, new_mark()) for rank, started in enumerate(self._where)]

    def execute(self, fn: Callable[[Any], Any], callbacks: Sequence[Callback] | None = None) -> list[Any]:
        """Call a function with the object of `executable_cls` on each rank; with None where there is no such class."""
        return self._call_all(pack_call(_trainer.with_object, (fn,), {}, _NAME), callbacks=_checked(callbacks))

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """The same on rank 0 alone."""
        return self._call_all(pack_call(_trainer.with_object, (fn,), {}, _NAME), [0])[0]

    def shutdown(self) -> None:
        """End the ranks, and give Ray back what they had."""
        if self._job is not None:
            if ray.is_initialized():
                for started in dict.fromkeys(self._where):
                    started.actor.end.remote()
                self._job.ended.wait(_GRACE_S)
            self._job.end()
        if self._open is not None:
            self._open.close()
        self._job, self._open, self._where = None, None, []

    # Calls

    def _check_started(self) -> Job:
        if self._least is not None:
            raise ArgumentError("RayExecutor: an elastic job (min_workers) has ranks only during run(); use run().")
        if self._job is None:
            raise FarandoleError("RayExecutor has no ranks: call start() first, and again after shutdown().")
        if self._job.ended.is_set():
            self._job.show()
            why = self._job.why
            raise FarandoleError(f"RayExecutor: the ranks have ended: {why}\nCall shutdown() and start() for new ones.")
        return self._job

    def _call_all(
        self, call: bytes, ranks: Sequence[int] | None = None, callbacks: Sequence[Callback] = ()
    ) -> list[Any]:
        job, mark = self._check_started(), new_mark()
        chosen = range(len(self._where)) if ranks is None else ranks
        job.listen(mark, callbacks)
        try:
            reference = ray.put(call)
            outcomes = self._await([self._where[rank].actor.outcome.remote(rank, reference, mark) for rank in chosen])
            self._show_all(job, mark, len(chosen))
        except BaseException:  # an interrupt, or a callback's own error
            job.end()
            raise
        return [result_in(outcome, rank, len(self._where)) for rank, outcome in zip(chosen, outcomes, strict=True)]

    def _launch(self, call: Call, server: TaskServer, ranks: int, leaves: Mapping[str, object]) -> Job:
        return Job(lambda **how: call.run(server, "Ray", ranks, env=self._variables, options=leaves, **how))

    def _await(self, references: list[Any]) -> list[Any]:
        """The values. Raises what the rank that failed first has raised, or why the job has ended."""
        assert self._job is not None
        left = list(references)
        while left and not self._job.ended.is_set():
            _, left = ray.wait(left, num_returns=len(left), timeout=_LOOK_S)
            self._job.show()
        values = [] if left else [_value(each) for each in references]
        if left or any(value == GONE or (isinstance(value, bytes) and traceback_in(value)) for value in values):
            self._job.ended.wait(_GRACE_S)  # each rank's end has its time, so that the launcher knows who was first
            self._job.end()
            self._job.result()
            raise FarandoleError("the ranks have ended without a message; see their output.")
        return values

    def _show_all(self, job: Job, mark: str, ranks: int) -> None:
        """Results are here sooner than lines, which go through the launcher."""
        until = time.monotonic() + _LINES_S
        while not job.has_all(mark, ranks) and time.monotonic() < until:
            time.sleep(_SHORT_S)
        job.show()

    def _run_elastic(self, function: bytes, callbacks: Sequence[Callback]) -> list[Any]:
        """The results of the ranks that are there at the end. Raises what the rank that failed first has raised."""
        assert self._least is not None
        nodes, mark = [node["Resources"] for node in ray.nodes() if node["Alive"]], new_mark()
        if not self.settings.autoscales and (sentence := _request.refusal(nodes, self._request, self._least)):
            raise FarandoleError(sentence)
        with (
            Call(_trainer.make_call, (function, mark), None, _NAME) as call,
            _server() as server,
            Pool(self._request, server),
        ):
            self._await_tasks(server, self._least)
            job = self._launch(call, server, len(server.tasks()), {**self.settings.leaves, **self._elastic_leaves})
            job.listen(mark, callbacks)
            try:
                while not job.ended.wait(_LOOK_S):
                    job.show()
            finally:
                job.end()
            return job.result()

    def _await_tasks(self, server: TaskServer, least: int) -> None:
        limit_s = self._elastic_timeout
        until, tell = time.monotonic() + limit_s, WaitMessages(_PATIENCE_S)
        while not server.wait(least, _LOOK_S):
            words = f"waiting for {least} places, {len(server.tasks())} there"
            if time.monotonic() > until:
                raise FarandoleError(
                    f"RayExecutor: {words}, after {limit_s:g} s: other programs use the rest of the cluster; end them, "
                    "ask for fewer, or raise elastic_timeout."
                )
            tell(f"{words} (for {limit_s:g} s at most).")
        server.wait(self.num_workers, _SETTLE_S)


def _server() -> TaskServer:
    return TaskServer(ray.util.get_node_ip_address())


def _checked(callbacks: Sequence[Callback] | None) -> Sequence[Callback]:
    for each in callbacks or ():
        if not callable(each):
            raise ArgumentTypeError(f"RayExecutor: callbacks must be functions, not {type(each).__name__}.")
    return callbacks or ()


def _value(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayError:  # the actor has died
        return GONE

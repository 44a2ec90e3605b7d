"""The actors that hold resources for ranks: those of a placement group, and those of an elastic job, which go."""

from __future__ import annotations

import itertools
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ray
from farandole import FarandoleError
from farandole.engine import TaskServer, WaitMessages
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    placement_group,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from farandole_ray import _private, _request
from farandole_ray._actor import Actor
from farandole_ray._request import Request
from farandole_ray._settings import Settings

_SECRET_BYTES = 32
_METHODS_AT_A_TIME = 1000
_PATIENCE_S = 1.0  # before the user hears what is waited for
_START_PATIENCE_S = 10.0
_LOOK_S = 0.2
_AGAIN_S = 10.0  # until Ray is asked for other actors than those of nodes that cannot take part


@dataclass(eq=False)
class StartedActor:
    """An actor, which is a task of the server with the number `order`."""

    actor: Any
    order: int
    life: Any  # reference that is ready when its part has ended, or it has died
    is_here: bool = False  # the server has met it


class Starter:
    """Starts the actors of a job, numbered as they come."""

    def __init__(self, request: Request, server: TaskServer) -> None:
        self._request, self._invitation, self._numbers = request, server.invite(), itertools.count()
        self._secret = secrets.token_bytes(_SECRET_BYTES)  # Ray carries it, and the server does not know it

    def start(self, slots: int, **options: Any) -> StartedActor:
        """An actor with the resources of so many ranks."""
        needs = {name: each * slots for name, each in self._request.per_worker.items()}
        kind = ray.remote(Actor).options(
            num_cpus=needs.pop("CPU", 0),
            num_gpus=needs.pop("GPU", 0),
            max_concurrency=_METHODS_AT_A_TIME,
            max_restarts=0,
            **options,
        )
        actor, order = kind.remote(), next(self._numbers)
        return StartedActor(actor, order, actor.take_part.remote(self._invitation, self._secret, order, slots))


def _refusal(life: Any) -> str:
    """Why a node does not take part; "" where its part has ended otherwise, or goes on."""
    try:
        ray.get(life, timeout=0)
    except ray.exceptions.RayTaskError as error:
        return str(error.cause)
    except (ray.exceptions.RayError, TimeoutError):
        pass
    return ""


class Group:
    """The actors of a job whose size does not change."""

    def __init__(self, request: Request, settings: Settings, server: TaskServer, use_current: bool) -> None:
        self._request, self._settings, self._server = request, settings, server
        self._starter = Starter(request, server)
        current = get_current_placement_group() if use_current else None
        self._own: PlacementGroup | None = None
        self.actors: list[StartedActor] = []
        try:
            if current is None:
                self._make()
            else:
                self._enter(current)
        except BaseException:
            self.close()
            raise

    def by_rank(self) -> list[StartedActor]:
        """The actor of each rank, which hands it calls: that of the agent."""
        return [self.actors[host.tasks[0].order] for host in self._server.hosts() for _ in range(host.slots)]

    def _make(self) -> None:
        request = self._request
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not self._settings.autoscales and (sentence := _request.refusal(nodes, request, request.workers)):
            raise FarandoleError(sentence)
        self._own = placement_group(request.bundles, strategy=request.strategy)
        ready = [self._own.ready()]
        self._await(lambda: bool(ray.wait(ready, timeout=_LOOK_S)[0]), is_scheduled=True)
        for index in range(len(request.bundles)):
            strategy = PlacementGroupSchedulingStrategy(self._own, placement_group_bundle_index=index)
            self.actors.append(self._starter.start(request.per_host or 1, scheduling_strategy=strategy))
        self._await(self._are_here, is_scheduled=False)

    def _enter(self, current: PlacementGroup) -> None:
        """Into that of the program that we run in, Ray Tune's trial, say."""
        found = sum(_request.places(each, self._request) for each in current.bundle_specs)
        if found < self._request.workers:
            raise FarandoleError(
                f"RayExecutor: the placement group that this program runs in has places for {found}, not for "
                f"{self._request.words}; give it more bundles, or use_current_placement_group=False."
            )
        strategy = PlacementGroupSchedulingStrategy(current)
        self.actors = [self._starter.start(1, scheduling_strategy=strategy) for _ in range(self._request.workers)]
        self._await(self._are_here, is_scheduled=True)

    def _are_here(self) -> bool:
        """Return whether all actors are. Raises FarandoleError where one has ended."""
        lives = [started.life for started in self.actors]
        for life in ray.wait(lives, timeout=0)[0]:
            try:
                ray.get(life)
            except ray.exceptions.RayError as error:
                why = _refusal(life) or str(error).strip().rpartition("\n")[2]
                raise FarandoleError(f"RayExecutor: an actor of Ray has ended: {why}") from None
        return self._server.wait(len(self.actors), _LOOK_S)

    def _await(self, is_there: Callable[[], bool], is_scheduled: bool) -> None:
        """Until Ray has given places; or until it has started actors, which have theirs."""
        limit_s = self._settings.placement_group_timeout_s
        until, tell = time.monotonic() + limit_s, WaitMessages(_PATIENCE_S if is_scheduled else _START_PATIENCE_S)
        message = f"waiting for Ray to start {len(self.actors)} actors"
        while not is_there():
            if is_scheduled:
                message = _request.waiting(ray.available_resources(), self._request)
            if time.monotonic() > until:
                raise FarandoleError(
                    f"RayExecutor: {message}, after {limit_s:g} s: other programs of the cluster may use the rest; end "
                    "them, ask for fewer, or wait longer with create_settings(placement_group_timeout_s=...)."
                )
            tell(f"{message} (for {limit_s:g} s at most).")

    def close(self) -> None:
        """Give everything back to Ray."""
        end_actors(self.actors)
        if self._own is not None and ray.is_initialized():
            remove_placement_group(self._own)
        self._own = None


def end_actors(actors: Iterable[StartedActor]) -> None:
    """Kill them. A program that has called ray.shutdown() has none left, and ray.kill would start another Ray."""
    if ray.is_initialized():
        for started in actors:
            ray.kill(started.actor)


class Pool:
    """The actors of an elastic job. Ray is asked for as many as there may be; it has some when nodes have room.

    Use it as a context, which goes on asking.
    """

    def __init__(self, request: Request, server: TaskServer) -> None:
        self._request, self._server, self._starter = request, server, Starter(request, server)
        self._actors: list[StartedActor] = []
        self._leaving: list[StartedActor] = []  # whose nodes will go: their ranks may still be told
        self._ending = threading.Event()
        self._ask_at = 0.0
        self._reported = set[str]()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Pool:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        end_actors([*self._actors, *self._leaving])

    def _follow(self) -> None:
        while not self._ending.wait(_LOOK_S) and ray.is_initialized():
            try:
                self._look()
            except Exception as error:  # whatever it is: the job grows again once Ray answers
                self._tell(f"Ray does not list its nodes ({error}); trying again.")

    def _tell(self, message: str) -> None:
        """Once."""
        if message not in self._reported:
            self._reported.add(message)
            print(f"farandole: {message}", file=sys.stderr, flush=True)

    def _look(self) -> None:
        here, leaving = {task.order: task for task in self._server.tasks()}, _private.draining()
        for started in list(self._actors):
            task = here.get(started.order)
            if ray.wait([started.life], timeout=0)[0] or (started.is_here and task is None):
                self._drop(started)
            elif task is not None and task.identity in leaving:
                self._server.release(started.order)
                self._actors.remove(started)
                self._leaving.append(started)
            started.is_here |= task is not None
        while len(self._actors) < self._request.workers and time.monotonic() >= self._ask_at:
            self._actors.append(self._starter.start(1))

    def _drop(self, started: StartedActor) -> None:
        """It has ended, or its connection has: Ray takes up to 15 s to see a node's end, so ask for others now."""
        self._actors.remove(started)
        if why := _refusal(started.life):
            self._tell(f"{why} The job goes on without it.")
            self._ask_at = time.monotonic() + _AGAIN_S
        end_actors([started])

"""Actors as places for ranks: those of a placement group, and those of an elastic job, which come and go."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import farandole
import ray
from farandole import FarandoleError
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
from farandole_ray._wire import Keys

_METHODS_AT_A_TIME = 1000
_PATIENCE_S = 1.0  # before the user hears what is waited for
_START_PATIENCE_S = 10.0
_LOOK_S = 0.2
_AGAIN_S = 10.0  # until Ray is asked for other actors than those of nodes with other versions


@dataclass(eq=False)
class Place:
    """An actor, once it is up."""

    actor: Any
    slots: int
    facts: dict[str, Any]
    stays: Any  # reference that is ready when the actor has died
    port: int = 0  # for ways, once it is the actor of the agent
    lock: Any = field(default_factory=threading.Lock)

    @property
    def host(self) -> str:
        """The name of its node for the launcher and for messages."""
        return f"{self.facts['name'].partition('.')[0]}-{self.facts['node'][:8]}"


def by_host(places: Sequence[Place]) -> dict[str, list[Place]]:
    """The places of each node, nodes in the order of their first place: never by address, as nodes may share one."""
    found: dict[str, list[Place]] = {}
    for place in places:
        found.setdefault(place.host, []).append(place)
    return found


def _actor(request: Request, together: int, keys: Keys, **options: Any) -> Any:
    needs = {name: each * together for name, each in request.per_worker.items()}
    kind = ray.remote(Actor).options(
        num_cpus=needs.pop("CPU", 0),
        num_gpus=needs.pop("GPU", 0),
        max_concurrency=_METHODS_AT_A_TIME,
        max_restarts=0,
        **options,
    )
    return kind.remote(*keys)


def _check(facts: dict[str, Any]) -> None:
    ours = {"python": ".".join(map(str, sys.version_info[:2])), "farandole": farandole.__version__}
    for what, version in ours.items():
        if facts[what] != version:
            raise FarandoleError(
                f"Ray's node {facts['name']} has {what} {facts[what]}, and the driver has {version}: install the same "
                "there (runtime_env={'pip': [...]}), or another here."
            )


class Group:
    """The places of a job whose size does not change."""

    def __init__(self, request: Request, settings: Settings, keys: Keys, use_current: bool) -> None:
        self._request, self._settings, self._keys = request, settings, keys
        current = get_current_placement_group() if use_current else None
        self._own: PlacementGroup | None = None
        self.places: list[Place] = []
        try:
            if current is None:
                self._make()
            else:
                self._enter(current)
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        request = self._request
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not self._settings.autoscales and (sentence := _request.refusal(nodes, request, request.workers)):
            raise FarandoleError(sentence)
        self._own = placement_group(request.bundles, strategy=request.strategy)
        self._await(self._own.ready())
        together = request.per_host or 1
        actors = [
            _actor(
                request,
                together,
                self._keys,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._own, placement_group_bundle_index=index),
            )
            for index in range(len(request.bundles))
        ]
        self._take(actors, together, has_places=True)

    def _enter(self, current: PlacementGroup) -> None:
        """Into that of the program that we run in, Ray Tune's trial, say."""
        found = sum(_request.places(each, self._request) for each in current.bundle_specs)
        if found < self._request.workers:
            raise FarandoleError(
                f"RayExecutor: the placement group that this program runs in has places for {found}, not for "
                f"{self._request.words}; give it more bundles, or use_current_placement_group=False."
            )
        strategy = PlacementGroupSchedulingStrategy(current)
        actors = [
            _actor(self._request, 1, self._keys, scheduling_strategy=strategy) for _ in range(self._request.workers)
        ]
        self._take(actors, 1, has_places=False)

    def _take(self, actors: list[Any], slots: int, has_places: bool) -> None:
        stays = [each.stay.remote() for each in actors]
        self.places = [Place(actor, slots, {}, stay) for actor, stay in zip(actors, stays, strict=True)]
        facts = [each.facts.remote() for each in actors]
        self._await(*facts, is_scheduled=not has_places)
        for place, found in zip(self.places, ray.get(facts), strict=True):
            _check(found)
            place.facts = found
        self.places = [place for places in by_host(self.places).values() for place in places]

    def _await(self, *references: Any, is_scheduled: bool = True) -> None:
        """Until Ray has given places; or until it has started actors, which have theirs."""
        starting = f"waiting for Ray to start {len(references)} actors"
        began, told, limit_s = time.monotonic(), False, self._settings.placement_group_timeout_s
        while len(ray.wait(list(references), num_returns=len(references), timeout=_LOOK_S)[0]) < len(references):
            waited = time.monotonic() - began
            words = _request.waiting(ray.available_resources(), self._request) if is_scheduled else starting
            if waited > limit_s:
                raise FarandoleError(
                    f"RayExecutor: {words}, after {limit_s:g} s: other programs of the cluster may use the rest; end "
                    "them, ask for fewer, or wait longer with create_settings(placement_group_timeout_s=...)."
                )
            if waited > (_PATIENCE_S if is_scheduled else _START_PATIENCE_S) and not told:
                told = True
                print(f"farandole: {words} (for {limit_s:g} s at most).", file=sys.stderr, flush=True)
        ray.get(list(references))

    def lose(self, host: str, port: int) -> None:
        """The way to this host has ended: all others end with it."""

    def close(self) -> None:
        """Give everything back to Ray."""
        for place in self.places:
            ray.kill(place.actor)
        if self._own is not None:
            remove_placement_group(self._own)
            self._own = None


class Pool:
    """The places of an elastic job. Ray is asked for as many as there may be; it has some when nodes have room."""

    def __init__(self, request: Request, keys: Keys, least: int) -> None:
        self._request, self._keys = request, keys
        self._coming: dict[Any, tuple[Any, Any]] = {}  # reference of facts -> actor, reference of its life
        self.places: list[Place] = []
        self.left: list[Place] = []  # that have died, or will: their ranks may still be told
        self._lost: list[str] = []
        self._ending = threading.Event()
        self._ask_at = 0.0
        self._told = set[str]()
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.refusal = _request.refusal(nodes, request, least)
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """Ask for places, and go on doing so."""
        self._thread.start()

    def _follow(self) -> None:
        while not self._ending.wait(_LOOK_S):
            try:
                self._look()
            except Exception as error:  # whatever it is: the job grows again once Ray answers
                self._tell(f"Ray does not tell which nodes there are ({error}); it is asked again.")

    def _tell(self, words: str) -> None:
        """Once."""
        if words not in self._told:
            self._told.add(words)
            print(f"farandole: {words}", file=sys.stderr, flush=True)

    def _look(self) -> None:
        self._ask()
        self._take_ready()
        self._let_go()

    def _ask(self) -> None:
        if time.monotonic() < self._ask_at:
            return
        while len(self.places) + len(self._coming) < self._request.workers:
            actor = _actor(self._request, 1, self._keys)
            self._coming[actor.facts.remote()] = actor, actor.stay.remote()

    def _take_ready(self) -> None:
        coming = list(self._coming)
        for reference in ray.wait(coming, num_returns=len(coming), timeout=0)[0] if coming else []:
            actor, stays = self._coming.pop(reference)
            try:
                facts = ray.get(reference)
                _check(facts)
            except ray.exceptions.RayError:
                ray.kill(actor)
            except FarandoleError as error:
                self._tell(f"{error} The job goes on without it.")
                self._ask_at = time.monotonic() + _AGAIN_S
                ray.kill(actor)
            else:
                self.places.append(Place(actor, 1, facts, stays))

    def _let_go(self) -> None:
        leaving, lost = _private.draining(), [self._lost.pop() for _ in range(len(self._lost))]
        for place in list(self.places):
            is_lost = place.host in lost or bool(ray.wait([place.stays], timeout=0)[0])
            if is_lost or place.facts["node"] in leaving:
                self.places.remove(place)
                self.left.append(place)
            if is_lost:
                ray.kill(place.actor)

    def lose(self, host: str, port: int) -> None:
        """The way to the actor with this port has ended: Ray takes up to 15 s to see a node's end, so others are asked
        for now.
        """
        if any(place.host == host and place.port == port for place in self.places):
            self._lost.append(host)

    def close(self) -> None:
        """Give everything back to Ray."""
        self._ending.set()
        self._thread.join()
        for actor in [
            *(place.actor for place in (*self.places, *self.left)),
            *(actor for actor, _ in self._coming.values()),
        ]:
            ray.kill(actor)

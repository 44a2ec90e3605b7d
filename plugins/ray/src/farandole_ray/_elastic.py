"""A job whose ranks come and go with the nodes of a Ray cluster."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from farandole import FarandoleError
from farandole.engine import result_in, traceback_in
from farandole.launch import JobSpec

from farandole_ray import _environment, _way
from farandole_ray._desk import Desk
from farandole_ray._launcher import Launcher, new_mark
from farandole_ray._places import Pool
from farandole_ray._request import Request
from farandole_ray._settings import Settings
from farandole_ray._wire import new_keys

_LOOK_S = 0.05
_PATIENCE_S = 5.0  # before the user hears what is waited for: actors take some seconds to start
_SETTLE_S = 1.0  # for more places than are needed, before the job starts


@dataclass(frozen=True)
class Elastic:
    """The job, but for the function of a run."""

    request: Request
    settings: Settings
    least: int
    reset_limit: int | None
    cooldown_range: tuple[float, float] | None
    timeout_s: float

    def run(self, call: bytes, variables: dict[str, str], callbacks: Sequence[Callable[[Any], object]]) -> list[Any]:
        """The results of the ranks that are there at the end. Raises what the rank that failed first has raised."""
        keys, mark = new_keys(), new_mark()
        pool = Pool(self.request, keys, self.least)
        if pool.refusal and not self.settings.autoscales:
            raise FarandoleError(pool.refusal)
        desk = Desk(pool, keys.ways, mark + call)
        pool.start()
        try:
            self._await_places(pool)
            launcher = Launcher(self._spec(desk, len(pool.places)), self._variables(desk, variables))
            launcher.listen(mark, callbacks)
            try:
                while not launcher.ended.wait(_LOOK_S):
                    launcher.show()
            finally:
                launcher.end()
                launcher.show()
            return _results(launcher, desk)
        finally:
            desk.close()
            pool.close()

    def _await_places(self, pool: Pool) -> None:
        until, told = time.monotonic() + self.timeout_s, False
        while len(pool.places) < self.least:
            words = f"waiting for {self.least} places, {len(pool.places)} there"
            if time.monotonic() > until:
                raise FarandoleError(
                    f"RayExecutor: {words}, after {self.timeout_s:g} s: other programs use the rest of the cluster; "
                    "end them, ask for fewer, or raise elastic_timeout."
                )
            if not told and time.monotonic() > until - self.timeout_s + _PATIENCE_S:
                told = True
                print(f"farandole: {words} (for {self.timeout_s:g} s at most).", file=sys.stderr, flush=True)
            time.sleep(_LOOK_S)
        settled = time.monotonic() + _SETTLE_S
        while len(pool.places) < self.request.workers and time.monotonic() < settled:
            time.sleep(_LOOK_S)

    def _spec(self, desk: Desk, ranks: int) -> JobSpec:
        from farandole_ray._executor import leaves_of

        return JobSpec.of(
            _environment.COMMAND,
            num_proc=ranks,
            min_np=self.least,
            max_np=self.request.workers,
            host_discovery_script=_program(desk, "hosts"),
            elastic_timeout=self.timeout_s,
            reset_limit=self.reset_limit,
            blacklist_cooldown_range=self.cooldown_range,
            **leaves_of(self.settings),
        )

    def _variables(self, desk: Desk, variables: dict[str, str]) -> dict[str, str]:
        return _environment.of_launcher({**variables, "FARANDOLE_SSH": _program(desk, "reach")})


def _program(desk: Desk, what: str) -> str:
    return shlex.join([sys.executable, "-I", "-S", str(Path(_way.__file__)), desk.name, what])


def _results(launcher: Launcher, desk: Desk) -> list[Any]:
    outcomes: dict[int, bytes] = {}
    for place in desk.agents:
        try:
            outcomes |= ray.get(place.actor.outcomes.remote(), timeout=10)
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
            continue  # its ranks are lost
    failed = {rank: each for rank, each in outcomes.items() if traceback_in(each)}
    ranks = len(outcomes)
    if launcher.code != 0:
        first = launcher.blamed if launcher.blamed in failed else None
        if first is not None:
            result_in(failed[first], first, ranks)
        raise FarandoleError(launcher.said or f"the launcher ended with exit code {launcher.code} and said nothing.")
    finished = sorted(outcomes.keys() - failed.keys())
    if not finished:
        raise FarandoleError("all ranks left before the function returned, so there is no result; call it again.")
    return [result_in(outcomes[rank], rank, ranks) for rank in finished]

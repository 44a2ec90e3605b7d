"""Answers the programs that the launcher starts on the driver's host: where a host's actor is, and which hosts are."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from typing import Any

import ray

from farandole_ray._places import Group, Place, Pool, by_host
from farandole_ray._wire import is_ours

_SERVE_S = 8.0  # for an actor to be that of the agent: less than the way waits for our answer


class Desk:
    """At an abstract Unix socket, for this user's processes."""

    def __init__(self, source: Group | Pool, token: str, call: bytes = b"") -> None:
        self.name = f"farandole-ray-{secrets.token_hex(16)}"
        self._source, self._token = source, token
        self._call = call  # no reference: a node would fetch it from any node that has a copy, also from a lost one
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(f"\0{self.name}")
        self._socket.listen(128)
        self.agents: list[Place] = []  # each of which has, or had, the agent of its node
        threading.Thread(target=self._accept, daemon=True).start()

    def hosts(self) -> dict[str, int]:
        """The hosts, and the ranks that each may have."""
        return {host: sum(each.slots for each in found) for host, found in by_host(self._source.places).items()}

    def close(self) -> None:
        """Answer no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                channel, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(channel,), daemon=True).start()

    def _serve(self, channel: socket.socket) -> None:
        with channel, contextlib.suppress(OSError, ValueError):
            if not is_ours(channel):
                return
            with channel.makefile("rb") as lines:
                question = json.loads(lines.readline())
            answer = self._answer(question)
            channel.sendall(json.dumps(answer).encode() + b"\n")

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if "lost" in question:
            self._source.lose(question["lost"], question["port"])
            return {}
        return self._where(question["host"]) if "host" in question else {"hosts": self.hosts()}

    def _where(self, host: str) -> dict[str, Any]:
        places = by_host(self._source.places).get(host, [])
        for place in places:
            try:
                return {"address": place.facts["address"], "port": self._port(place, places), "token": self._token}
            except ray.exceptions.GetTimeoutError:
                return {"error": f"Ray's actor on {host} has not answered within {_SERVE_S:g} s"}
            except ray.exceptions.RayError:
                continue
        return {"error": f"Ray has no actor of this job on {host} any more: the node or the actor has died"}

    def _port(self, place: Place, beside: list[Place]) -> int:
        with place.lock:
            if not place.port:
                gpus = [gpu for each in beside for gpu in each.facts["gpus"]]
                node, address = place.facts["node"], place.facts["address"]
                place.port = ray.get(place.actor.serve.remote(node, address, gpus, self._call), timeout=_SERVE_S)
                self.agents.append(place)
            return place.port

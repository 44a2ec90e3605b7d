"""Ray's actor for one or more places of ranks: a task of farandole.engine. The first one of a node runs the agent.

actor -> server of the driver               it connects; the launcher gets this connection, if the actor has the agent
driver -> actor -> rank                     calls and their outcomes, by Ray and a Unix socket
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from typing import Any

from farandole import FarandoleError
from farandole.engine import Invitation, hear, hear_bytes, is_ours, result_in, say, serve

from farandole_ray import _environment

_AGAIN_SECONDS = 0.1  # after a connection that could not be accepted
GONE = b""  # in the place of an outcome: the rank has ended before


class Actor:
    """Holds resources of a node; see above. Its methods run in threads."""

    def __init__(self) -> None:
        self._name = f"farandole-ray-{secrets.token_hex(16)}"
        self._ranks: dict[int, tuple[socket.socket, threading.Lock]] = {}
        self._change = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"\0{self._name}")
        self._listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def take_part(self, invitation: Invitation, secret: bytes, order: int, slots: int) -> None:
        """Be a task of the job until it ends. Raises FarandoleError where this node cannot take part."""
        import ray

        context = ray.get_runtime_context()
        node = context.get_node_id()
        serve(
            invitation,
            order=order,
            secret=secret,
            name=f"{socket.gethostname().partition('.')[0]}-{node[:8]}",
            identity=node,
            slots=slots,
            gpus=context.get_accelerator_ids().get("GPU", []),
            variables=_environment.for_ranks(self._name, node),
            leave_out=_environment.OF_AN_ACTOR,
        )

    def _accept(self) -> None:
        while True:
            try:
                rank, _ = self._listener.accept()
            except OSError:  # no descriptor is left, for instance
                time.sleep(_AGAIN_SECONDS)
                continue
            threading.Thread(target=self._welcome, args=(rank,), daemon=True).start()

    def _welcome(self, rank: socket.socket) -> None:
        if not is_ours(rank):
            rank.close()
            return
        number = hear(rank)["number"]
        with self._change:
            self._ranks[number] = rank, threading.Lock()
            self._change.notify_all()

    def await_ranks(self, numbers: list[int], seconds: float) -> bool:
        """Return whether these have come within the time."""
        with self._change:
            return self._change.wait_for(lambda: self._ranks.keys() >= set(numbers), seconds)

    def outcome(self, number: int, call: bytes, mark: str) -> bytes:
        """The outcome of a call on a rank of this node; GONE if the rank ends before."""
        with self._change:
            rank, one_at_a_time = self._ranks.get(number, (None, None))
        if rank is None or one_at_a_time is None:
            return GONE
        try:
            with one_at_a_time:
                say(rank, "call", mark=mark, size=len(call))
                rank.sendall(call)
                return bytes(hear_bytes(rank, hear(rank)["size"]))
        except OSError:
            return GONE

    def result(self, number: int, ranks: int, call: bytes, mark: str) -> Any:
        """The result of a call on a rank of this node. Raises what the call raised."""
        outcome = self.outcome(number, call, mark)
        if outcome == GONE:
            raise FarandoleError(f"rank {number} of {ranks} ended before its call returned; see its output")
        return result_in(outcome, number, ranks)

    def end(self) -> None:
        """The ranks end as their streams do."""
        with self._change:
            for rank, _ in self._ranks.values():
                rank.shutdown(socket.SHUT_RDWR)
                rank.close()
            self._ranks.clear()

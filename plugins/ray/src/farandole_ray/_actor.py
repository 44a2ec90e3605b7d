"""Ray's actor for one or more places of ranks. The first actor of a node has the launcher's agent of that node as well.

launcher -> _way.py -> actor -> agent -> ranks        the agent ends with the actor, and its ranks with the agent
driver -> actor -> rank                               calls and their outcomes, by Ray
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import shlex
import socket
import struct
import subprocess
import sys
import threading
from typing import Any

from farandole_ray._environment import of_agent
from farandole_ray._processes import end_with
from farandole_ray._way import _CHUNK, _CODE, _FRAME, _STDERR, _STDOUT
from farandole_ray._wire import NUMBER, exactly, is_ours, receive, send

_AGENT = ["-m", "farandole.launch.remote.agent"]
_TASK_AGENT = "farandole.launch.remote.task_agent"  # whose ranks have a key that the launcher does not know
GONE = b""  # in the place of an outcome: the rank has ended before


class Actor:
    """Holds resources of a node; see above. Its methods run in threads."""

    def __init__(self, token: str, secret: str = "") -> None:
        self._token, self._secret = bytes.fromhex(token), bytes.fromhex(secret)
        self._name = f"farandole-ray-{secrets.token_hex(16)}"
        self._ranks: dict[int, socket.socket] = {}
        self._change = threading.Condition()
        self._call_of_all = b""  # of an elastic job: made by each rank that comes
        self._outcomes: dict[int, bytes] = {}
        self._visible = self._node = ""
        self._port = 0  # for ways, once this is the actor of the agent
        self._serving = threading.Lock()

    def facts(self) -> dict[str, Any]:
        """About this node and what Ray has given us of it."""
        import ray
        from farandole import __version__

        context = ray.get_runtime_context()
        ids = context.get_accelerator_ids()
        return {
            "node": context.get_node_id(),
            "address": ray.util.get_node_ip_address(),
            "name": socket.gethostname(),
            "gpus": ids.get("GPU", []),
            "python": ".".join(map(str, sys.version_info[:2])),
            "farandole": __version__,
        }

    def stay(self) -> None:
        """Returns never: who waits for it hears at once that this actor has died."""
        threading.Event().wait()

    def serve(self, node: str, address: str, gpus: list[str], call: bytes = b"") -> int:
        """Be the actor of the agent, whose ranks see these GPUs: the TCP port for ways. A driver that has not heard the
        answer in time asks again.

        `call`: what each rank of an elastic job calls.
        """
        with self._serving:
            if not self._port:
                self._node, self._visible, self._call_of_all = node, ",".join(gpus), call
                self._port = self._listen(address)
            return self._port

    def _listen(self, address: str) -> int:
        ranks = socket.socket(socket.AF_UNIX)
        ranks.bind(f"\0{self._name}")
        ways = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        for listener, welcome in ((ranks, self._welcome_rank), (ways, self._welcome_way)):
            listener.listen(128)
            threading.Thread(target=self._accept, args=(listener, welcome), daemon=True).start()
        port: int = ways.getsockname()[1]
        return port

    def _accept(self, listener: socket.socket, welcome: Any) -> None:
        while True:
            channel, _ = listener.accept()
            threading.Thread(target=welcome, args=(channel,), daemon=True).start()

    # Ranks

    def _welcome_rank(self, channel: socket.socket) -> None:
        if not is_ours(channel) or (said := exactly(channel, NUMBER.size)) is None:
            channel.close()
            return
        (number,) = NUMBER.unpack(said)
        if self._call_of_all:
            outcome = self._ask(channel, self._call_of_all)
            with self._change:
                self._outcomes[number] = outcome
                self._change.notify_all()
            channel.close()
            return
        with self._change:
            self._ranks[number] = channel
            self._change.notify_all()

    def _ask(self, channel: socket.socket, call: bytes) -> bytes:
        try:
            send(channel, call)
        except OSError:
            return GONE
        return receive(channel) or GONE

    def await_ranks(self, numbers: list[int], seconds: float) -> bool:
        """Returns whether these have come within the time."""
        with self._change:
            return self._change.wait_for(lambda: self._ranks.keys() >= set(numbers), seconds)

    def outcome(self, number: int, call: bytes, mark: bytes) -> bytes:
        """Of a call on a rank of this node; GONE where it ends before."""
        with self._change:
            channel = self._ranks.get(number)
        return GONE if channel is None else self._ask(channel, mark + call)

    def result(self, number: int, ranks: int, call: bytes, mark: bytes) -> Any:
        """Of a call on a rank of this node. Raises what the call raised."""
        from farandole import FarandoleError
        from farandole.engine import result_in

        outcome = self.outcome(number, call, mark)
        if outcome == GONE:
            raise FarandoleError(f"rank {number} of {ranks} ended before its call returned; see its output")
        return result_in(outcome, number, ranks)

    def outcomes(self) -> dict[int, bytes]:
        """Of the ranks of an elastic job that have ended here."""
        with self._change:
            return {number: each for number, each in self._outcomes.items() if each != GONE}

    def end(self) -> None:
        """The ranks end as their streams do."""
        with self._change:
            for channel in self._ranks.values():
                channel.close()
            self._ranks.clear()

    # The launcher's ways

    def _welcome_way(self, channel: socket.socket) -> None:
        channel.settimeout(10.0)
        nonce = secrets.token_bytes(32)
        try:
            channel.sendall(nonce)
            proof = exactly(channel, 32) or b""
            if not hmac.compare_digest(proof, hmac.new(self._token, nonce, hashlib.sha256).digest()):
                channel.close()
                return
            (size,) = struct.unpack("!I", exactly(channel, 4) or b"\0\0\0\0")
            said = json.loads(exactly(channel, size) or b"")
        except (OSError, ValueError):
            channel.close()
            return
        channel.settimeout(None)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._be_way(channel, shlex.split(said["command"]))

    def _be_way(self, channel: socket.socket, words: list[str]) -> None:
        """`words`: exec, the launcher's Python, its arguments. Ours is that of Ray's worker here."""
        reader, writer = os.pipe()
        with open(writer, "wb") as secret:
            secret.write(self._secret)
        if words[2:] == _AGENT:
            words = [*words[:2], "-m", _TASK_AGENT, str(os.getpid()), str(reader)]
        with open(reader, "rb"):
            agent = subprocess.Popen(
                end_with(os.getpid(), [sys.executable, *words[2:]]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[reader],
                env=of_agent(self._name, self._node, self._visible),
            )
        assert agent.stdin and agent.stdout and agent.stderr
        lock = threading.Lock()
        pumps = [
            threading.Thread(target=_to_way, args=(channel, kind, pipe.fileno(), lock), daemon=True)
            for kind, pipe in ((_STDOUT, agent.stdout), (_STDERR, agent.stderr))
        ]
        listening = threading.Thread(target=_from_way, args=(channel, agent.stdin), daemon=True)
        for each in (*pumps, listening):
            each.start()
        code = agent.wait()  # the thread lives as long as the agent, which its end would kill
        for each in pumps:
            each.join()
        agent.stdout.close()
        agent.stderr.close()
        text = str(code if code >= 0 else 128 - code).encode()
        _frame(channel, _CODE, text, lock)
        channel.close()


def _frame(channel: socket.socket, kind: int, data: bytes, lock: Any) -> bool:
    try:
        with lock:
            channel.sendall(_FRAME.pack(kind, len(data)) + data)
    except OSError:
        return False
    return True


def _to_way(channel: socket.socket, kind: int, descriptor: int, lock: Any) -> None:
    alive = True
    while data := os.read(descriptor, _CHUNK):
        alive = alive and _frame(channel, kind, data, lock)


def _from_way(channel: socket.socket, stdin: Any) -> None:
    with contextlib.suppress(OSError):
        while data := channel.recv(_CHUNK):
            stdin.write(data)
            stdin.flush()
    with contextlib.suppress(OSError):
        stdin.close()  # the agent ends its ranks

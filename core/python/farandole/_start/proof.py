"""Lets both ends of a connection prove that they have the job's key, before either reads anything else. Pure.

    listener                                        caller
    hello, nonce                              ->    closes if the hello is that of another program
    closes if the proof is wrong             <-     nonce, HMAC(key, "caller" both nonces)
    HMAC(key, "listener" both nonces)         ->    closes if the proof is wrong

The proofs contain different words, so neither can be sent back to its maker. The hello does not depend on the key. All
sizes are fixed, so a stranger makes us keep at most a few hundred bytes.
"""

from __future__ import annotations

import hmac
import os

_HELLO = b"farandole nodes 1\n"
_NONCE_BYTES = 16
_MAC_BYTES = 32
_OTHER_KEY = "it does not have the key of this job"


class ProofError(Exception):
    """The other end does not belong to this job."""


class OtherProgramError(ProofError):
    """The other end is not a launcher, or has another version."""


def job_key(key: bytes, salt: bytes) -> bytes:
    """Derive the key for the ranks of one start, which differs from that of an earlier start with the same file."""
    return hmac.digest(key, b"farandole job\0" + salt, "sha256")


class Proof:
    """One end of a new connection, as a state machine over bytes."""

    def __init__(self, key: bytes, is_listener: bool) -> None:
        self._key, self._is_listener = key, is_listener
        self._mine, self._theirs = os.urandom(_NONCE_BYTES), b""
        self._received = bytearray()
        self.is_done = False

    def first(self) -> bytes:
        """Return the bytes to send once the connection is there."""
        return _HELLO + self._mine if self._is_listener else b""

    @property
    def has_proved(self) -> bool:
        """Return whether our proof has been sent, so that the end of the connection means that it was refused."""
        return bool(self._theirs)

    def feed(self, data: bytes) -> bytes:
        """Take bytes that have come, or b"" at the end of the connection, and return bytes to send.

        REQUIRES: the other end waits for our first frame, because bytes after its proof are refused.
        Raises ProofError, also if the other end refuses our proof, and ConnectionError.
        """
        if not data and self.has_proved:
            raise ProofError("it refused the key of this job")
        if not data:
            raise ConnectionError("it ended the connection")
        self._received += data
        if self._is_listener:
            return self._hear_caller()
        answer = b""
        if not self._theirs:
            if not _HELLO.startswith(bytes(self._received[: len(_HELLO)])):
                raise OtherProgramError
            hello = self._take(len(_HELLO) + _NONCE_BYTES)
            if not hello:
                return b""
            self._theirs = hello[len(_HELLO) :]
            answer = self._mine + self._mac(b"caller", self._theirs, self._mine)
        proof = self._take(_MAC_BYTES)
        if proof and not hmac.compare_digest(proof, self._mac(b"listener", self._theirs, self._mine)):
            raise ProofError(_OTHER_KEY)
        if proof:
            self._end()
        return answer

    def _hear_caller(self) -> bytes:
        content = self._take(_NONCE_BYTES + _MAC_BYTES)
        if not content:
            return b""
        theirs, proof = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
        if not hmac.compare_digest(proof, self._mac(b"caller", self._mine, theirs)):
            raise ProofError(_OTHER_KEY)
        self._theirs = theirs
        self._end()
        return self._mac(b"listener", self._mine, theirs)

    def _mac(self, word: bytes, listeners: bytes, callers: bytes) -> bytes:
        return hmac.digest(self._key, b"farandole nodes\0" + word + b"\0" + listeners + callers, "sha256")

    def _take(self, size: int) -> bytes:
        """Take `size` bytes, or none if they have not all arrived."""
        if len(self._received) < size:
            return b""
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _end(self) -> None:
        if self._received:
            raise ConnectionError("its message is too long")
        self.is_done = True

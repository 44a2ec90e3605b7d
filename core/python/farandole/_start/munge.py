"""MUNGE, the authentication service of a cluster: seals bytes that only this user can read, on any of its hosts.

    seal(bytes) -> "MUNGE:...:"      by the munged of this host, with the cluster's key
    unseal(text) -> the bytes        if munged confirms that the same user has sealed them

libmunge is opened at run time. Every host of a Slurm cluster that uses MUNGE, the default, has it.
"""

from __future__ import annotations

import base64
import ctypes
import os
from dataclasses import dataclass
from typing import Any

PREFIX = "MUNGE:"
_LIBRARY = "libmunge.so.2"
_UID_RESTRICTION = 9  # munge_opt_t
_SUCCESS = 0
_PLAIN = "PLAIN:"
# Codes for credentials that are too old, from the future (a slow clock), or were read before on this host. munged still
# vouches for their content, and age does not matter, because the caller puts its job into the content.
_GENUINE = frozenset({_SUCCESS, 15, 16, 17})


def seal(content: bytes) -> str:
    """Return a credential for processes of this user, or "" if this host has no MUNGE."""
    library = _library()
    context = library.munge_ctx_create() if library else None
    if library is None or not context:
        return ""
    credential = ctypes.c_char_p()
    try:
        if library.munge_ctx_set(ctypes.c_void_p(context), _UID_RESTRICTION, ctypes.c_uint32(os.getuid())):
            return ""
        if library.munge_encode(ctypes.byref(credential), ctypes.c_void_p(context), content, len(content)):
            return ""
        return (credential.value or b"").decode()
    finally:
        library.munge_ctx_destroy(ctypes.c_void_p(context))
        _free(credential)


def unseal(text: str) -> bytes:
    """Return the content of a credential. Raises PermissionError if munged does not confirm that this user made it."""
    library = _library()
    if library is None:
        raise PermissionError(f"it is sealed by MUNGE, but this host has no {_LIBRARY}; install it on all hosts")
    content, length = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    places = (content, length, uid, gid)
    error = library.munge_decode(text.encode(), None, *(ctypes.byref(each) for each in places))
    try:
        if error not in _GENUINE:
            raise PermissionError(
                f"MUNGE does not vouch for it: {library.munge_strerror(error).decode()}; run munged with the same key "
                "on all hosts"
            )
        if uid.value != os.getuid():
            raise PermissionError(f"user id {uid.value} has sealed it, not ours")
        return ctypes.string_at(content, length.value) if content.value else b""
    finally:
        _free(content)


@dataclass(frozen=True)
class Seal:
    """Writes a rank's bytes for a store of the launcher: sealed with rank and job, or plain without MUNGE."""

    name: str
    job: str

    def close(self, content: bytes) -> str:
        """Return the text for the store, which consists of letters, digits and +/=:."""
        if not content:
            return ""
        return seal(self._label() + content) or _PLAIN + base64.b64encode(content).decode()

    def believed(self, text: str, rank: int) -> bytes:
        """Return the bytes of this rank. Raises PermissionError for others, and for plain ones if MUNGE is there."""
        try:
            return self._open(text)
        except PermissionError as error:
            raise PermissionError(f"what rank {rank} has put into Slurm's PMI cannot be trusted: {error}") from error

    def _open(self, text: str) -> bytes:
        if not text:
            return b""
        if text.startswith(PREFIX):
            label, content = self._label(), unseal(text)
            if not content.startswith(label):
                raise PermissionError("it was sealed for another rank or step")
            return content[len(label) :]
        if seal(b"?"):
            raise PermissionError("it is not sealed, although this host has MUNGE; run munged on all hosts")
        return base64.b64decode(text.removeprefix(_PLAIN))

    def _label(self) -> bytes:
        return f"{self.job} {self.name}\0".encode()


def _library() -> Any:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_strerror.restype = ctypes.c_char_p
    return library


def _free(pointer: ctypes.c_char_p | ctypes.c_void_p) -> None:
    ctypes.CDLL(None).free(ctypes.cast(pointer, ctypes.c_void_p))

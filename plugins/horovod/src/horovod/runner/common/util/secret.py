"""Keys that processes prove to each other."""

import os


def make_secret_key() -> bytes:
    """Return a new key of 32 random bytes."""
    return os.urandom(32)

"""Fingerprints of the values of arrays, by which ranks see whether theirs are equal without sending them."""

from __future__ import annotations

import zlib

_WORDS, _ROWS = 512, 256  # of a row; rows at once
_SMALL_BYTES = 64 << 10


def fingerprint(content: memoryview) -> int:
    """A number that is alike for equal bytes, and else differs, unless somebody meant it not to.

    Sums of rows and of columns take a fifth of the time of a checksum of it all.
    """
    if len(content) < _SMALL_BYTES:
        return zlib.crc32(content)
    try:
        import numpy as np
    except ImportError:
        return zlib.crc32(content)
    whole = len(content) // (8 * _WORDS) * (8 * _WORDS)
    words = np.frombuffer(content[:whole], np.uint64).reshape(-1, _WORDS)
    columns, rows = np.zeros(_WORDS, np.uint64), np.empty(len(words), np.uint64)
    for begin in range(0, len(words), _ROWS):  # so many are in the cache when they are read again
        some = words[begin : begin + _ROWS]
        columns += some.sum(axis=0)
        some.sum(axis=1, out=rows[begin : begin + _ROWS])
    return zlib.crc32(rows.data, zlib.crc32(columns.data, zlib.crc32(content[whole:])))

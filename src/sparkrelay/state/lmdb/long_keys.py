"""Keys as LMDB can hold them: 1 to 511 bytes.

A key of 1 to 510 bytes is stored unchanged. Any other is *spelt*: its first 479 bytes, zero-padded for the empty key,
and its BLAKE2b digest of 32 bytes: 511 bytes, which no unchanged key has. Its stored value begins with the key's length
in 4 bytes and the key itself. Refused: an error (users cannot shorten the keys of other people's topics), and a table
of keys by number (a second look-up for each key, long or not).
"""

from __future__ import annotations

import hashlib
import struct

#: Length of spelt keys only.
SPELT_BYTES = 511
_DIGEST_BYTES = 32
#: The prefix of a long key that determines its order.
PREFIX_BYTES = SPELT_BYTES - _DIGEST_BYTES
_LENGTH = struct.Struct("<I")


def spell(key: bytes) -> bytes:
    """Return the key to store ``key`` under."""
    if 0 < len(key) < SPELT_BYTES:
        return key
    return key[:PREFIX_BYTES].ljust(PREFIX_BYTES, b"\x00") + hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()


def spelt_value(key: bytes, value: bytes) -> bytes:
    """Return the stored value of a spelt key."""
    return _LENGTH.pack(len(key)) + key + value


def read_spelt(stored: bytes) -> tuple[bytes, bytes]:
    """Return the key and the value of a spelt key's stored value."""
    (length,) = _LENGTH.unpack_from(stored)
    end = _LENGTH.size + length
    return stored[_LENGTH.size : end], stored[end:]

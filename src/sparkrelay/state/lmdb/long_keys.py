"""Keys as LMDB can hold them: 1 to 511 bytes.

A key of 1 to 510 bytes stands as it is. Any other is *spelt*: its first 479 bytes (zeros where it is shorter, which
only the empty key is) and the BLAKE2b digest of all of it, 32 bytes; 511 in sum, so no plain key looks the same. Its
value then begins with the key's length in 4 bytes and the key itself. Refused: an error (a user cannot shorten the
keys of a topic that others write), and a table of keys by number (a second look-up for each key, long or not).
"""

from __future__ import annotations

import hashlib
import struct

__all__ = ["PREFIX_BYTES", "SPELT_BYTES", "read_spelt", "spell", "spelt_value"]

#: Length of every spelt key, and of no other.
SPELT_BYTES = 511
_DIGEST_BYTES = 32
#: How much of a long key keeps its place in the order.
PREFIX_BYTES = SPELT_BYTES - _DIGEST_BYTES
_LENGTH = struct.Struct("<I")


def spell(key: bytes) -> bytes:
    """Return the key to store ``key`` under."""
    if 0 < len(key) < SPELT_BYTES:
        return key
    return key[:PREFIX_BYTES].ljust(PREFIX_BYTES, b"\x00") + hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()


def spelt_value(key: bytes, value: bytes) -> bytes:
    """Return what stands under a spelt key."""
    return _LENGTH.pack(len(key)) + key + value


def read_spelt(stored: bytes) -> tuple[bytes, bytes]:
    """Return the key and the value that stand under a spelt key."""
    (length,) = _LENGTH.unpack_from(stored)
    end = _LENGTH.size + length
    return stored[_LENGTH.size : end], stored[end:]

"""Keys inside the keys of a store: each after its length, so that none is a prefix of another.

A long one is replaced by its digest: LMDB takes 511 bytes, and keys that it takes unchanged can be read in their order.
What differs from store to store is data, a :class:`KeyPart`. The bytes are stored: no ``KeyPart`` may ever change.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.state.byte_arrays import fixed, side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class KeyPart:
    """How keys are written inside others: the length, big endian, then the key or its digest.

    Attributes:
        length_bytes: the size of the length.
        longest: the longest key that is written itself.
        digest: of longer keys.
        marked: True to put bytes FF in front of a digest, False for the length of its key.
    """

    length_bytes: int
    longest: int = sys.maxsize
    digest: Callable[[bytes], bytes] = bytes
    marked: bool = False

    def of(self, key: bytes) -> bytes:
        """Return a key as a part."""
        long = len(key) > self.longest
        length = b"\xff" * self.length_bytes if long and self.marked else len(key).to_bytes(self.length_bytes, "big")
        return length + (self.digest(key) if long else key)

    def of_all(self, keys: pa.Array) -> pa.Array:
        """Return keys as parts; null for null."""
        lengths = pc.binary_length(keys.fill_null(b"") if keys.null_count else keys).to_numpy(zero_copy_only=False)
        if len(keys) and int(lengths.max()) > self.longest:
            return pa.array([None if key is None else self.of(key) for key in keys.to_pylist()], pa.binary())
        return side_by_side(fixed(lengths.astype(f">u{self.length_bytes}"), self.length_bytes), keys)

    def read(self, part: bytes) -> bytes | None:
        """Return the key in a marked part; None for a digest."""
        length = int.from_bytes(part[: self.length_bytes], "big")
        return part[self.length_bytes :] if length <= self.longest else None


def blake2b(size: int) -> Callable[[bytes], bytes]:
    """Return the function that makes digests of this size."""
    return lambda key: hashlib.blake2b(key, digest_size=size).digest()


#: Of keys of tables with a history or a ranking, and of joined streams.
_KEY: Final = KeyPart(2, longest=400, digest=blake2b(32), marked=True)


def key_parts(keys: pa.Array) -> pa.Array:
    """Return keys as parts of a store's keys."""
    return _KEY.of_all(keys)


def plain_key(part: bytes) -> bytes | None:
    """Return the key of a part; None for a digest."""
    return _KEY.read(part)

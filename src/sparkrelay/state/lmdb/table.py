"""One LMDB table, in which each row ends with a checksum of table, key and value.

LMDB does not verify what it reads from the disk; RocksDB, the store of Kafka Streams, has block checksums. Missing rows
are detected by a running sum (``running_sum``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import StoreCorruptedException
from sparkrelay.records.row_checksums import CHECKSUM_BYTES, checksum, checksums, first_damaged
from sparkrelay.state.byte_arrays import fixed, side_by_side

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Table:
    """A table of an environment. Its keys and values are stored ones (``long_keys``).

    Methods raise StoreCorruptedException for rows that are not what was written.

    Attributes:
        handle: LMDB's.
        name: the table's.
        path: the directory of the environment.
        seed: of its checksums.
    """

    handle: Any
    name: str
    path: Path
    seed: int

    @classmethod
    def of(cls, handle: Any, name: str, path: Path) -> Self:
        """Return the table of a handle."""
        return cls(handle, name, path, crc32c.crc32c(name.encode()))

    def seal(self, key: bytes, value: bytes) -> bytes:
        """Return a value with its checksum."""
        return value + checksum(self.seed, key, value).to_bytes(CHECKSUM_BYTES, "little")

    def unseal(self, key: bytes, stored: bytes) -> bytes:
        """Return a value without its checksum."""
        value, end = stored[:-CHECKSUM_BYTES], stored[-CHECKSUM_BYTES:]
        if len(stored) < CHECKSUM_BYTES or checksum(self.seed, key, value) != int.from_bytes(end, "little"):
            raise self._row_damaged(key)
        return value

    def checksums(self, keys: pa.Array, values: pa.Array) -> NDArray[np.uint32]:
        """Return the checksum of each row; 0 where the value is null."""
        return checksums(self.seed, keys, values)

    def seal_all(self, keys: pa.Array, values: pa.Array) -> tuple[pa.Array, NDArray[np.uint32]]:
        """Return values with their checksums, and the checksums; nulls stay null, with checksum 0."""
        found = self.checksums(keys, values)
        return side_by_side(values, fixed(found.astype("<u4", copy=False), CHECKSUM_BYTES)), found

    def unseal_all(self, keys: pa.Array, stored: pa.Array) -> pa.Array:
        """Return values without their checksums; nulls stay null."""
        row = first_damaged(self.seed, keys, stored)
        if row is not None:
            raise self._row_damaged(keys[row].as_py())
        return pc.binary_slice(stored, 0, -CHECKSUM_BYTES)

    def checksums_behind(self, stored: pa.Array) -> NDArray[np.uint32]:
        """Return the checksums of stored values, which are not null."""
        if len(stored) and pc.min(pc.binary_length(stored)).as_py() < CHECKSUM_BYTES:
            raise self.damaged(f"a row of table {self.name!r} has no checksum")
        ends = pc.binary_slice(stored, -CHECKSUM_BYTES).cast(pa.binary(CHECKSUM_BYTES))
        return np.frombuffer(ends.buffers()[1], "<u4", count=len(stored), offset=ends.offset * CHECKSUM_BYTES)

    def damaged(self, what: str) -> StoreCorruptedException:
        """Return the error for a damaged table."""
        return StoreCorruptedException(
            f"the state in {self.path} is damaged: {what}. The disk, its file system or the machine's memory may be "
            "failing. The state must be rebuilt from its changelog"
        )

    def was_misread(self, what: str) -> StoreCorruptedException:
        """Return the error for a table whose rows were not found, perhaps long before it was noticed."""
        return StoreCorruptedException(
            f"{self.damaged(what)}. Results may be wrong that were written since the damage: batches did not find such "
            "rows, and the changelog has their results. To correct them, stop all instances and start the application "
            "over: sparkrelay reset"
        )

    def _row_damaged(self, key: bytes) -> StoreCorruptedException:
        shown = key if len(key) <= 40 else key[:40] + b"..."
        return self.damaged(f"the row under key {shown!r} of table {self.name!r} does not have the checksum it had")

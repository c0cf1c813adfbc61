"""Reading a store after a leg's share of a batch was applied, while its rows are emitted.

One batch may find, delete or end more rows than fit into memory: a hot join key has millions. So they are read in
pieces, each in its own transaction. None of them is removed before the batch is known to be committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import StoreCorruptedException
from sparkrelay.state import journal
from sparkrelay.state.lmdb import rows, scan
from sparkrelay.state.window_keys import over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from sparkrelay.state.batch import Applied
    from sparkrelay.state.lmdb.environment import Environment
    from sparkrelay.state.lmdb.table import Table

_PIECE_BYTES: Final = 32 << 20


class StoreAfter:
    """A store after a leg's share of a batch, made by :meth:`TaskStore.after`.

    Its methods raise StoreOutOfStepException once the batch is undone.
    """

    def __init__(
        self, environment: Environment, table: Table, journals: Table, applied: Applied, check: Callable[[Any], object]
    ) -> None:
        self._environment = environment
        self._table = table
        self._journals = journals
        self._applied = applied
        self._check = check

    def get(self, keys: pa.Array) -> pa.Array:
        """Return the values of existing keys at once.

        Raises:
            StoreCorruptedException: a key is missing.
        """
        return self._get(keys, rows.get)

    def get_pieces(self, keys: pa.Array) -> Iterator[pa.Array]:
        """Yield the values of existing keys in their order, some MB at a time; as :meth:`get`."""

        def get_some(transaction: Any, table: Table, some: pa.Array) -> pa.Array:
            return rows.get_some(transaction, table, some, _PIECE_BYTES)

        first = 0
        while first < len(keys):
            values = self._get(keys[first:], get_some)
            yield values
            first += len(values)

    def _get(self, keys: pa.Array, get: Callable[[Any, Any, pa.Array], pa.Array]) -> pa.Array:
        def read(transaction: Any) -> pa.Array:
            self._check(transaction)
            return get(transaction, self._table, keys)

        values = self._environment.read(read)
        if values.null_count:
            raise StoreCorruptedException(
                f"{values.null_count} of {len(values)} rows that batch {self._applied.entry.batch} has found in store "
                f"{self._applied.entry.store!r} are missing; it must be rebuilt from its changelog"
            )
        return values

    def over(self, kind: bytes = b"") -> Iterator[pa.RecordBatch]:
        """Yield ``key, value`` of the rows that end with the batch, in the order of keys.

        With ``kind``, a byte, only of keys whose byte after the end is this or higher.
        """
        if self._applied.over is not None:
            start, stop = map(over, self._applied.over)
            yield from scan.scan(self._environment, self._table, start, stop, check=self._check, kind=kind)

    def before(self) -> Iterator[pa.RecordBatch]:
        """Yield ``key, old`` of the share's changes."""
        at, entry = 0, self._applied.entry

        def read(transaction: Any) -> tuple[pa.RecordBatch, int] | None:
            self._check(transaction)
            return journal.read_next(transaction, self._journals, entry, at)

        while (found := self._environment.read(read)) is not None:
            changes, at = found
            yield changes

"""Questions for keys of one store that come at the same time, answered by one reading.

Reading and writing a row is a chain of calls that are made for many rows, and for one they cost as much. Each of them
may also give the interpreter away, to a batch thread that keeps it for milliseconds. So whoever comes while a reading
is under way waits for its end, and then one of them reads for all that wait. Who comes alone waits for nobody.

Refused: waiting a little for others to come, which costs time where nobody does; a thread that reads for all, which
would have each question handed over twice.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from sparkrelay.errors import RecordException, StoreCorruptedException
from sparkrelay.records.json.writer import columns_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from sparkrelay.runtime.worker.store_reading import StoreRead

__all__ = ["KeyRead", "SharedReads"]

#: Keys of one reading: what more than that wait for is read next.
_MOST: Final = 256


@dataclass(frozen=True, slots=True)
class KeyRead:
    """What was read of one key.

    Attributes:
        rows: its row, or none.
        text: that as JSON; None where there is none, or nobody wanted one.
        read: the reading, also of other keys.
    """

    rows: pa.RecordBatch
    text: bytes | None
    read: StoreRead


@dataclass(slots=True)
class _Asked:
    """A key that somebody waits for; ``found`` or ``error`` once it is read."""

    key: pa.RecordBatch
    as_of: Hashable
    as_json: bool
    read: Callable[[pa.RecordBatch], StoreRead]
    found: KeyRead | None = None
    error: Exception | None = None

    @property
    def answered(self) -> bool:
        return self.found is not None or self.error is not None


class SharedReads:
    """The readings of one task's store. Any thread may ask."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._waiting: deque[_Asked] = deque()

    def row(
        self,
        key: pa.RecordBatch,
        as_of: Hashable,
        read: Callable[[pa.RecordBatch], StoreRead],
        *,
        as_json: bool = False,
    ) -> KeyRead:
        """Return what is read of a key; waits for at most one reading before its own.

        Args:
            key: all its columns.
            as_of: which batch and copy is to be read: readings of others are apart.
            read: reads keys as of that; begins after the question came, whoever calls it.
            as_json: whether the row is wanted as JSON.

        Raises:
            StateStoreException: the store cannot be read.
            RecordException: what it holds of the key cannot be read, or not be written as JSON.
        """
        own = _Asked(key, as_of, as_json, read)
        self._waiting.append(own)
        with self._turn:
            while not own.answered:
                self._read_waiting()
        if own.found is None:
            assert own.error is not None, "who is read for has one of them"
            raise own.error
        return own.found

    def _read_waiting(self) -> None:
        # They wait there until they are answered: whoever reads for others may be interrupted at any moment, and they
        # go on without it. Who comes meanwhile is added behind them.
        taken = [self._waiting[place] for place in range(min(len(self._waiting), _MOST))]
        apart: defaultdict[Hashable, list[_Asked]] = defaultdict(list)
        for one in taken:
            if not one.answered:
                apart[one.as_of].append(one)
        for some in apart.values():
            _answer(some)
        for _ in taken:
            self._waiting.popleft()


def _answer(some: Sequence[_Asked]) -> None:
    try:
        _read(some)
    except (RecordException, StoreCorruptedException) as error:
        if len(some) == 1:
            some[0].error = error
            return
        # It is what the store holds of one of the keys: the others have theirs.
        for one in some:
            _answer([one])
    except Exception as error:  # noqa: BLE001 - each of them raises it
        for one in some:
            one.error = error


def _read(some: Sequence[_Asked]) -> None:
    keys = some[0].key if len(some) == 1 else pa.concat_batches([one.key for one in some])
    found = some[0].read(keys)
    rows = found.rows
    texts = columns_to_json(rows).to_pylist() if any(one.as_json for one in some) else None
    for one, place in zip(some, found.places, strict=True):
        own = rows if rows.num_rows == len(some) == 1 else rows.slice(max(place, 0), int(place >= 0))
        one.found = KeyRead(own, texts[place] if texts is not None and place >= 0 else None, found)

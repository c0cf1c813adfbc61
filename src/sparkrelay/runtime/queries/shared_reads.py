"""Concurrent queries for keys of one store share one read.

Reading and writing a row is a chain of vectorized calls, which cost the same for one row as for many. Each may also
yield the interpreter to a batch thread that keeps it for milliseconds. So queries that arrive during a read wait for
its end, and then one of them reads for all. A lone query never waits.

A row depends only on the bytes stored under its key. So rows recently written as JSON are cached by these bytes: an
unchanged row gives the same text, whatever batch it is read as of.

Refused: waiting a little for other queries, which costs time where none come; a thread that reads for all, which would
hand each query over twice.
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

    from sparkrelay.operators.table.reading import StoreRead

#: Most keys of one read.
_MOST: Final = 256
#: Most cached texts of one store, and the largest stored row (bytes) whose text is cached.
_MOST_KNOWN: Final = 2048
_LARGEST_KNOWN: Final = 1024


@dataclass(slots=True)
class _Request:
    """A waiting query; ``found`` or ``error`` is set once its key was read."""

    key: pa.RecordBatch
    as_of: Hashable
    as_json: bool
    read: Callable[[pa.RecordBatch], StoreRead]
    found: StoreRead | None = None
    error: Exception | None = None

    @property
    def answered(self) -> bool:
        return self.found is not None or self.error is not None


class SharedReads:
    """The reads of one task's store. Thread-safe.

    ``shown`` turns ``key, value`` pairs of the store into rows; then reads return such pairs. None: they return rows.
    """

    def __init__(self, shown: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None) -> None:
        self.shown = shown
        self._texts = _KnownTexts()
        self._turn = threading.Lock()
        self._waiting: deque[_Request] = deque()

    def row(
        self,
        key: pa.RecordBatch,
        as_of: Hashable,
        read: Callable[[pa.RecordBatch], StoreRead],
        *,
        as_json: bool = False,
    ) -> StoreRead:
        """Return the row of a key; waits for at most one earlier read.

        Only queries with equal ``as_of``, the batch and copy to read, share a read. Another query may call ``read``,
        after this call.

        Raises:
            StateStoreException: the store cannot be read.
            RecordException: the stored row cannot be decoded, or not be written as JSON.
        """
        own = _Request(key, as_of, as_json, read)
        self._waiting.append(own)
        with self._turn:
            while not own.answered:
                self._read_waiting()
        if own.found is None:
            assert own.error is not None, "an answered request has one of them"
            raise own.error
        return own.found

    def _read_waiting(self) -> None:
        # Requests stay in the queue until answered: the reader may be interrupted at any moment, and then the next one
        # continues. New requests are appended.
        taken = [self._waiting[place] for place in range(min(len(self._waiting), _MOST))]
        apart: defaultdict[Hashable, list[_Request]] = defaultdict(list)
        for one in taken:
            if not one.answered:
                apart[one.as_of].append(one)
        for some in apart.values():
            self._answer(some)
        for _ in taken:
            self._waiting.popleft()

    def _answer(self, some: Sequence[_Request]) -> None:
        try:
            self._read(some)
        except (RecordException, StoreCorruptedException) as error:
            if len(some) == 1:
                some[0].error = error
                return
            # Only the stored row of some key is bad: the other keys still have theirs.
            for one in some:
                self._answer([one])
        except Exception as error:  # noqa: BLE001 - each of them raises it
            for one in some:
                one.error = error

    def _read(self, some: Sequence[_Request]) -> None:
        keys = some[0].key if len(some) == 1 else pa.concat_batches([one.key for one in some])
        found, texts = some[0].read(keys), None
        rows = found.rows
        if self.shown is not None:
            if any(one.as_json for one in some):
                texts = self._texts.of(rows, self.shown)
            # Most queries want JSON only and need no rows.
            rows = None if all(one.as_json for one in some) else self.shown(rows)
        elif any(one.as_json for one in some):
            texts = columns_to_json(rows).to_pylist()
        for one, place in zip(some, found.places, strict=True):
            own = text = None
            if place >= 0 and one.as_json:
                assert texts is not None, "JSON was requested"
                text = texts[place]
            elif place >= 0:
                own = rows if rows.num_rows == 1 else rows.slice(place, 1)
            one.found = found._replace(rows=own, text=text)


class _KnownTexts:
    """Recently written rows, by their stored key and value. Not thread-safe."""

    def __init__(self) -> None:
        #: Oldest first.
        self._texts: dict[tuple[bytes, bytes], bytes] = {}

    def of(self, stored: pa.RecordBatch, shown: Callable[[pa.RecordBatch], pa.RecordBatch]) -> list[bytes]:
        """Return the row of each ``key, value`` pair as JSON; ``shown`` makes the rows that are not cached."""
        pairs = list(zip(stored.column("key").to_pylist(), stored.column("value").to_pylist(), strict=True))
        missing = [place for place, pair in enumerate(pairs) if pair not in self._texts]
        made: dict[tuple[bytes, bytes], bytes] = {}
        if missing:
            some = stored if len(missing) == len(pairs) else stored.take(pa.array(missing))
            made = dict(zip((pairs[place] for place in missing), columns_to_json(shown(some)).to_pylist(), strict=True))
        found = [made[pair] if pair in made else self._texts[pair] for pair in pairs]
        for (key, value), text in made.items():
            if len(key) + len(value) <= _LARGEST_KNOWN:
                self._texts[key, value] = text
        while len(self._texts) > _MOST_KNOWN:
            del self._texts[next(iter(self._texts))]
        return found

"""Questions for keys of one store that come at the same time, answered by one reading.

Reading and writing a row is a chain of calls that are made for many rows, and for one they cost as much. Each of them
may also give the interpreter away, to a batch thread that keeps it for milliseconds. So whoever comes while a reading
is under way waits for its end, and then one of them reads for all that wait. Who comes alone waits for nobody.

A row is made of what stands in the store under its key, and of nothing else. So rows that were written as JSON lately
are known by these bytes: who asks again for what has not changed gets the same text, whichever batch it was read as of.

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

    from sparkrelay.operators.table.reading import StoreRead

__all__ = ["KeyRead", "SharedReads"]

#: Keys of one reading: what more than that wait for is read next.
_MOST: Final = 256
#: Texts that are known of one store, and how many bytes what they are made of may have there.
_MOST_KNOWN: Final = 2048
_LARGEST_KNOWN: Final = 1024


@dataclass(frozen=True, slots=True)
class KeyRead:
    """What was read of one key.

    Attributes:
        rows: its row; None where there is none, or it is wanted as JSON.
        text: the row as JSON; None where there is none, or it is not wanted so.
        read: the reading, also of other keys.
    """

    rows: pa.RecordBatch | None
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

    def __init__(self, shown: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None) -> None:
        """Begin.

        Args:
            shown: makes rows of ``key, value`` of the store, one of each: readings give these then. None: they give
                rows.
        """
        self.shown = shown
        self._texts = _KnownTexts()
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
            read: reads keys as of that, as rows or as what these are made of; begins after the question came, whoever
                calls it.
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
            self._answer(some)
        for _ in taken:
            self._waiting.popleft()

    def _answer(self, some: Sequence[_Asked]) -> None:
        try:
            self._read(some)
        except (RecordException, StoreCorruptedException) as error:
            if len(some) == 1:
                some[0].error = error
                return
            # It is what the store holds of one of the keys: the others have theirs.
            for one in some:
                self._answer([one])
        except Exception as error:  # noqa: BLE001 - each of them raises it
            for one in some:
                one.error = error

    def _read(self, some: Sequence[_Asked]) -> None:
        keys = some[0].key if len(some) == 1 else pa.concat_batches([one.key for one in some])
        found, texts = some[0].read(keys), None
        rows = found.rows
        if self.shown is not None:
            if any(one.as_json for one in some):
                texts = self._texts.of(rows, self.shown)
            # JSON alone is the common question, and does without.
            rows = None if all(one.as_json for one in some) else self.shown(rows)
        elif any(one.as_json for one in some):
            texts = columns_to_json(rows).to_pylist()
        for one, place in zip(some, found.places, strict=True):
            if place >= 0 and one.as_json:
                assert texts is not None, "somebody wants them"
                one.found = KeyRead(None, texts[place], found)
            elif place >= 0:
                one.found = KeyRead(rows if rows.num_rows == 1 else rows.slice(place, 1), None, found)
            else:
                one.found = KeyRead(None, None, found)


class _KnownTexts:
    """Rows that were written lately, by what they were made of. Whoever has the turn uses it."""

    def __init__(self) -> None:
        #: The oldest first.
        self._texts: dict[tuple[bytes, bytes], bytes] = {}

    def of(self, stored: pa.RecordBatch, shown: Callable[[pa.RecordBatch], pa.RecordBatch]) -> list[bytes]:
        """Return the row of each ``key, value`` as JSON; ``shown`` makes rows of those that are not known."""
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

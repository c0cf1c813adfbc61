"""Confluent's framing: a byte 0 and the number of a schema, four bytes big endian, before each value."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import UnknownSchemaException
from sparkrelay.records.arrow_buffers import BinaryColumn, flatten, offsets_of, validity_bitmap
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.nested_columns import copy_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PREFIX_BYTES: Final = 5
#: Instead of a schema's number: of a value without one, and of null.
UNFRAMED: Final = -1
_NULL: Final = -2
#: How long a number that the registry did not have is not asked for again: a replica of it may lag.
UNKNOWN_SECONDS: Final = 300
#: With that many of them no other number is asked for: records can name any, and each costs a request.
_MOST_UNKNOWN: Final = 256
_MOST_NAMED: Final = 64


class WriterSchemas:
    """The known schemas by which records of a topic were written, by number.

    The driver can ask for more. Workers get a copy, which cannot ask and has no clock: the driver forgets what the
    registry did not have (:meth:`forget`), and sends another copy.
    """

    def __init__(
        self,
        known: Mapping[int, str | None],
        ask: Callable[[int], str | None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the known schemas; None stands for a number that the registry does not have."""
        self._known = dict(known)
        self._ask = ask
        self._clock = clock
        #: When to forget numbers that the registry did not have.
        self._until: dict[int, float] = {}
        self._version = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return WriterSchemas, (self.known(),)

    def known(self) -> dict[int, str | None]:
        """Return a copy of the known schemas."""
        with self._lock:
            return dict(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def version(self) -> int:
        """A number that grows whenever a schema is learned or forgotten."""
        return self._version

    def learn(self, numbers: Iterable[int]) -> None:
        """Ask for unknown schemas.

        Raises:
            SchemaRegistryException: the registry does not answer.
        """
        for number in numbers:
            with self._lock:
                wanted = number not in self._known
            if wanted and self._ask is not None:
                text = self._ask(number)
                with self._lock:
                    self._known[number] = text
                    self._version += 1
                    if text is None:
                        self._until[number] = self._clock() + UNKNOWN_SECONDS

    def forget(self) -> None:
        """Forget the numbers that the registry did not have some minutes ago, so that they are asked for again."""
        with self._lock:
            now = self._clock()
            for number in [number for number, until in self._until.items() if until <= now]:
                del self._until[number], self._known[number]
                self._version += 1

    def require(self, numbers: Iterable[int]) -> None:
        """Check that all schemas are known, or known not to exist.

        Raises:
            UnknownSchemaException: one is unknown; the driver can ask for it.
        """
        unknown = [number for number in numbers if number not in self._known]
        if unknown and sum(text is None for text in self._known.values()) < _MOST_UNKNOWN:
            named = ",".join(map(str, unknown[:_MOST_NAMED]))
            raise UnknownSchemaException(
                f"records were written by schemas that must be fetched from the registry first: {named}",
                schema_ids=named,
            )

    def get(self, number: int) -> str | None:
        """Return a schema; None if the registry does not have it, or is not asked for it."""
        return self._known.get(number)

    def why_unknown(self, number: int) -> str:
        """Return why a schema is unknown, and when the registry is asked again."""
        minutes = UNKNOWN_SECONDS // 60
        if number in self._known:
            return (
                f"the registry did not have schema {number}, by which it was written, and is asked again after "
                f"{minutes} minutes"
            )
        return (
            f"the registry is not asked for schema {number}, by which it was written: it did not have {_MOST_UNKNOWN} "
            f"others that records named, and is asked for more {minutes} minutes after those; find out who writes them"
        )


def prefix(number: int) -> bytes:
    """Return the bytes before a value."""
    return b"\0" + number.to_bytes(4, "big")


def schema_ids(values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of each value's schema; UNFRAMED if it has none, a lower number if it is null."""
    column = BinaryColumn.of(flatten(values))
    rows = len(column.offsets) - 1
    numbers = np.full(rows, UNFRAMED, np.int64)
    starts = column.offsets[:-1]
    long = np.diff(column.offsets) >= PREFIX_BYTES
    if long.any():
        array = column.owner
        data = np.frombuffer(array.buffers()[2], np.uint8)
        at = starts[long]
        found = np.zeros(len(at), np.int64)
        for index in range(1, PREFIX_BYTES):
            found = found << 8 | data[at + index]
        numbers[long] = np.where(data[at] == 0, found, UNFRAMED)
    if len(column.valid):
        numbers[column.valid == 0] = _NULL
    return numbers


def unframed(numbers: np.ndarray[Any, np.dtype[np.int64]], bare: str) -> list[BadRecord]:
    """Return the values without a schema's number; ``bare`` is the format that would read them."""
    reason = f"it does not begin with the number of a schema, a byte 0 and four more; without them it is {bare}"
    return [BadRecord(int(row), reason) for row in np.flatnonzero(numbers == UNFRAMED)]


def without_prefix(values: pa.Array, bare: str) -> tuple[pa.Array, list[BadRecord]]:
    """Return what follows the numbers of schemas, null where there is none, and the values without a number.

    (``pyarrow.compute.binary_slice`` fails on values that are shorter than the prefix, pyarrow 26.)
    """
    values = flatten(values)
    numbers, column = schema_ids(values), BinaryColumn.of(values)
    framed = numbers >= 0
    starts = column.address + column.offsets[:-1] + PREFIX_BYTES
    lengths = np.where(framed, np.diff(column.offsets) - PREFIX_BYTES, 0)
    offsets = offsets_of(lengths)
    data = pa.allocate_buffer(int(offsets[-1]))
    copy_texts(starts, lengths, data.address)
    buffers = [validity_bitmap(framed.view(np.uint8)), pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers), unframed(numbers, bare)

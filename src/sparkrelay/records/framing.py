"""Confluent's framing: a byte 0 and the number of a schema, four bytes big endian, in front of each value."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import UnknownSchemaException
from sparkrelay.records.arrow_buffers import BinaryColumn, flatten, validity_bitmap
from sparkrelay.records.nested_columns import copy_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["PREFIX_BYTES", "UNFRAMED", "WriterSchemas", "prefix", "schema_ids", "without_prefix"]

PREFIX_BYTES: Final = 5
#: Stand for the number of a schema: where a value has none in front, and where there is no value.
UNFRAMED: Final = -1
_NULL: Final = -2
#: Numbers that the registry does not know are remembered up to here. Records can name any, and each costs a question.
_MOST_UNKNOWN: Final = 256
_MOST_NAMED: Final = 64


class WriterSchemas:
    """The schemas by which records of a topic were written, as far as they are known, by number.

    The driver's can ask for more. What goes to workers is a copy of what there is: it cannot ask, and has nothing to
    ask with.
    """

    def __init__(self, known: Mapping[int, str | None], ask: Callable[[int], str | None] | None = None) -> None:
        """Take what is known; None stands for a number that the registry does not have."""
        self._known = dict(known)
        self._ask = ask
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return WriterSchemas, (self.known(),)

    def known(self) -> dict[int, str | None]:
        """Return a copy of what is known."""
        with self._lock:
            return dict(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, numbers: Iterable[int]) -> None:
        """Ask for schemas that are not known.

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

    def require(self, numbers: Iterable[int]) -> None:
        """Check that all schemas are known, or known not to exist.

        Raises:
            UnknownSchemaException: one is not; the driver can ask for it.
        """
        unknown = [number for number in numbers if number not in self._known]
        if unknown and sum(text is None for text in self._known.values()) < _MOST_UNKNOWN:
            named = ",".join(map(str, unknown[:_MOST_NAMED]))
            raise UnknownSchemaException(
                f"records were written by schemas that are yet to be fetched from the registry: {named}",
                schema_ids=named,
            )

    def get(self, number: int) -> str | None:
        """Return a schema; None if the registry has none of this number."""
        return self._known.get(number)


def prefix(number: int) -> bytes:
    """Return what is in front of a value."""
    return b"\0" + number.to_bytes(4, "big")


def schema_ids(values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of each value's schema; UNFRAMED where it begins with none, less where it is null."""
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


def without_prefix(values: pa.Array, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Return what is behind the numbers of schemas, as :func:`schema_ids` has found them; null where there is none.

    (``pyarrow.compute.binary_slice`` fails on values that are shorter than what is cut off, pyarrow 26.)
    """
    column = BinaryColumn.of(flatten(values))
    framed = numbers >= 0
    starts = column.address + column.offsets[:-1] + PREFIX_BYTES
    lengths = np.where(framed, np.diff(column.offsets) - PREFIX_BYTES, 0)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = pa.allocate_buffer(int(offsets[-1]))
    copy_texts(starts, lengths, data.address)
    validity = validity_bitmap(framed.view(np.uint8))
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), [validity, pa.py_buffer(offsets), data])

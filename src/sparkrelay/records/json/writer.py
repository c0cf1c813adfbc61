"""Columns to JSON values, one compact object a row, as Spark's ``to_json`` writes them.

Nulls are left out of objects (and of objects in objects), but stay in arrays and maps. Timestamps are ISO-8601 with
milliseconds, with ``Z`` where the type has a zone; binary is base64; NaN and the infinities are the texts "NaN",
"Infinity", "-Infinity". Whole doubles keep a ``.0``; large and small ones are written as 1e+20, where Java writes
1.0E20: the same number.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException
from sparkrelay.records._native import over_rows
from sparkrelay.records.arrow_buffers import BinaryColumn, BinaryWriter, LoopMemory, flatten, items_of, numbers_of
from sparkrelay.records.json import write_loop as loop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BRACKETS: Final = (ord("[") << 8) | ord("]")
_BRACES: Final = (ord("{") << 8) | ord("}")
# The longest text of a value of fixed size, its quotes included.
_LONGEST: Final = {loop.INT: 20, loop.BOOL: 5, loop.TIMESTAMP: 30, loop.LOCAL_TIMESTAMP: 30, loop.DATE: 16}
_NULL_SIZE: Final = 4


def columns_to_json(batch: pa.RecordBatch) -> pa.Array:
    """Write one JSON object a row.

    Returns:
        A binary array (``large_binary`` if over 2 GiB) without nulls; a row of nulls is ``{}``.

    Raises:
        SerializationException: a column has a type that JSON cannot hold.
    """
    plan = _Plan(batch.num_rows)
    for field, column in zip(batch.schema, batch.columns, strict=True):
        plan.add(column, field.name, field.name)
    return plan.write(braces=True)


class _Plan(LoopMemory):
    """The table of columns that the loop follows, and how large the texts can get."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = rows
        self._leaves: list[list[int]] = []
        self._capacity = rows * 2

    def write(self, *, braces: bool) -> pa.Array:
        writer = BinaryWriter(self._rows, self._capacity)
        leaves = np.array(self._leaves, np.int64).reshape(-1, loop.FIELDS)
        over_rows(self._rows, loop.write_texts, leaves, self._rows, braces, writer.address, writer.offsets)
        return writer.finish(self._rows)

    def add(self, column: pa.Array, name: str | None, path: str) -> None:
        """Add a column; without a name it is the only one."""
        array = flatten(column)
        quoted = b"" if name is None else _quoted(name)
        label = [self.address(quoted) if quoted else 0, len(quoted)]
        valid_address = self.validity(array)
        self._capacity += self._rows * (label[1] + 1 + _NULL_SIZE)
        kind = array.type
        if pa.types.is_struct(kind):
            at = len(self._leaves)
            self._leaves.append([])
            self._capacity += self._rows * 2
            for index in range(kind.num_fields):
                inner = kind.field(index).name
                self.add(array.field(index), inner, f"{path}.{inner}")
            self._leaves.append([loop.CLOSE, 0, 0, 0, 0, 0, 0, 0])
            self._leaves[at] = [loop.STRUCT, 0, 0, valid_address, len(self._leaves) - at - 1, *label, 0]
            return
        if pa.types.is_null(kind):
            nulls = self.address(np.zeros(self._rows, np.uint8))
            self._leaves.append([loop.INT, 0, 0, nulls, 0, *label, 0])
            return
        numbers, what = 0, loop.FLOAT
        data: BinaryColumn | np.ndarray[Any, Any]
        if pa.types.is_float64(kind):
            doubles = (array.fill_null(0.0) if array.null_count else array).to_numpy(zero_copy_only=False)
            numbers = self.address(doubles)
            data = _long_floats(array, numbers)
        else:
            what, data = _texts_or_numbers(array, path)
        if isinstance(data, BinaryColumn):
            self._capacity += _text_capacity(what, data, self._rows)
            self._leaves.append([what, *self.binary(data), valid_address, 0, *label, numbers])
        else:
            self._capacity += self._rows * _LONGEST[what]
            self._leaves.append([what, self.address(data), 0, valid_address, 0, *label, 0])


def _text_capacity(what: int, column: BinaryColumn, rows: int) -> int:
    first, last = int(column.offsets[0]), int(column.offsets[-1])
    size = last - first + rows * 22
    if what == loop.STRING:
        size += _escapes(column, first, last)
    elif what == loop.BASE64:
        size += (last - first) // 3 + rows * 4
    return size


def _escapes(column: BinaryColumn, first: int, last: int) -> int:
    """Return the bytes that escaping adds."""
    return int(over_rows(last - first, loop.count_escapes, column.address, first, last) or 0)


def _texts_or_numbers(array: pa.Array, path: str) -> tuple[int, BinaryColumn | np.ndarray[Any, Any]]:
    for test, what, convert in _WRITERS:
        if test(array.type):
            made = convert(array)
            return what, made if isinstance(made, np.ndarray) else BinaryColumn.of(made)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_map(array.type):
        return loop.TEXT, BinaryColumn.of(_lists(array, path))
    raise SerializationException(f"column {path} has type {array.type}, which cannot be written as JSON; cast it first")


def _lists(array: pa.Array, path: str) -> pa.Array:
    """Write each list as an array, each map as an object."""
    is_map = pa.types.is_map(array.type)
    rows = len(array)
    offsets, inside = items_of(array)
    items = inside[-1]
    plan = _Plan(len(items))
    plan.add(items, None, f"{path}[]")
    texts = BinaryColumn.of(plan.write(braces=False))
    names = BinaryColumn.nulls(0)
    names_size = 0
    if is_map:
        keys = inside[0]
        if not pa.types.is_string(keys.type):
            try:
                keys = keys.cast(pa.string())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise SerializationException(
                    f"column {path} is a map with keys of type {keys.type}, which are no text ({error}), and names in "
                    "JSON are; make text of them first, by transform_keys()"
                ) from error
        names = BinaryColumn.of(keys)
        start, stop = int(names.offsets[0]), int(names.offsets[-1])
        names_size = stop - start + _escapes(names, start, stop) + 3 * len(items)
    capacity = int(texts.offsets[-1]) + len(items) + 2 * rows + names_size
    writer = BinaryWriter(rows, capacity)
    over_rows(
        rows, loop.join_lists, offsets, texts.address, texts.offsets,
        names.address, names.offsets if is_map else np.empty(0, np.int64),
        _BRACES if is_map else _BRACKETS, writer.address, writer.offsets,
    )  # fmt: skip
    return writer.finish(rows)


@functools.lru_cache(maxsize=1024)
def _quoted(name: str) -> bytes:
    """Return a column's name as JSON, with the colon."""
    return f"{json.dumps(name, ensure_ascii=False)}:".encode()


def _long_floats(array: pa.Array, address: int) -> BinaryColumn:
    """Return Arrow's texts, which are ten times slower, of the doubles that the loop cannot write.

    ``address`` is that of the numbers, with some number for null.
    """
    short = np.empty(len(array), np.uint8)
    over_rows(len(short), loop.find_short, address, short)
    if 0 not in short.tobytes():
        return BinaryColumn.nulls(len(array))
    long = array
    if short.any():
        long = pc.if_else(pa.array(short.view(np.bool_)), pa.scalar(None, pa.float64()), array)
    return BinaryColumn.of(long.cast(pa.string()))


def _plain_decimals(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    if not pc.any(pc.match_substring(texts, "E")).as_py():
        return texts
    return pa.array([None if value is None else f"{value:f}" for value in array.to_pylist()], pa.string())


def _same(array: pa.Array) -> pa.Array:
    return array


_WRITERS: Final[Sequence[tuple[Callable[[pa.DataType], bool], int, Callable[[pa.Array], Any]]]] = (
    (lambda kind: pa.types.is_integer(kind) and kind != pa.uint64(), loop.INT, numbers_of),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), loop.STRING, _same),
    (pa.types.is_float32, loop.FLOAT, lambda array: array.cast(pa.string())),
    (pa.types.is_boolean, loop.BOOL, numbers_of),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, loop.TIMESTAMP, numbers_of),
    (pa.types.is_timestamp, loop.LOCAL_TIMESTAMP, numbers_of),
    (pa.types.is_date32, loop.DATE, numbers_of),
    (pa.types.is_decimal, loop.TEXT, _plain_decimals),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), loop.BASE64, _same),
)

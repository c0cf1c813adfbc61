"""Nested columns, as the loops of Avro and Protobuf fill them: every list has a level, whose rows are its items.

A loop writes numbers of eight bytes (decimals of sixteen), a byte of validity each, and the addresses of texts, which
are copied once their total size is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.records._native import copy, kernel, load8
from sparkrelay.records.arrow_buffers import array_of_numbers, no_columns, offsets_of, validity_bitmap

Numbers = np.ndarray[Any, np.dtype[np.int64]]

#: Up to so many entries comparing all pairs costs less than a table of them.
_FEW_ENTRIES: Final = 32


@dataclass(slots=True, eq=False)
class Node:
    """A column, or one inside a column."""

    type: pa.DataType
    column: int
    #: 0: its rows are the records.
    level: int
    #: A struct's fields; a list's items; a map's keys and values.
    inner: list[Node] = field(default_factory=list)
    #: The level of the items of a list or a map.
    items: int = 0
    #: A string of 16 bytes, to be written as a UUID.
    is_uuid: bool = False


class NodeTree:
    """All columns."""

    def __init__(self) -> None:
        #: By number, with those inside others.
        self.columns: list[Node] = []
        self.levels = 1

    @property
    def widths(self) -> Numbers:
        """The number of columns of each level."""
        return np.bincount([node.level for node in self.columns], minlength=self.levels).astype(np.int64)

    def add(self, type_: pa.DataType, level: int = 0) -> Node:
        """Add a column, and those inside it."""
        node = Node(type_, len(self.columns), level)
        self.columns.append(node)
        if pa.types.is_struct(type_):
            node.inner = [self.add(one.type, level) for one in type_.fields]
        elif pa.types.is_list(type_) or pa.types.is_map(type_):
            node.items = self.levels
            self.levels += 1
            inside = [type_.key_type, type_.item_type] if pa.types.is_map(type_) else [type_.value_type]
            node.inner = [self.add(one, node.items) for one in inside]
        return node


@dataclass(slots=True)
class Buffers:
    """The buffers that a loop fills for one column."""

    valid: np.ndarray[Any, np.dtype[np.uint8]]
    data: Numbers | None = None
    lengths: Numbers | None = None

    def cut(self, count: int) -> None:
        """Drop what damaged records left after the last item."""
        self.valid = self.valid[:count]
        if self.lengths is not None:
            self.lengths = self.lengths[:count]

    @property
    def addresses(self) -> list[int]:
        """The addresses of validity, data and lengths; 0: it has none."""
        return [0 if one is None else int(one.ctypes.data) for one in (self.valid, self.data, self.lengths)]


def buffers_of(node: Node, count: int) -> Buffers:
    """Return buffers for a column's rows, all of them null."""
    valid, kind = np.zeros(count, np.uint8), node.type
    if pa.types.is_struct(kind):
        return Buffers(valid)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return Buffers(valid, None, np.zeros(count, np.int64))
    if pa.types.is_decimal(kind):
        return Buffers(valid, np.zeros(2 * count, np.int64))
    texts = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return Buffers(valid, np.zeros(count, np.int64), np.zeros(count, np.int64) if texts else None)


def batch_of(roots: dict[str, Node], schema: pa.Schema, buffers: list[Buffers], sizes: Numbers) -> pa.RecordBatch:
    """Return the columns that a loop has filled: ``buffers`` by column number, ``sizes`` the rows of each level."""
    if not len(schema):
        return no_columns(int(sizes[0]))
    arrays = [_array_of(roots[one.name], buffers, sizes) for one in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array_of(node: Node, buffers: list[Buffers], sizes: Numbers) -> pa.Array:
    own, kind, count = buffers[node.column], node.type, int(sizes[node.level])
    validity = validity_bitmap(own.valid)
    if own.lengths is not None:
        offsets = offsets_of(own.lengths)
        if own.data is not None:
            return _texts(node, own, validity, offsets)
    inner = [_array_of(one, buffers, sizes) for one in node.inner]
    if pa.types.is_struct(kind):
        return pa.Array.from_buffers(kind, count, [validity], children=inner)
    if own.lengths is not None:
        if pa.types.is_map(kind):
            keep = _kept_entries(buffers[node.inner[0].column], inner[0], own.lengths, offsets)
            if not keep.all():
                offsets = np.concatenate([[0], np.cumsum(keep)])[offsets]
                inner = [one.filter(pa.array(keep)) for one in inner]
            inner = [pa.StructArray.from_arrays(inner, fields=[kind.key_field, kind.item_field])]
        places = pa.py_buffer(offsets.astype(np.int32))
        return pa.Array.from_buffers(kind, count, [validity, places], children=inner)
    assert own.data is not None
    if pa.types.is_decimal(kind):
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(own.data)])
    data = own.data.view(np.float64) if pa.types.is_floating(kind) else own.data
    return array_of_numbers(kind, data[:count], validity)


def _kept_entries(
    own: Buffers, keys: pa.Array, counts: Numbers, offsets: Numbers
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which entries of maps are kept: the last one of a key, as in Java's maps and ``from_avro``."""
    keep = np.ones(int(offsets[-1]), np.uint8)
    _mark_repeated(own.data, own.lengths, counts, keep)
    for row in np.flatnonzero(counts > _FEW_ENTRIES).tolist():
        first, last = int(offsets[row]), int(offsets[row + 1])
        names = keys.slice(first, last - first).to_pylist()
        latest = {name: at for at, name in enumerate(names)}
        keep[first:last] = [latest[name] == at for at, name in enumerate(names)]
    return keep.view(np.bool_)


@kernel("void(int64[::1], int64[::1], int64[::1], uint8[::1])")
def _mark_repeated(starts: Any, lengths: Any, counts: Any, keep: Any) -> None:
    """Mark with 0 the entries of small maps whose key comes again: each is compared with those behind it."""
    first = 0
    for row in range(len(counts)):
        last = first + counts[row]
        if counts[row] <= _FEW_ENTRIES:
            for one in range(first, last):
                for other in range(one + 1, last):
                    if lengths[one] == lengths[other]:
                        at = 0
                        while at < lengths[one] and load8(starts[one] + at) == load8(starts[other] + at):
                            at += 1
                        if at == lengths[one]:
                            keep[one] = 0
        first = last


@kernel("void(int64[::1], int64[::1], int64)")
def copy_texts(starts: Any, lengths: Any, target: int) -> None:
    """Put texts one behind the other."""
    for index in range(len(lengths)):
        size = lengths[index]
        if size > 0:
            copy(target, starts[index], size)
            target += size


def _texts(node: Node, own: Buffers, validity: pa.Buffer | None, offsets: Numbers) -> pa.Array:
    size = int(offsets[-1])
    data = pa.allocate_buffer(size)
    copy_texts(own.data, own.lengths, data.address)
    if node.is_uuid:
        return _uuids(data, len(offsets) - 1, validity, own.valid)
    large = size >= 1 << 31
    wide = pa.large_string() if pa.types.is_string(node.type) else pa.large_binary()
    places = pa.py_buffer(offsets if large else offsets.astype(np.int32))
    made = pa.Array.from_buffers(wide if large else node.type, len(offsets) - 1, [validity, places, data])
    return made.cast(node.type) if large else made


def _uuids(
    data: pa.Buffer, count: int, validity: pa.Buffer | None, valid: np.ndarray[Any, np.dtype[np.uint8]]
) -> pa.Array:
    """Write 16 bytes as text, 00112233-4455-6677-8899-aabbccddeeff."""
    digits = np.frombuffer(bytes(data).hex().encode(), np.uint8).reshape(-1, 32)
    text = np.full((len(digits), 36), ord("-"), np.uint8)
    for start, stop, shift in ((0, 8, 0), (8, 12, 1), (12, 16, 2), (16, 20, 3), (20, 32, 4)):
        text[:, start + shift : stop + shift] = digits[:, start:stop]
    offsets = offsets_of(valid.astype(np.int32) * 36, np.int32)
    return pa.Array.from_buffers(pa.string(), count, [validity, pa.py_buffer(offsets), pa.py_buffer(text.tobytes())])

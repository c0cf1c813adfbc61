"""The bound of the cells that a record's lists may make: the items of each list times the columns of an item.

An item may take a byte or two and still has a cell, null or default, in each of its columns: 200 kB of Avro's nulls in
an array of records of 100 fields make 200 MB of Arrow. So cells are counted before they are allocated, and a record
with too many is a bad record.

The bound depends on the record alone, so that it is bad in every attempt and on every instance. Ordinary records make
about a cell a byte, sparse Protobuf messages some ten: with two of 100 fields an item takes 6 bytes or more. A million
more are allowed, 9 to 17 MB, as small records may be sparser. So a record of a megabyte makes at most 300 MB.

Refused: a bound for a fetch. Whether a record is bad must not depend on its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.records._native import inline

if TYPE_CHECKING:
    from collections.abc import Iterable

FREE_CELLS: Final = 1 << 20
CELLS_A_BYTE: Final = 16


@inline
def cells_since(filled: Any, marks: Any, widths: Any) -> int:
    """Return the cells of the items that were added to each level since the marks."""
    cells = 0
    for level in range(1, len(filled)):
        cells += (filled[level] - marks[level]) * widths[level]
    return cells


def too_many(cells: int, size: int) -> str | None:
    """Return why a record of this size is bad; None if it is not."""
    most = FREE_CELLS + CELLS_A_BYTE * size
    if cells <= most:
        return None
    return (
        f"its lists make {cells} values, nulls and defaults of absent fields included, and a record of {size} bytes "
        f"may make {most}; read it by a schema with fewer fields in its lists, or write smaller records"
    )


def may_be_too_many(size: int, columns: int) -> bool:
    """Return whether a record may make too many cells, if an item takes two bytes and has that many columns."""
    return size // 2 * columns > FREE_CELLS + CELLS_A_BYTE * size


def width_of(kind: pa.DataType) -> int:
    """Return the number of columns of an item of this type, without those of lists in it."""
    return 1 + sum(width_of(one.type) for one in kind) if pa.types.is_struct(kind) else 1


def widest(kinds: Iterable[pa.DataType]) -> int:
    """Return the most columns of an item of any list in some types; 0 if there is no list."""
    most = 0
    for kind in kinds:
        inside = [kind.field(index).type for index in range(kind.num_fields)]
        if pa.types.is_map(kind):
            inside = [kind.key_type, kind.item_type]
        listed = 0 if pa.types.is_struct(kind) else sum(map(width_of, inside))
        most = max(most, listed, widest(inside))
    return most

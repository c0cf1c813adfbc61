"""How many cells a record's lists may make: the items of each list times the columns that an item has.

An item may take a byte, or two, and still has a cell in each of its columns, with nulls or defaults: an array of 200 kB
of Avro's nulls, of records of 100 fields, makes 200 MB of Arrow. So cells are counted before there is room for them,
and a record that makes too many is a bad one, like any other: it is named, and can be set aside.

The bound goes by the record alone, so that a record is bad in each try and on each instance. An honest record makes
about a cell a byte, as most cells have something in them, one of sparse Protobuf messages some ten: with two of 100
fields an item takes 6 bytes or more. A million more are free, 9 to 17 MB, as small records may be sparser. With this a
record of a megabyte makes 300 MB at the very most.

Refused: a bound for what a fetch makes. Whether a record is bad must not depend on its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.records._native import inline

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CELLS_A_BYTE", "FREE_CELLS", "cells_since", "may_be_too_many", "too_many", "widest", "width_of"]

FREE_CELLS: Final = 1 << 20
CELLS_A_BYTE: Final = 16


@inline
def cells_since(filled: Any, marks: Any, widths: Any) -> int:
    """Return how many cells the items make that came to each level since the marks."""
    cells = 0
    for level in range(1, len(filled)):
        cells += (filled[level] - marks[level]) * widths[level]
    return cells


def too_many(cells: int, size: int) -> str | None:
    """Return why a record of so many bytes is bad; None if it is not."""
    most = FREE_CELLS + CELLS_A_BYTE * size
    if cells <= most:
        return None
    return (
        f"its lists make {cells} values, the nulls and defaults of fields that are not there included, and a record of "
        f"{size} bytes may make {most}; read it by a schema with fewer fields in its lists, or have smaller records "
        "written"
    )


def may_be_too_many(size: int, columns: int) -> bool:
    """Return whether a record may make too many cells, if an item takes two bytes and has at most so many columns."""
    return size // 2 * columns > FREE_CELLS + CELLS_A_BYTE * size


def width_of(kind: pa.DataType) -> int:
    """Return how many columns an item of this type has; those of lists in it are not its own."""
    return 1 + sum(width_of(one.type) for one in kind) if pa.types.is_struct(kind) else 1


def widest(kinds: Iterable[pa.DataType]) -> int:
    """Return how many columns the items of a list in some types have at most; 0 if there is no list."""
    most = 0
    for kind in kinds:
        inside = [kind.field(index).type for index in range(kind.num_fields)]
        if pa.types.is_map(kind):
            inside = [kind.key_type, kind.item_type]
        listed = 0 if pa.types.is_struct(kind) else sum(map(width_of, inside))
        most = max(most, listed, widest(inside))
    return most

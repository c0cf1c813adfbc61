"""Lookups in a snapshot of one task's store: by key, by window, by range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.keys import is_plain_key, key_bytes, key_columns
from sparkrelay.state.lmdb.rows import as_binary
from sparkrelay.state.window_keys import NO_TIME, end_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.operators.table.layout import TableLayout
    from sparkrelay.state.reader import StoreSnapshot

_PAGE: Final = 10_000

Page = tuple[pa.RecordBatch, bytes | None]


def rows_of(table: TableLayout, snapshot: StoreSnapshot, keys: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
    """Return the rows of keys, and for each key the index of its row, or -1. A repeated key repeats its row."""
    if table.lies_apart:
        encoded = as_binary(key_bytes(keys.columns))
        found = [
            table.row_of(snapshot, keys.slice(place, 1), encoded.slice(place, 1)) for place in range(keys.num_rows)
        ]
        rows = found[0] if len(found) == 1 else pa.concat_batches(found)
        return rows, _places([one.num_rows for one in found])
    found, places = stored_rows_of(table, snapshot, keys)
    return table.rows(found), places


def stored_rows_of(
    table: TableLayout, snapshot: StoreSnapshot, keys: pa.RecordBatch
) -> tuple[pa.RecordBatch, list[int]]:
    """Return ``key, value`` of keys, like :func:`rows_of`, for layouts with one entry a row."""
    stored = table.stored(keys.columns, as_binary(key_bytes(keys.columns)))
    values = snapshot.get(stored)
    found = pa.record_batch([stored, values], ["key", "value"])
    if table.window is None and not values.null_count:
        return found, list(range(len(values)))
    there = values.is_valid()
    if table.window is not None:
        first = pa.scalar(table.span(snapshot.expired)[0], pa.binary())
        there = pc.and_(there, pc.greater_equal(stored, first))
    return found.filter(there), _places(there.to_pylist())


def _places(counts: Iterable[int]) -> list[int]:
    """Return the index of each one's row, or -1."""
    places, count = [], 0
    for own in counts:
        places.append(count if own else -1)
        count += own
    return places


def windows_of(  # noqa: PLR0917 - a search has these
    table: TableLayout,
    snapshot: StoreSnapshot,
    key: pa.RecordBatch,
    from_ms: int | None,
    to_ms: int | None,
    most: int | None,
) -> pa.RecordBatch:
    """Return the rows of a key's windows in order, for stores whose windows end and do not merge.

    Args:
        table: the layout.
        snapshot: the store.
        key: key columns without the window.
        from_ms: earliest start of a window, inclusive, ms since 1970; None: any.
        to_ms: latest start of a window, inclusive; None: any.
        most: maximum number of rows.
    """
    assert table.window is not None, "not a windowed store"
    found, count = list[pa.RecordBatch](), 0
    for end in snapshot.ends(max(snapshot.expired, NO_TIME if from_ms is None else from_ms)):
        # All windows with one end have one start.
        groups = table.groups(snapshot.between(end_bytes(end), end_bytes(end + 1), 1))
        window = key_columns(groups.column("key"), table.keys)[table.keys.get_field_index(table.window)]
        start_ms = _start_ms(window[0]) if len(window) else None
        if start_ms is None or (from_ms is not None and start_ms < from_ms):
            continue
        if (to_ms is not None and start_ms > to_ms) or (most is not None and count >= most):
            break
        columns = [window if field.name == table.window else key.column(field.name) for field in table.keys]
        found.append(rows_of(table, snapshot, pa.RecordBatch.from_arrays(columns, schema=table.keys))[0])
        count += found[-1].num_rows
    return pa.concat_batches(found) if found else table.no_rows()


def rows_between(
    table: TableLayout, snapshot: StoreSnapshot, start: bytes, stop: bytes | None, most: int | None
) -> Page:
    """Return a page of the rows in a range of the store's keys, and the first key of the next page, or None.

    Args:
        table: the layout.
        snapshot: the store.
        start: first key (``TableLayout.span``).
        stop: end of the range, exclusive.
        most: maximum number of rows.
    """
    size = _PAGE if most is None else min(_PAGE, most)
    found = snapshot.between(start, stop, size)
    rows = table.rows(table.complete(snapshot, found))
    return rows, None if found.num_rows < size else table.behind(found.column("key")[-1].as_py())


def key_spans(
    schema: pa.Schema, first: pa.RecordBatch | None, last: pa.RecordBatch | None
) -> list[tuple[bytes, bytes]]:
    """Return the ranges of message keys from ``first`` to ``last``, both included, sorted by key."""
    low = b"" if first is None else as_binary(key_bytes(first.columns))[0].as_py()
    high = None if last is None else as_binary(key_bytes(last.columns))[0].as_py()
    behind = b"\xff" * 600 if high is None else high + b"\x00"
    if not (len(schema) == 1 and is_plain_key(schema.field(0).type) and pa.types.is_integer(schema.field(0).type)):
        return [(low, behind)]
    # In Kafka's encoding, negative numbers sort after the others.
    width = schema.field(0).type.bit_width // 8
    middle, end = b"\x80" + bytes(width - 1), b"\xff" * (width + 1)
    spans = []
    if first is None or low >= middle:
        spans.append((max(low, middle), behind if high is not None and high >= middle else end))
    if high is None or high < middle:
        spans.append((low if low < middle else b"", middle if high is None else behind))
    return [(start, stop) for start, stop in spans if start < stop]


def _start_ms(window: pa.StructScalar) -> int:
    # Not a datetime: the window may be after the year 9999.
    return int(window["start"].cast(pa.timestamp("us", "UTC")).value) // 1000

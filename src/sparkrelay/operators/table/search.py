"""Finding rows in a snapshot of one task's store, by key, by window and by range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.aggregate.collected_values import collected_spans, has_collected
from sparkrelay.operators.aggregate.distinct_values import has_distinct, marked, stored_groups
from sparkrelay.operators.table.shown_rows import key_schema, lie_apart, shown_rows, shown_span
from sparkrelay.operators.watermarks import end_fronts, stored_keys
from sparkrelay.records.keys import is_plain_key, key_bytes, key_columns
from sparkrelay.state.join_rows import key_parts
from sparkrelay.state.rows import as_binary
from sparkrelay.state.versions import VERSIONS, key_part
from sparkrelay.state.watermarks import NO_TIME, end_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.runtime.contract.specs import StateSpec
    from sparkrelay.state.reader import StoreSnapshot

__all__ = ["Page", "key_spans", "of_group", "page_span", "rows_between", "rows_of", "stored_rows_of", "windows_of"]

#: Kind of keys that are groups, of stores that have others, too (``distinct_values``).
_GROUP: Final = b"\x00"
#: Behind all times of a key in a store with a history.
_BEHIND: Final = b"\xff" * 9
_PAGE: Final = 10_000

Page = tuple[pa.RecordBatch, bytes | None]


def rows_of(spec: StateSpec, snapshot: StoreSnapshot, keys: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
    """Return the rows of some keys, and for each key which of these is its own; -1: it has none.

    Args:
        spec: of the step that keeps the store.
        snapshot: of the store.
        keys: all columns of each; a key that comes twice has its row twice.
    """
    if lie_apart(spec):
        found = [_row_apart(spec, snapshot, keys.slice(place, 1)) for place in range(keys.num_rows)]
        rows = found[0] if len(found) == 1 else pa.concat_batches(found)
        return rows, _places([one.num_rows for one in found])
    found, places = stored_rows_of(spec, snapshot, keys)
    return shown_rows(spec, found), places


def stored_rows_of(spec: StateSpec, snapshot: StoreSnapshot, keys: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
    """Return ``key, value`` of what rows are made of, as :func:`rows_of`, of a store whose rows do not lie apart."""
    encoded = as_binary(key_bytes(keys.columns))
    stored = encoded if spec.watermark is None else stored_keys(keys.column(spec.watermark.window), encoded)
    values = snapshot.get(stored)
    found = pa.record_batch([stored, values], ["key", "value"])
    if spec.watermark is None and not values.null_count:
        return found, list(range(len(values)))
    there = values.is_valid()
    if spec.watermark is not None:
        first = pa.scalar(shown_span(spec, snapshot.expired)[0], pa.binary())
        there = pc.and_(there, pc.greater_equal(stored, first))
    return found.filter(there), _places(there.to_pylist())


def _row_apart(spec: StateSpec, snapshot: StoreSnapshot, key: pa.RecordBatch) -> pa.RecordBatch:
    """Return the row of a key, if there is one, of a store in which it stands in several places."""
    encoded = as_binary(key_bytes(key.columns))
    if spec.history_ms is not None:
        (part,) = key_parts(encoded).to_pylist()
        start = VERSIONS[0] + part
        return shown_rows(spec, snapshot.between(start, start + _BEHIND, 1))
    stored = marked(None if spec.watermark is None else end_fronts(key.column(spec.watermark.window)), encoded)
    (first,) = stored.to_pylist()
    if spec.watermark is not None and first < shown_span(spec, snapshot.expired)[0]:
        return _nothing(spec)
    values = snapshot.get(stored)
    found = pa.record_batch([stored, values], ["key", "value"]).filter(values.is_valid())
    return shown_rows(spec, _with_collected(spec, snapshot, found))


def _places(counts: Iterable[int]) -> list[int]:
    """Return which row each one's is that has one, -1 of the others."""
    places, count = [], 0
    for own in counts:
        places.append(count if own else -1)
        count += own
    return places


def windows_of(
    spec: StateSpec, snapshot: StoreSnapshot, key: pa.RecordBatch, from_ms: int | None, to_ms: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the row of each window of a key, from the first one on, of a store whose windows end and do not merge.

    Args:
        spec: of the step that keeps the store.
        snapshot: of it.
        key: its columns without the window.
        from_ms: when the first window begins, ms since 1970, and all of these are included.
        to_ms: when the last one does.
    """
    assert spec.watermark is not None, "its windows end"
    window, schema = spec.watermark.window, key_schema(spec)
    for end in snapshot.ends(max(snapshot.expired, NO_TIME if from_ms is None else from_ms)):
        # One of that end says when these windows begin.
        found = _windows(spec, snapshot.between(end_bytes(end), end_bytes(end + 1), 1))
        start_ms = _start_ms(found[0]) if len(found) else None
        if start_ms is None or (from_ms is not None and start_ms < from_ms):
            continue
        if to_ms is not None and start_ms > to_ms:
            return
        columns = [found if field.name == window else key.column(field.name) for field in schema]
        yield rows_of(spec, snapshot, pa.RecordBatch.from_arrays(columns, schema=schema))[0]


def rows_between(spec: StateSpec, snapshot: StoreSnapshot, start: bytes, stop: bytes | None, most: int | None) -> Page:
    """Return the rows that stand in a range of keys, and where to go on behind them; None if these are all.

    Args:
        spec: of the step that keeps the store.
        snapshot: of the store.
        start: first key, of ``shown_span``.
        stop: the first one that is not meant.
        most: how many rows to read at most.
    """
    size = _PAGE if most is None else min(_PAGE, most)
    found = snapshot.between(start, stop, size)
    if found.num_rows < size:
        return shown_rows(spec, _with_collected(spec, snapshot, found)), None
    last: bytes = found.column("key")[-1].as_py()
    if spec.history_ms is not None:
        # The older rows of the last key are none to be shown.
        return shown_rows(spec, found), VERSIONS[0] + key_part(last) + _BEHIND
    return shown_rows(spec, _with_collected(spec, snapshot, found)), last + b"\x00"


def key_spans(
    schema: pa.Schema, first: pa.RecordBatch | None, last: pa.RecordBatch | None
) -> list[tuple[bytes, bytes]]:
    """Return the ranges of message keys from one key to another one, both included, in the order of the keys."""
    low = b"" if first is None else as_binary(key_bytes(first.columns))[0].as_py()
    high = None if last is None else as_binary(key_bytes(last.columns))[0].as_py()
    behind = b"\xff" * 600 if high is None else high + b"\x00"
    if not (len(schema) == 1 and is_plain_key(schema.field(0).type) and pa.types.is_integer(schema.field(0).type)):
        return [(low, behind)]
    # Kafka's own bytes of a negative number come behind those of the others.
    width = schema.field(0).type.bit_width // 8
    middle, end = b"\x80" + bytes(width - 1), b"\xff" * (width + 1)
    spans = []
    if first is None or low >= middle:
        spans.append((max(low, middle), behind if high is not None and high >= middle else end))
    if high is None or high < middle:
        spans.append((low if low < middle else b"", middle if high is None else behind))
    return [(start, stop) for start, stop in spans if start < stop]


def of_group(spec: StateSpec, span: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return where groups of a range of message keys stand, in a store without windows that end."""
    return (_GROUP + span[0], _GROUP + span[1]) if has_distinct(spec) else span


def page_span(spec: StateSpec, after: bytes) -> tuple[bytes, bytes | None]:
    """Return the range of a store's keys in which rows stand behind others; groups alone where that is one range."""
    if has_distinct(spec) and spec.watermark is None:
        return max(after, _GROUP), _GROUP + b"\xff" * 600
    return after, None


def _with_collected(spec: StateSpec, snapshot: StoreSnapshot, groups: pa.RecordBatch) -> pa.RecordBatch:
    if not has_collected(spec) or not groups.num_rows:
        return groups
    skipped = 0 if spec.watermark is None else 8
    kinds = pc.binary_slice(groups.column("key"), skipped, skipped + 1)
    groups = groups.filter(pc.equal(kinds, pa.scalar(_GROUP, pa.binary())))
    ends = None if spec.watermark is None else pc.binary_slice(groups.column("key"), 0, 8)
    values = snapshot.ranges(collected_spans(stored_groups(spec, groups).column("key"), ends))
    return pa.concat_batches([groups.cast(values.schema), values])


def _windows(spec: StateSpec, stored: pa.RecordBatch) -> pa.Array:
    assert spec.watermark is not None, "its windows end"
    groups = stored_groups(spec, stored)
    return key_columns(groups.column("key"), key_schema(spec))[spec.keys.index(spec.watermark.window)]


def _start_ms(window: pa.StructScalar) -> int:
    # Not as a datetime: the window may be beyond the year 9999.
    return int(window["start"].cast(pa.timestamp("us", "UTC")).value) // 1000


def _nothing(spec: StateSpec) -> pa.RecordBatch:
    return shown_rows(spec, pa.record_batch([pa.array([], pa.binary())] * 2, ["key", "value"]))

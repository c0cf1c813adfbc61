"""Rows that were taken apart, to be read or written in groups, and put back in their old order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.arrow_buffers import no_columns
from sparkrelay.records.bad_record import BadRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Rows: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


def put_back(parts: Sequence[tuple[Rows, pa.RecordBatch]], rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of ``rows`` rows, those of each part at its places; rows of no part are null.

    Where parts have a place in common the last one counts.
    """
    if not len(schema):
        return no_columns(rows)
    if len(parts) == 1 and len(parts[0][0]) == rows:
        return parts[0][1]
    order, used = np.full(rows, -1, np.int64), 0
    for places, _ in parts:
        order[places] = used + np.arange(len(places))
        used += len(places)
    taken = pa.array(order, mask=order < 0)
    pieces = ([part.column(index) for _, part in parts] or [pa.nulls(0, schema.field(index).type)]
              for index in range(len(schema)))  # fmt: skip
    return pa.RecordBatch.from_arrays([pa.concat_arrays(some).take(taken) for some in pieces], schema=schema)


def read_rest(
    values: pa.Array,
    batch: pa.RecordBatch,
    declined: Rows,
    read: Callable[[pa.Array], tuple[pa.RecordBatch, list[BadRecord]]],
) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Return a batch with the rows that a fast loop declined read by a slower reader, and the bad records in order."""
    if not len(declined):
        return batch, []
    rest, bad = read(values.take(pa.array(declined)))
    read_again = put_back([(np.arange(len(values)), batch), (declined, rest)], len(values), batch.schema)
    return read_again, at_rows(bad, declined)


def at_rows(bad: Iterable[BadRecord], rows: Rows) -> list[BadRecord]:
    """Return bad records of some rows, by the numbers of these rows."""
    return [BadRecord(int(rows[one.index]), one.reason) for one in bad]


def write_others(
    left_out: pa.Array | None, rows: pa.RecordBatch, write: Callable[[pa.RecordBatch], pa.Array]
) -> pa.Array:
    """Write the rows that are not left out; the values of the others are null."""
    if left_out is None or not left_out.true_count:
        return write(rows)
    chosen = np.flatnonzero(~pc.fill_null(left_out, False).to_numpy(zero_copy_only=False))
    order = np.full(rows.num_rows, -1, np.int64)
    order[chosen] = np.arange(len(chosen))
    return write(rows.take(pa.array(chosen))).take(pa.array(order, mask=order < 0))


def bisect(rows: int, accepts: Callable[[int, int], bool], smallest: int = 1) -> Iterator[tuple[int, int]]:
    """Try ``[0, rows)``, then halves of what is not accepted, in order; yield refused ranges of ``smallest`` rows."""
    pending = [(0, rows)] if rows else []
    while pending:
        low, high = pending.pop()
        if accepts(low, high):
            continue
        if high - low <= smallest:
            yield low, high
        else:
            middle = (low + high) // 2
            pending += ((middle, high), (low, middle))

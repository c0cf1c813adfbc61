"""Collected values of groups (``collect_list``, percentiles ...), stored beside the groups' states.

A micro-batch reads and writes only its own values. All values of a group are read when its result is emitted, which is
once for final windows. Their keys begin with 02, after the end of the window, if any:

    02, prefix of the group, index of the aggregate (2 bytes), value -> its count (8 bytes)
    02, prefix of the group, index of the aggregate (2 bytes), number of its first value (8 bytes) -> a chunk of values

The prefix is the length of the group's key (4 bytes), then the key, or the digest of a key longer than 256 bytes. It
keeps a group's entries together: the store itself would replace longer keys.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.errors import SerializationException, StoreCorruptedException
from sparkrelay.operators.table.changes import NEW
from sparkrelay.records.arrow_buffers import as_type, whole
from sparkrelay.records.keys import key_bytes
from sparkrelay.state.aggregate.collected import Collected, Values
from sparkrelay.state.aggregate.spec import COUNTED
from sparkrelay.state.byte_arrays import big_endian, buffers, cut, fixed, from_spans, side_by_side
from sparkrelay.state.key_parts import KeyPart, blake2b

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.aggregate import AggregateCodec, AggregateSpec
    from sparkrelay.state.view import StoreView

_COLLECTED: Final = b"\x02"
_LONGEST_GROUP: Final = 256
_DIGEST_BYTES: Final = 16
_GROUP: Final = KeyPart(4, longest=_LONGEST_GROUP, digest=blake2b(_DIGEST_BYTES))
#: Size of a chunk.
_CHUNK_BYTES: Final = 1 << 17
_BYTES: Final = "__sparkrelay_value"
_ROW: Final = "__sparkrelay_row"
_WEIGHT: Final = "__sparkrelay_weight"
_NUMBER: Final = struct.Struct(">H")
_COUNT: Final = np.dtype("<i8")
_LENGTH: Final = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class CollectedRows:
    """Values that rows add to one aggregate, or remove from it.

    Attributes:
        index: the aggregate's index.
        partitions: the task of each value.
        groups: the message key of each value's group.
        values: each value once a group, or chunks of values.
        counts: additions less removals of each value; the number of values of a chunk.
    """

    index: int
    partitions: pa.Array
    groups: pa.Array
    values: pa.Array
    counts: pa.Array

    def of(self, partition: int) -> CollectedRows:
        """Return the values of one task."""
        own = pc.equal(self.partitions, partition)
        columns = (self.partitions, self.groups, self.values, self.counts)
        return CollectedRows(self.index, *(column.filter(own) for column in columns))


def collected_rows(
    aggregates: Sequence[AggregateSpec],
    rows: pa.Table,
    by: Sequence[str],
    encode: Callable[[pa.Table], pa.Array],
    partition: int | None,
) -> list[CollectedRows]:
    """Return the values that rows add to, or remove from, each collecting aggregate.

    Args:
        aggregates: all aggregates of the step.
        rows: its input.
        by: the grouping columns.
        encode: computes message keys; null for rows without a group.
        partition: the only task; None if the first column of ``by`` is the task.

    Raises:
        SerializationException: a frequency is negative.
    """
    found = []
    for index, aggregate in enumerate(aggregates):
        if not aggregate.collects:
            continue
        values, weights = _values(aggregate, rows)
        if hidden_columns.CHANGE in rows.column_names:
            new = pc.equal(whole(rows.column(hidden_columns.CHANGE)), NEW)
            weights = pc.if_else(new, weights, pc.negate(weights))
        keyed = rows.select(list(by)).append_column(_BYTES, values).append_column(_WEIGHT, weights)
        keyed = keyed.filter(pc.and_(values.is_valid(), pc.not_equal(weights, 0)))
        if aggregate.in_order:
            numbers = pa.array(np.arange(keyed.num_rows))
            grouped = keyed.select(list(by)).append_column(_ROW, numbers).group_by(list(by), use_threads=False)
            pairs = grouped.aggregate([(_ROW, "list")])
            lists = whole(pairs.column(f"{_ROW}_list"))
            pairs = pairs.select(list(by))
            counts = pc.list_value_length(lists).cast(pa.int64())
            values = whole(keyed.column(_BYTES)).take(lists.flatten())
            which, counts = _pieces(values, counts.to_numpy())
            values, counts, pairs = _chunks(values, counts), pa.array(counts), pairs.take(pa.array(which))
        else:
            pairs = keyed.group_by([*by, _BYTES], use_threads=False).aggregate([(_WEIGHT, "sum")])
            # Added and removed within the batch.
            pairs = pairs.filter(pc.not_equal(pairs.column(f"{_WEIGHT}_sum"), 0))
            values, counts = whole(pairs.column(_BYTES)), whole(pairs.column(f"{_WEIGHT}_sum"))
        groups = encode(pairs)
        partitions = whole(pairs.column(by[0])) if partition is None else pa.repeat(partition, len(groups))
        kept = groups.is_valid()
        columns = (partitions.cast(pa.int32()), groups, values, counts)
        found.append(CollectedRows(index, *(column.filter(kept) for column in columns)))
    return found


def _values(aggregate: AggregateSpec, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return each row's encoded value, or null, and its weight."""
    assert aggregate.column is not None
    ones = pa.array(np.ones(rows.num_rows, dtype=np.int64))
    first = as_type(whole(rows.column(aggregate.column)), aggregate.input_type)
    others = [as_type(whole(rows.column(name)), kind) for name, kind in aggregate.others]
    weights, columns = ones, [first]
    if aggregate.distinct and aggregate.function not in COUNTED:
        columns += others
    elif others:
        weights = pc.fill_null(others[0].cast(pa.int64()), 0)
        if pc.any(pc.less(weights, 0)).as_py():
            raise SerializationException(
                f"{aggregate}: the frequency {pc.min(weights).as_py()} is negative; filter such rows out with where()"
            )
    there = first.is_valid()
    for column in columns[1:]:
        there = pc.and_(there, column.is_valid())
    packed = key_bytes(columns, normal=not aggregate.in_order).cast(pa.binary())
    return pc.if_else(there, packed, pa.scalar(None, pa.binary())), weights


class TaskCollection:
    """Collected values of one task's groups during a transaction."""

    def __init__(self, codec: Any, encoded: pa.Array, ends: pa.Array | None, most: int, *, final: bool) -> None:
        """Take the groups.

        Args:
            codec: the aggregates' codec.
            encoded: message keys of the groups.
            ends: encoded ends of the groups' windows, if any.
            most: largest result of an aggregate that shows all values, in bytes.
            final: whether windows are emitted only when they close.
        """
        self._codec: AggregateCodec = codec
        self._encoded = encoded
        self._ends = [] if ends is None else [ends]
        self._final = final
        self._most = most
        self._before: dict[int, Values] = {}
        self._after: dict[int, Values] = {}

    def change(
        self, view: StoreView, old: pa.Array, rows: Sequence[CollectedRows]
    ) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
        """Yield keys with their old and new values, an aggregate at a time, and keep the values for the results.

        Args:
            view: the store.
            old: states of the groups before the batch.
            rows: values added and removed.
        """
        all_fronts = side_by_side(*self._ends, _group_fronts(self._encoded)) if rows else self._encoded
        for some in rows:
            places = pc.index_in(some.groups, value_set=self._encoded)
            starts, stops = (side_by_side(all_fronts, _NUMBER.pack(some.index + more)) for more in (0, 1))
            at = places.to_numpy().astype(np.int64)
            fronts = starts.take(places)
            if self._codec.specs[some.index].in_order:
                first = self._codec.counts(old, some.index)[at] + _before_in_group(at, some.counts.to_numpy())
                keys, new = side_by_side(fronts, big_endian(first)), some.values
                was = pa.nulls(len(keys), pa.binary())
            else:
                keys = side_by_side(fronts, some.values)
                was = view.get(keys)
                new = _as_counts(_counts(was) + some.counts.to_numpy())
            yield keys, was, new
            if not self._final:
                self._gather(view, some, starts, stops, at)

    def _gather(
        self, view: StoreView, some: CollectedRows, starts: pa.Array, stops: pa.Array, at: NDArray[np.int64]
    ) -> None:
        """Read all values of the groups, and keep them as before and after the batch."""
        numbers, keys, values = view.ranges(starts.to_pylist(), stops.to_pylist())
        lengths = pc.binary_length(starts).to_numpy().astype(np.int64)[numbers]
        suffixes = cut(*buffers(keys), [lengths]).take(pa.array(np.arange(1, 2 * len(keys), 2)))
        in_order = self._codec.specs[some.index].in_order
        before = _stored(len(starts), numbers, suffixes, values, in_order=in_order)
        if in_order:
            added = _stored(len(starts), at, some.values, some.values, in_order=True)
            after = Values(
                len(starts),
                np.r_[before.places, added.places],
                pa.concat_arrays([before.packed, added.packed]),
                np.r_[before.counts, added.counts],
            )
        else:
            both = pa.table(
                [
                    np.r_[before.places, at],
                    pa.concat_arrays([before.packed, some.values.cast(pa.binary())]),
                    np.r_[before.counts, some.counts.to_numpy()],
                ],
                ["place", "value", "count"],
            )
            summed = both.group_by(["place", "value"], use_threads=False).aggregate([("count", "sum")])
            summed = summed.filter(pc.greater(summed.column("count_sum"), 0))
            after = Values(
                len(starts),
                summed.column("place").to_numpy(),
                whole(summed.column("value")),
                summed.column("count_sum").to_numpy(),
            )
        self._before[some.index], self._after[some.index] = before, after

    def results_before(self, results: list[pa.Array]) -> list[pa.Array]:
        """Return results with those of the values before the batch filled in."""
        return self._filled(results, self._before)

    def results_after(self, results: list[pa.Array], deletes: pa.Array | None) -> list[pa.Array]:
        """Return results with those of the values after the batch filled in; of deleted groups, before the batch.

        Raises:
            SerializationException: a result is too large; the message names the group.
        """
        after = self._filled(results, self._after)
        if deletes is None or not pc.any(deletes).as_py():
            return after
        before = self.results_before(results)
        return [
            pc.if_else(deletes, was, now) if index in self._after else now
            for index, (was, now) in enumerate(zip(before, after, strict=True))
        ]

    def _filled(self, results: list[pa.Array], found: dict[int, Values]) -> list[pa.Array]:
        results = list(results)
        for index, values in found.items():
            results[index] = _result(self._codec, index, values, self._encoded, self._most)
        return results


def collected_results(
    codec: Any, groups: pa.RecordBatch, stored: pa.RecordBatch, results: list[pa.Array], *, windowed: bool, most: int
) -> list[pa.Array]:
    """Return results of stored groups with those of their collected values filled in.

    Args:
        codec: the aggregates' codec.
        groups: message keys and states of the groups.
        stored: ``key, value`` of the store, with all entries of these groups.
        results: results of the states.
        windowed: whether the store's keys begin with the ends of windows.
        most: largest result of an aggregate that shows all values, in bytes.

    Raises:
        SerializationException: a result is too large; the message names the group.
        StoreCorruptedException: a key is malformed.
    """
    encoded = groups.column("key")
    keys, values = stored.columns
    skipped = 8 if windowed else 0
    own = pc.equal(pc.binary_slice(keys, skipped, skipped + 1), pa.scalar(_COLLECTED, pa.binary()))
    keys, values = keys.filter(own), values.filter(own)
    sizes = _big_endian_lengths(keys, skipped + 1)
    fronts = 5 + np.where(sizes > _LONGEST_GROUP, _DIGEST_BYTES, sizes)
    if (pc.binary_length(keys).to_numpy() < skipped + fronts + 2).any():
        raise _corrupted("a key is too short")
    pieces = cut(*buffers(keys), [skipped, fronts, 2])
    fronts, numbers, suffixes = (pieces.take(pa.array(np.arange(n, 4 * len(keys), 4))) for n in (1, 2, 3))
    places = pc.index_in(fronts, value_set=_group_fronts(encoded))
    results = list(results)
    for index, aggregate in enumerate(codec.specs):
        if not aggregate.collects:
            continue
        here = pc.and_(pc.equal(numbers, _NUMBER.pack(index)), places.is_valid())
        at = places.filter(here).to_numpy().astype(np.int64)
        found = _stored(len(encoded), at, suffixes.filter(here), values.filter(here), in_order=aggregate.in_order)
        results[index] = _result(codec, index, found, encoded, most)
    return results


def collected_spans(encoded: pa.Array, ends: pa.Array | None) -> list[tuple[bytes, bytes]]:
    """Return the ranges ``[start, stop)`` of a store's keys with all collected values of groups.

    Args:
        encoded: message keys of the groups.
        ends: encoded ends of the groups' windows, if any.
    """
    fronts = side_by_side(*([] if ends is None else [ends]), _group_fronts(encoded))
    # No aggregate has this index.
    return [(front, front + b"\xff\xff") for front in fronts.to_pylist()]


def _result(codec: AggregateCodec, index: int, values: Values, encoded: pa.Array, most: int) -> pa.Array:
    aggregate = codec.aggregates[index]
    assert isinstance(aggregate, Collected), "not a collecting aggregate"
    if aggregate.lists:
        sizes = values.bytes_of_groups(repeated=aggregate.spec.function == "sorted_listagg")
        if len(sizes) and int(sizes.max()) > most:
            group = int(sizes.argmax())
            raise SerializationException(
                f"{aggregate.spec}: the values of the group with key {encoded[group].as_py()!r} have {sizes[group]} "
                f"bytes; a record holds at most {most} (max.request.size). Raise it and the topics' max.message.bytes, "
                "or start over (sparkrelay reset) with fewer values a group: FILTER (WHERE ...), shorter windows, or "
                "rows instead of a list"
            )
    return as_type(aggregate.of(values), aggregate.spec.result_type)


def _group_fronts(encoded: pa.Array) -> pa.Array:
    return side_by_side(_COLLECTED, _GROUP.of_all(encoded))


def _big_endian_lengths(keys: pa.Array, start: int) -> NDArray[np.int64]:
    if pc.min(pc.binary_length(keys)).as_py() is not None and pc.min(pc.binary_length(keys)).as_py() < start + 4:
        raise _corrupted("a key is too short")
    offsets, data = buffers(keys)
    return (
        np.ascontiguousarray(data[offsets[:-1, None] + np.arange(start, start + 4)])
        .view(">u4")
        .reshape(-1)
        .astype(np.int64)
    )


def _counts(stored: pa.Array) -> NDArray[np.int64]:
    """Decode counts; 0 for null."""
    there = stored.is_valid().to_numpy(zero_copy_only=False)
    counts = np.zeros(len(stored), dtype=np.int64)
    data = b"".join(stored.drop_null().to_pylist())
    if len(data) != _COUNT.itemsize * int(there.sum()):
        raise _corrupted("a count does not have 8 bytes")
    counts[there] = np.frombuffer(data, _COUNT)
    if (counts[there] <= 0).any():
        raise _corrupted("a count is not positive")
    return counts


def _as_counts(counts: NDArray[np.int64]) -> pa.Array:
    """Encode counts; null for 0."""
    return pc.if_else(pa.array(counts > 0), fixed(counts.astype(_COUNT), _COUNT.itemsize), pa.scalar(None, pa.binary()))


def _pieces(values: pa.Array, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut the values of groups into pieces of one record. Values are sorted by group.

    Returns:
        The group of each piece, and its number of values.
    """
    offsets, _ = buffers(values)
    groups = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    pieces = (offsets[:-1] - offsets[starts[groups]]) // _CHUNK_BYTES if len(groups) else groups
    firsts = np.flatnonzero(np.r_[True, (np.diff(groups) != 0) | (np.diff(pieces) != 0)]) if len(groups) else groups
    return groups[firsts], np.diff(np.r_[firsts, len(groups)])


def _before_in_group(places: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of values before each piece in its group. Pieces are sorted by group."""
    before = np.cumsum(counts) - counts
    _, firsts, which = np.unique(places, return_index=True, return_inverse=True)
    return before - before[firsts[which]]


def _chunks(values: pa.Array, counts: NDArray[np.int64]) -> pa.Array:
    """Encode the values of each piece as one chunk: their number, their lengths, their bytes."""
    offsets, data = buffers(values)
    lengths = np.diff(offsets).astype(_LENGTH)
    ends = np.cumsum(counts)
    chunks = [
        struct.pack("<I", end - start) + lengths[start:end].tobytes() + data[offsets[start] : offsets[end]].tobytes()
        for start, end in zip((ends - counts).tolist(), ends.tolist(), strict=True)
    ]
    return pa.array(chunks, pa.binary())


def _stored(groups: int, places: NDArray[np.int64], suffixes: pa.Array, values: pa.Array, *, in_order: bool) -> Values:
    """Decode values from the suffixes of their keys and what is stored there. Chunks must be in order."""
    if not in_order:
        return Values(groups, places, suffixes, _counts(values))
    lengths, parts, counts = [], [], []
    for chunk in values.to_pylist():
        count = int.from_bytes(chunk[:4], "little")
        start = 4 + _LENGTH.itemsize * count
        own = np.frombuffer(chunk[4:start], _LENGTH) if start <= len(chunk) else np.zeros(0, _LENGTH)
        if len(own) != count or start + int(own.sum(dtype=np.int64)) != len(chunk):
            raise _corrupted("the lengths in a chunk do not add up")
        lengths.append(own)
        parts.append(chunk[start:])
        counts.append(count)
    offsets = np.r_[0, np.cumsum(np.concatenate([*lengths, np.zeros(0, _LENGTH)]).astype(np.int64))]
    packed = from_spans(offsets, np.frombuffer(b"".join(parts), np.uint8))
    return Values(groups, np.repeat(places, counts), packed, np.ones(len(packed), dtype=np.int64))


def _corrupted(what: str) -> StoreCorruptedException:
    return StoreCorruptedException(
        f"a store's collected values are malformed: {what}. The store is damaged: delete the task's directory to have "
        "it restored, or start the application over: sparkrelay reset"
    )

"""Rows of fetched records: decoded in Arrow, with the wanted columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.errors import SerializationException, UnknownSchemaException
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.batches.encode import NO_TIMESTAMP
from sparkrelay.records.formatted import format_to_columns
from sparkrelay.runtime.worker.encoding import first_of_another_layout, unpack_rows
from sparkrelay.runtime.worker.origins import Origins
from sparkrelay.runtime.worker.skipped_records import without_bad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.runtime.contract.specs import FetchSpec
    from sparkrelay.runtime.worker.skipped_records import SkippedRecords
    from sparkrelay.types import TopicPartition

Fetched: TypeAlias = "tuple[TopicPartition, pa.RecordBatch]"


def raw_columns(spec: FetchSpec) -> frozenset[str]:
    """Return the columns of raw records that are used here."""
    wanted = set(spec.output.names)
    # Values show tombstones even if no step reads them.
    columns = {"offset", "timestamp", "value"}
    if _key_wanted(spec) or hidden_columns.KEY in wanted or "key" in wanted:
        columns.add("key")
    if "kafka" in wanted:
        # Topic and partition are known from where the records were fetched.
        columns.update({field.name for field in spec.output.field("kafka").type} - {"topic", "partition"})
    columns.update(wanted & {"timestampType", "headers"})
    if spec.whole:
        columns.update({"key", "headers"})
    return frozenset(columns)


def _key_wanted(spec: FetchSpec) -> bool:
    return spec.key_schema is not None and len(spec.key_schema) > 0


def decoded_rows(
    spec: FetchSpec,
    partition: TopicPartition,
    raw: pa.RecordBatch,
    times: dict[TopicPartition, int],
    skipped: SkippedRecords | None = None,
) -> pa.RecordBatch:
    """Return the rows of at least one fetched record, with the columns :func:`raw_columns`.

    ``times`` keeps each partition's time between fetches. ``skipped`` takes records that cannot be decoded; None: they
    were recorded before, and are only dropped. Raises SerializationException if such records are not skipped.
    """
    if hidden_columns.PARTITION_TIME not in spec.output.names:
        return _rows(spec, partition, raw, skipped)
    if spec.event_time:
        return _with_partition_time(spec, partition, _rows(spec, partition, raw, skipped), times)
    # Before tombstones are dropped: they advance it too, as in Kafka Streams.
    return _rows(spec, partition, _with_partition_time(spec, partition, raw, times), skipped)


def rows_together(spec: FetchSpec, few: Sequence[Fetched]) -> pa.RecordBatch | None:
    """Return the rows of fetches from several partitions; None if one has bad records, to decode them one by one."""
    try:
        records, bad = _decoded(spec, few)
    except SerializationException:
        return None
    return None if bad else _project(spec, records.without_tombstones(spec))


def _rows(
    spec: FetchSpec, partition: TopicPartition, raw: pa.RecordBatch, skipped: SkippedRecords | None
) -> pa.RecordBatch:
    records, bad = _decoded(spec, [(partition, raw)])
    records = records.without_tombstones(spec)
    if bad:
        records = records.filter(without_bad(spec, partition, records.raw, bad, skipped))
    return _project(spec, records)


def _with_partition_time(
    spec: FetchSpec, partition: TopicPartition, rows: pa.RecordBatch, times: dict[TopicPartition, int]
) -> pa.RecordBatch:
    """Add each row's partition time; ``times`` keeps it between batches."""
    name = hidden_columns.TIMESTAMP if spec.event_time else "timestamp"
    if not rows.num_rows:
        return rows
    stamps = rows.column(name).view(pa.int64()).to_numpy(zero_copy_only=False)
    newest = np.maximum(np.maximum.accumulate(stamps), times.get(partition, stamps[0]))
    times[partition] = int(newest[-1])
    field = pa.field(hidden_columns.PARTITION_TIME, pa.int64(), nullable=False)
    index = rows.schema.get_field_index(hidden_columns.PARTITION_TIME)
    return rows.append_column(field, pa.array(newest)) if index < 0 else rows.set_column(index, field, pa.array(newest))


@dataclass(frozen=True, slots=True)
class _Records:
    """Decoded records: their partitions, the raw records, and the decoded columns."""

    origins: Origins
    raw: pa.RecordBatch
    columns: dict[str, pa.Array]

    def filter(self, keep: pa.Array) -> _Records:
        """Return some of the records."""
        columns = {name: column.filter(keep) for name, column in self.columns.items()}
        return _Records(self.origins.filter(keep), self.raw.filter(keep), columns)

    def without_tombstones(self, spec: FetchSpec) -> _Records:
        """Drop tombstones of an internal topic where they end here: rows themselves say whether they are one."""
        if spec.internal and spec.skip_tombstones and self.columns[hidden_columns.TOMBSTONE].true_count:
            return self.filter(pc.invert(self.columns[hidden_columns.TOMBSTONE]))
        return self


def _decoded(spec: FetchSpec, fetched: Sequence[Fetched]) -> tuple[_Records, list[BadRecord]]:
    """Decode the records of fetches; return also those that cannot be decoded.

    Errors name the first partition: those of several partitions are decoded again, one by one.
    """
    partition, origins = fetched[0][0], Origins.of(fetched)
    raw = fetched[0][1] if len(fetched) == 1 else pa.concat_batches([batch for _, batch in fetched])
    if spec.skip_tombstones and raw.column("value").null_count:
        keep = pc.is_valid(raw.column("value"))
        raw, origins = raw.filter(keep), origins.filter(keep)
    if spec.internal:
        _require_layout(spec, partition, raw)
    try:
        columns, bad = _decoded_columns(spec, raw)
    except UnknownSchemaException:
        raise  # the driver asks the registry, and the batch runs again
    except SerializationException as error:
        where = f"{partition.topic}-{partition.partition} from offset {raw.column('offset')[0].as_py()} on"
        what = f"records of {where} do not decode: {error}"
        if spec.internal:
            what += (
                ". Something else wrote to this topic, which belongs to the application, or the record is damaged. "
                "Find and stop the writer, then start over: sparkrelay reset"
            )
        raise SerializationException(what) from error
    if not spec.internal:
        bad = _with_times_before_1970(spec, raw, columns, bad)
    return _Records(origins, raw, columns), bad


def _decoded_columns(spec: FetchSpec, raw: pa.RecordBatch) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Return the decoded columns, and the records that cannot be decoded.

    A packed row contains a flag for tombstones, as its value is never null.
    """
    columns: dict[str, pa.Array] = {}
    bad: list[BadRecord] = []
    if spec.internal:
        assert spec.value_schema is not None
        unpacked, columns[hidden_columns.TOMBSTONE] = unpack_rows(raw.column("value"), spec.value_schema)
        columns.update(zip(spec.value_schema.names, unpacked, strict=True))
    elif spec.value is not None:
        columns, bad = format_to_columns(raw.column("value"), spec.value, "value", spec.value_schema)
    if _key_wanted(spec):
        assert spec.key is not None
        decoded, bad_keys = format_to_columns(raw.column("key"), spec.key, "key", spec.key_schema)
        columns.update(decoded)
        known = {record.index for record in bad}
        bad = sorted([*bad, *(one for one in bad_keys if one.index not in known)], key=lambda record: record.index)
    return columns, bad


def _require_layout(spec: FetchSpec, partition: TopicPartition, raw: pa.RecordBatch) -> None:
    """Refuse records of a repartition topic with other columns than this pipeline reads from it."""
    index = first_of_another_layout(raw.column("value"), spec.layout)
    if index is None:
        return
    assert spec.value_schema is not None
    wanted = ", ".join(f"{field.name} {field.type}" for field in spec.value_schema)
    raise SerializationException(
        f"the record in {partition.topic}-{partition.partition} at offset {raw.column('offset')[index].as_py()} does "
        f"not have the columns that this pipeline reads there ({wanted}): an earlier pipeline or release wrote it, or "
        "something else wrote to this topic. If it was an earlier pipeline or release, run that one until it has read "
        "the topic to its end, then this one. If it was something else, stop that writer. To start over: "
        "sparkrelay reset"
    )


def _with_times_before_1970(
    spec: FetchSpec, raw: pa.RecordBatch, columns: Mapping[str, pa.Array], bad: list[BadRecord]
) -> list[BadRecord]:
    """Return the bad records and those with times before 1970, which no record's timestamp can express.

    Brokers accept some of them, as from producers of other clients; but -1 means no timestamp, a topic with its own
    compression refuses the batch, and a compacted one is no longer cleaned.
    """
    own = raw.column("timestamp").view(pa.int64())
    early, millis, meant = pc.less(own, NO_TIMESTAMP), own, None
    if spec.event_time:
        # In its own unit: a time less than a millisecond before 1970 would be truncated to 0.
        meant = columns[spec.event_time]
        days = pa.types.is_date32(meant.type)
        early = pc.coalesce(pc.less(meant.view(pa.int32() if days else pa.int64()), 0), early)
        millis = pc.coalesce(meant.cast(pa.timestamp("ms", "UTC"), safe=False).view(pa.int64()), own)
    if not early.true_count:
        return bad
    known = {record.index for record in bad}
    found = []
    for index in np.flatnonzero(early.to_numpy(zero_copy_only=False)).tolist():
        what = "timestamp" if meant is None or not meant[index].is_valid else f"event time {spec.event_time!r}"
        reason = f"its {what}, {np.datetime64(millis[index].as_py(), 'ms')}, is before 1970, which Kafka does not know"
        if index not in known:
            found.append(BadRecord(index, reason))
    return sorted([*bad, *found], key=lambda record: record.index)


def _project(spec: FetchSpec, records: _Records) -> pa.RecordBatch:
    """Arrange the columns as in the step's output schema."""
    origins, raw, columns = records.origins, records.raw, records.columns
    rows = raw.num_rows
    arrays = []
    for field in spec.output:
        if field.name == hidden_columns.PARTITION:
            array = _zeros(rows) if spec.is_global else origins.partition_numbers()
        elif field.name == hidden_columns.SOURCE:
            array = origins.numbers([spec.topics.index(partition.topic) for partition in origins.partitions])
        elif field.name == hidden_columns.TIMESTAMP:
            source = columns[spec.event_time] if spec.event_time else raw.column("timestamp")
            array = pc.cast(source.cast(pa.timestamp("ms", "UTC"), safe=False), pa.int64())
            if array.null_count:
                array = pc.coalesce(array, pc.cast(raw.column("timestamp"), pa.int64()))
        elif field.name == hidden_columns.PARTITION_TIME:
            # With an event time column it is computed from that, later.
            array = _zeros(rows) if spec.event_time else raw.column(field.name)
        elif field.name == hidden_columns.KEY:
            array = raw.column("key")
        elif field.name == hidden_columns.TOMBSTONE:
            array = columns[field.name] if spec.internal else pc.is_null(raw.column("value"))
        elif field.name == "kafka" and field.name not in columns:
            array = pa.StructArray.from_arrays(
                [_kafka_column(child, origins, raw) for child in field.type], fields=list(field.type)
            )
        elif field.name in columns:
            array = columns[field.name]
        else:
            array = _kafka_column(field, origins, raw)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=spec.output)


def _kafka_column(field: pa.Field, origins: Origins, raw: pa.RecordBatch) -> pa.Array:
    if field.name == "topic":
        array = origins.topics()
    elif field.name == "partition":
        array = origins.partition_numbers()
    else:
        array = raw.column(field.name)
    return array if array.type == field.type else array.cast(field.type)


def _zeros(rows: int) -> pa.Array:
    return pa.array(np.zeros(rows, dtype=np.int32))

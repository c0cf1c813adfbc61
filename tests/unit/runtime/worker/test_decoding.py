"""Rows of raw records: which timestamp each of them carries, and which record is none."""

import json
import logging
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay import hidden_columns
from sparkrelay.errors import SerializationException
from sparkrelay.records.batches.columns import KAFKA_SCHEMA
from sparkrelay.records.formats import Json
from sparkrelay.runtime.contract.specs import FetchSpec
from sparkrelay.runtime.worker.decoding import _rows, decoded_rows, rows_together
from sparkrelay.runtime.worker.encoding import pack_rows
from sparkrelay.types import TopicPartition

PARTITION_TIME = hidden_columns.PARTITION_TIME
KINDS = {
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
    "bigint": pa.int64(),
}


def spec(kind=None, *, skip=True):
    fields = [pa.field("n", pa.int32())]
    if kind is not None:
        fields.append(pa.field("at", KINDS[kind]))
    hidden = [pa.field(hidden_columns.PARTITION, pa.int32()), pa.field(hidden_columns.TIMESTAMP, pa.int64())]
    return FetchSpec(
        leg="leg",
        subtopology=0,
        topics=("in",),
        spark_partitions=1,
        client={},
        key=None,
        value=Json("n int"),
        internal=False,
        value_schema=pa.schema(fields),
        output=pa.schema([fields[0], *hidden]),
        event_time=None if kind is None else "at",
        skip_tombstones=False,
        skip_bad_records=skip,
        map_limit=0,
        failure_key=b"",
    )


def raw_records(records):
    """Return raw records of (event time, record's own timestamp)."""
    values = [None if at == "tombstone" else json.dumps({"n": 1, "at": at}).encode() for at, _ in records]
    return pa.record_batch(
        {
            "offset": pa.array(range(100, 100 + len(records)), pa.int64()),
            "timestamp": pa.array([own for _, own in records], pa.int64()).cast(KAFKA_SCHEMA.field("timestamp").type),
            "value": pa.array(values, pa.binary()),
        }
    )


def timestamps(spec, records):
    """Return the timestamps of the rows of (event time, record's own timestamp)."""
    raw = raw_records(records)
    return _rows(spec, TopicPartition("in", 2), raw, None).column(hidden_columns.TIMESTAMP).to_pylist()


@pytest.mark.parametrize("kind", [None, "bigint"])
def test_rows_have_the_schema_that_was_said(kind):
    """Else a resident job, whose first batch is made by that schema, fails at the first rows."""
    said = spec(kind)
    hidden = [pa.field(name, pa.int64(), nullable=False) for name in (hidden_columns.TIMESTAMP, PARTITION_TIME)]
    said = replace(said, output=pa.schema([said.output.field("n"), *hidden]))
    found = decoded_rows(said, TopicPartition("in", 2), raw_records([(3000, 1), (None, 2000), (1000, 1)]), {})
    assert found.schema == said.output
    assert found.column(PARTITION_TIME).to_pylist() == ([1, 2000, 2000] if kind is None else [3000, 3000, 3000])


@pytest.mark.parametrize(
    ("kind", "epoch", "before"),
    [
        ("timestamp", "1970-01-01T00:00:00Z", ["1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999Z"]),
        ("timestamp", "1970-01-01T01:00:00+01:00", ["1970-01-01T00:59:59+01:00", "0001-01-01T00:00:00Z"]),
        ("timestamp_ntz", "1970-01-01T00:00:00", ["1969-12-31T23:59:59.999999", "0001-01-01"]),
        ("date", "1970-01-01", ["1969-12-31", "0001-01-01"]),
        ("bigint", 0, [-1, -5000, -(2**63)]),
    ],
)
def test_a_time_before_1970_is_no_timestamp_of_a_record(kind, epoch, before):
    """Kafka has none: -1 stands for no timestamp, and with less, the broker compacts the partition no more."""
    rows = [(epoch, 77), *((at, 77) for at in before), (None, 78), ("tombstone", 79), ("soon", 80)]
    assert timestamps(spec(kind), rows) == [0, 78, 79]


def test_records_that_have_no_timestamp_are_passed_on_without():
    assert timestamps(spec(), [(None, -1), (None, 0), ("tombstone", -1)]) == [-1, 0, -1]
    assert timestamps(spec("bigint"), [(None, -1), (5, -1), ("tombstone", -1)]) == [-1, 5, -1]


def test_what_an_older_producer_wrote_before_1970():
    assert timestamps(spec(), [(None, -2), (None, 5)]) == [5]
    assert timestamps(spec("bigint"), [(None, -5000), (5, -5000), ("tombstone", -5000)]) == [5]


LAYOUT = 7


def internal_spec():
    """Return a spec that reads ``n`` from a repartition topic."""
    return replace(spec(), topics=("app-r-repartition",), value=None, internal=True, layout=LAYOUT)


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (
            b"garbage",
            r"app-r-repartition-2 at offset 101 does not have the columns .*\(n int32\): an earlier pipeline or",
        ),
        (None, r"app-r-repartition-2 at offset 101 does not have the columns .*\(n int32\): an earlier pipeline or"),
        ("cut", r"records of app-r-repartition-2 from offset 100 on do not decode: the key of row 1"),
    ],
    ids=["no packed row", "no value", "cut short"],
)
def test_the_error_of_a_record_that_no_pipeline_wrote_to_a_repartition_topic_names_other_writers(garbage, said):
    good = pack_rows(pa.record_batch({"n": pa.array([1], pa.int32())}), None, LAYOUT)[0].as_py()
    values = [good, good[:-3] if garbage == "cut" else garbage]
    raw = raw_records([(None, 1), (None, 1)]).set_column(2, "value", pa.array(values, pa.binary()))
    with pytest.raises(
        SerializationException, match=rf"(?i){said}.*something else wrote to this topic.* sparkrelay reset"
    ):
        _rows(internal_spec(), TopicPartition("app-r-repartition", 2), raw, None)


def test_the_error_says_which_time(caplog):
    words = r"record in-2 at offset 101 .*its event time 'at', 1969-12-31T23:59:55.000, is before 1970"
    with pytest.raises(SerializationException, match=words):
        timestamps(spec("timestamp", skip=False), [(None, 5), ("1969-12-31T23:59:55Z", 5)])
    with caplog.at_level(logging.WARNING):
        timestamps(spec(), [(None, -5000)])
    assert "record in-2 at offset 100 does not decode: its timestamp, 1969-12-31T23:59:55.000," in caplog.text


RECORD = st.tuples(st.sampled_from([None, "tombstone", 0, 1500]), st.integers(0, 3))
PARTS = st.lists(st.tuples(st.integers(0, 3), st.lists(RECORD, min_size=1, max_size=4)), min_size=2, max_size=6)


@pytest.mark.parametrize("tombstones_end", [False, True])
@given(parts=PARTS)
def test_few_records_of_several_partitions_are_decoded_together(tombstones_end, parts):
    hidden = [pa.field(name, pa.int32()) for name in (hidden_columns.PARTITION, hidden_columns.SOURCE)]
    names = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    times = pa.field(hidden_columns.TIMESTAMP, pa.int64())
    said = spec("bigint")
    output = pa.schema([said.output.field("n"), ("kafka", names), *hidden, times])
    said = replace(said, output=output, skip_tombstones=tombstones_end, topics=("in", "in2"))
    few = [(TopicPartition("in" if n % 2 else "in2", n), raw_records(records)) for n, records in parts]
    one_by_one = [_rows(said, partition, raw, None) for partition, raw in few]
    assert rows_together(said, few).equals(pa.concat_batches(one_by_one))


def test_a_bad_record_among_several_partitions_is_named_by_its_own():
    good, bad = raw_records([(0, 1), (5, 2)]), raw_records([(0, 1), ("soon", 2)])
    said = spec("bigint")
    few = [(TopicPartition("in", 0), good), (TopicPartition("in", 1), bad)]
    assert rows_together(said, few) is None
    assert rows_together(said, [few[0], few[0]]) is not None
    assert rows_together(said, [few[0], (few[0][0], raw_records([(-5, 1)]))]) is None, "1970"
    with pytest.raises(SerializationException, match="record in-1 at offset 101 does not decode"):
        _rows(replace(said, skip_bad_records=False), *few[1], None)

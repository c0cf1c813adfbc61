import datetime as dt
import random

import pyarrow as pa
import pytest

from sparkrelay.records.formats import Arrow
from sparkrelay.records.formatted import columns_to_format, format_to_columns

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("tags", pa.list_(pa.string()))])
ROWS = [{"user": "ada", "amount": 1.5, "tags": ["a", None]}, {"user": None, "amount": None, "tags": None}]
DATES = pa.schema([("n", pa.date32())])
LISTED = pa.schema([("rows", pa.list_(pa.struct(list(SCHEMA))))])


def stream(rows, schema=SCHEMA, *, compression=None, batches=1):
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema))
    return sink.getvalue().to_pybytes()


def read(values, schema=SCHEMA, form=None):
    columns, bad = format_to_columns(pa.array(values, pa.binary()), form or Arrow(schema), "value", schema)
    batch = pa.RecordBatch.from_pydict(columns)
    batch.validate(full=True)
    assert batch.schema.names == schema.names
    return batch.to_pylist(), [(one.index, one.reason) for one in bad]


def nulls(schema=SCHEMA):
    return dict.fromkeys(schema.names)


def test_a_row_a_record_is_read_and_written():
    batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
    written = columns_to_format(batch, Arrow()).to_pylist()
    assert [pa.ipc.open_stream(value).read_all().to_pylist() for value in written] == [[row] for row in ROWS]
    assert read(written) == (ROWS, [])
    assert read([stream(ROWS[:1]), None, stream(ROWS[1:])]) == ([ROWS[0], nulls(), ROWS[1]], [])
    assert read([]) == ([], [])
    assert read([None]) == ([nulls()], [])


def test_the_rows_of_a_record_are_one_column():
    form = Arrow("unused string", column="rows")
    rows, bad = read([stream(ROWS, batches=2), None, stream([]), stream(ROWS[:1])], LISTED, form)
    assert bad == []
    assert rows == [{"rows": ROWS * 2}, {"rows": None}, {"rows": []}, {"rows": ROWS[:1]}]
    written = columns_to_format(pa.RecordBatch.from_pylist(rows, LISTED), form)
    assert read(written.to_pylist(), LISTED, form) == (rows, [])
    rows, bad = read([stream(ROWS), b"damaged", stream(ROWS[:1])], LISTED, form)
    assert rows == [{"rows": ROWS}, {"rows": None}, {"rows": ROWS[:1]}]
    assert [index for index, _ in bad] == [1]


def test_fields_are_found_by_name_and_cast():
    other = pa.schema([("more", pa.int8()), ("amount", pa.int32()), ("user", pa.large_string())])
    rows, bad = read([stream([{"more": 1, "amount": 2, "user": "bob"}], other), stream(ROWS[:1])])
    assert (rows, bad) == ([{"user": "bob", "amount": 2.0, "tags": None}, ROWS[0]], [])
    # One of the records of that schema does not fit.
    wanted = pa.schema([("n", pa.int8())])
    wide = pa.schema([("n", pa.int64())])
    rows, bad = read([stream([{"n": n}], wide) for n in (1, 2, 3000, 4)], wanted)
    assert rows == [{"n": 1}, {"n": 2}, {"n": None}, {"n": 4}]
    assert bad == [(2, bad[0][1])]
    assert "3000" in bad[0][1]


def test_columns_that_nobody_reads_are_left_out():
    columns, bad = format_to_columns(pa.array([stream(ROWS[:1])], pa.binary()), Arrow(SCHEMA), "value", pa.schema([]))
    assert (columns, bad) == ({}, [])


UNION = pa.schema([("u", pa.dense_union([pa.field("a", pa.int8())]))])
REFUSED = {
    "compressed by zstd": (stream(ROWS[:1], compression="zstd"), "compressed"),
    "compressed by lz4": (stream([{"user": "x" * 100_000}], compression="lz4"), "compressed"),
    "two rows": (stream(ROWS), "it has 2 rows"),
    "no row": (stream([]), "no row"),
    "a row twice": (stream(ROWS[:1], batches=2), "it has 2 rows"),
    "a dictionary": (
        stream([{"user": "a"}], pa.schema([("user", pa.dictionary(pa.int8(), pa.string()))])),
        "not supported",
    ),
    "an extension": (stream([{"user": b"1" * 16}], pa.schema([("user", pa.uuid())])), "extension"),
    "rows without bytes": (stream([{"user": None}], pa.schema([("user", pa.null())])), "null, which is not supported"),
    "structs without fields": (stream([{"user": {}}], pa.schema([("user", pa.struct([]))])), "not supported"),
    "lists of no width": (stream([{"user": []}], pa.schema([("user", pa.list_(pa.int8(), 0))])), "not supported"),
    "a union": (UNION.serialize().to_pybytes(), "not supported"),
    "text": (b"user=ada", "not a readable Arrow IPC stream"),
    "nothing": (b"", "empty"),
    "a stream cut off": (stream(ROWS[:1])[:-40], "not a readable Arrow IPC stream"),
    "more behind it": (stream(ROWS[:1]) + b"x", "1 bytes follow its end"),
    "a file": (b"ARROW1\0\0" + stream(ROWS[:1]), "does not begin"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_taken_is_a_bad_record(name):
    value, reason = REFUSED[name]
    rows, bad = read([stream(ROWS[:1]), value, stream(ROWS[1:])])
    assert rows == [ROWS[0], nulls(), ROWS[1]]
    assert [index for index, _ in bad] == [1]
    assert reason in bad[0][1]


def test_deep_types_are_refused():
    kind = pa.int8()
    for _ in range(40):
        kind = pa.list_(kind)
    _, bad = read([stream([{"user": None}], pa.schema([("user", kind)]))])
    assert "deeper than 16 levels" in bad[0][1]


def test_a_length_that_bytes_do_not_bear_out_is_refused():
    good = stream(ROWS[:1])
    # The batch's length stands in its header, as do its nodes'.
    for length in (2**40, -1, 2**62):
        damaged = good.replace((1).to_bytes(8, "little"), length.to_bytes(8, "little", signed=True))
        assert damaged != good
        before = pa.total_allocated_bytes()
        rows, bad = read([damaged])
        assert pa.total_allocated_bytes() - before < 1 << 20
        assert rows == [nulls()]
        assert len(bad) == 1


@pytest.mark.long
def test_damaged_streams_are_read_or_bad():
    dice = random.Random(5)
    form = Arrow("unused string", column="rows")
    values = [stream(ROWS), stream(ROWS[:1]), stream([{"n": dt.date(2026, 1, 1)}], DATES)]
    for _ in range(2000):
        value = bytearray(dice.choice(values))
        for _ in range(dice.choice((1, 1, 2, 8))):
            value[dice.randrange(len(value))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        read([bytes(value)])
        read([bytes(value), values[0]], LISTED, form)

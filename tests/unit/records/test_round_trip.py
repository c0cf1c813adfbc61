from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from sparkrelay.errors import ConfigException, CorruptRecordException, SerializationException
from sparkrelay.records.batches import decode as decode_module
from sparkrelay.records.batches.codecs import CODEC_NAMES
from sparkrelay.records.batches.decode import HEADERS_TYPE, KAFKA_SCHEMA, decode
from sparkrelay.records.batches.encode import ProducerState, encode, encode_parts, next_sequence

texts = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=60, max_size=300))
headers = st.one_of(
    st.none(),
    st.lists(
        st.fixed_dictionaries({"key": st.text(max_size=8), "value": st.one_of(st.none(), st.binary(max_size=9))}),
        max_size=3,
    ),
)
times = st.one_of(st.integers(0, 2**45), st.just(-1), st.integers(-(2**62), 2**62))
rows = st.lists(st.tuples(texts, texts, times, headers), min_size=1, max_size=60)


def columns(items):
    return (
        pa.array([item[0] for item in items], pa.binary()),
        pa.array([item[1] for item in items], pa.binary()),
        pa.array([item[2] for item in items], pa.int64()),
        pa.array([item[3] for item in items], HEADERS_TYPE),
    )


def read(data, **settings):
    return decode(bytes(data), topic="t", partition=0, **{"start": 0, **settings})


@settings(deadline=None, max_examples=150)
@given(items=rows, codec=st.sampled_from(CODEC_NAMES), size=st.sampled_from([100, 700, 1_000_000]))
def test_what_is_encoded_is_decoded(new_log, items, codec, size):
    keys, values, timestamps, header_column = columns(items)
    log = new_log().extend(
        encode(keys, values, timestamps=timestamps, headers=header_column, compression=codec, max_batch_bytes=size)
    )
    got = read(log.data)
    assert got.record_count == len(items)
    assert got.next_offset == log.next_offset == len(items)
    got.batch.validate(full=True)
    assert got.batch.schema == KAFKA_SCHEMA
    assert got.batch.column("key").equals(keys)
    assert got.batch.column("value").equals(values)
    assert got.batch.column("timestamp").view(pa.int64()).equals(timestamps)
    assert got.batch.column("offset").to_pylist() == list(range(len(items)))
    assert got.batch.column("headers").to_pylist() == [item[3] or None for item in items]


@settings(deadline=None, max_examples=150)
@given(data=st.data(), items=rows, size=st.sampled_from([100, 700, 1_000_000]))
def test_parts_are_encoded_as_if_each_were_alone(data, items, size):
    """Many partitions of small micro-batches are; whether rows have headers, or none of them has."""
    cuts = data.draw(st.lists(st.integers(0, len(items)), max_size=5).map(sorted))
    spans = list(zip([0, *cuts], [*cuts, len(items)], strict=True))
    keys, values, timestamps, header_column = columns(items)
    producers = [ProducerState(7, 3, 10 * number) for number in range(len(spans))]
    parts = [(*span, producer) for span, producer in zip(spans, producers, strict=True)]
    what = {"transactional": True, "max_batch_bytes": size}
    found = encode_parts(keys, values, parts, timestamps=timestamps, headers=header_column, **what)
    for (start, stop), producer, batches in zip(spans, producers, found, strict=True):
        alone = encode(
            keys[start:stop],
            values[start:stop],
            timestamps=timestamps[start:stop],
            headers=header_column[start:stop],
            producer=producer,
            **what,
        )
        assert [(bytes(one.data), one.record_count, one.base_sequence) for one in batches] == [
            (bytes(one.data), one.record_count, one.base_sequence) for one in alone
        ]


@settings(deadline=None, max_examples=100)
@given(items=rows, codec=st.sampled_from([0, 1]))
def test_kafka_python_reads_what_we_write(items, codec):
    keys, values, timestamps, header_column = columns(items)
    (batch,) = encode(
        keys, values, timestamps=timestamps, headers=header_column, compression=CODEC_NAMES[codec],
        producer=ProducerState(7, 3, 11), transactional=True,
    )  # fmt: skip
    theirs = DefaultRecordBatch(bytes(batch.data))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (7, 3, 11)
    assert theirs.is_transactional
    assert theirs.max_timestamp == max(item[2] for item in items)
    read_back = [(r.key, r.value, r.timestamp, [{"key": k, "value": v} for k, v in r.headers]) for r in theirs]
    assert read_back == [(k, v, t, h or []) for k, v, t, h in items]


@settings(deadline=None, max_examples=100)
@given(items=rows, codec=st.sampled_from([0, 1]))
def test_we_read_what_kafka_python_writes(items, codec):
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for offset, (key, value, timestamp, pairs) in enumerate(items):
        builder.append(offset, timestamp, key, value, [(h["key"], h["value"]) for h in pairs or []])
    got = read(builder.build())
    assert got.batch.drop_columns(["offset", "timestampType", "timestamp"]).to_pylist() == [
        {"key": k, "value": v, "headers": h or None} for k, v, _, h in items
    ]
    assert got.batch.column("timestamp").view(pa.int64()).to_pylist() == [item[2] for item in items]


def test_batches_are_byte_for_byte_those_of_kafka_python():
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset in range(50):
        builder.append(offset, 1_700_000_000_000 + offset * 7, b"k%d" % offset, b"v" * offset, [("h", b"x")])
    (ours,) = encode(
        pa.array([b"k%d" % i for i in range(50)]),
        pa.array([b"v" * i for i in range(50)]),
        timestamps=pa.array([1_700_000_000_000 + i * 7 for i in range(50)]),
        headers=pa.array([[{"key": "h", "value": b"x"}]] * 50, HEADERS_TYPE),
    )
    theirs = bytearray(builder.build())
    struct.pack_into(">i", theirs, 12, -1)  # the leader epoch, which the CRC does not cover
    assert bytes(ours.data) == bytes(theirs)


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_a_large_batch_of_many_blocks(new_log, codec):
    value = b"".join(b"%06d" % i for i in range(200_000))
    log = new_log().extend(encode(pa.array([b"k"]), pa.array([value]), timestamps=1, compression=codec))
    assert read(log.data).batch.column("value").to_pylist() == [value]


def test_a_record_larger_than_the_limit_gets_a_batch_of_its_own(new_log):
    values = pa.array([b"a" * 10, b"b" * 5_000, b"c" * 10])
    batches = list(encode(None, values, timestamps=1, max_batch_bytes=500))
    assert [batch.record_count for batch in batches] == [1, 1, 1]
    assert read(new_log().extend(batches).data).batch.column("value").equals(values.cast(pa.binary()))


def test_batches_fill_up_to_the_limit_and_no_further():
    batches = list(encode(None, pa.array([b"x" * 90] * 1000), timestamps=5, max_batch_bytes=10_000))
    assert all(len(batch.data) <= 10_000 for batch in batches)
    assert all(len(batch.data) > 9_800 for batch in batches[:-1])
    assert sum(batch.record_count for batch in batches) == 1000


def test_strings_slices_chunks_and_large_types_are_written_alike():
    plain = pa.array(["a", None, "ccc", "", "ü"])
    for column in (plain, plain.cast(pa.large_string()), plain.cast(pa.binary()), plain.dictionary_encode(),
                   pa.concat_arrays([pa.array(["z"]), plain]).slice(1), pa.chunked_array([plain[:2], plain[2:]]),
                   plain.cast(pa.string_view())):  # fmt: skip
        (batch,) = encode(column, None, timestamps=9)
        assert read(batch.data).batch.column("key").to_pylist() == [b"a", None, b"ccc", b"", "ü".encode()]
        assert read(batch.data).batch.column("value").null_count == 5


def test_sliced_headers_with_hidden_entries():
    column = pa.array(
        [[{"key": "no", "value": b""}], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], [], None],
        HEADERS_TYPE,
    )
    (batch,) = encode(None, pa.array([b"x"] * 3), timestamps=0, headers=column.slice(1))
    assert read(batch.data).batch.column("headers").to_pylist() == [column[1].as_py(), None, None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit(unit):
    column = pa.array([1_700_000_000, None], pa.int64()).cast(pa.timestamp("s", "UTC")).cast(pa.timestamp(unit, "UTC"))
    (batch,) = encode(None, pa.array([b"x", b"y"]), timestamps=column)
    assert read(batch.data).batch.column("timestamp").view(pa.int64()).to_pylist() == [1_700_000_000_000, -1]


def test_sequences_run_on_over_batches_and_wrap():
    state = ProducerState(5, 0, 2**31 - 3)
    batches = list(encode(None, pa.array([b"x" * 50] * 6), timestamps=0, producer=state, max_batch_bytes=200))
    sequences, expected = [batch.base_sequence for batch in batches], 2**31 - 3
    for batch, sequence in zip(batches, sequences, strict=True):
        assert sequence == expected == struct.unpack_from(">i", batch.data, 53)[0]
        expected = next_sequence(expected, batch.record_count)
    assert sequences[-1] < 10


def test_a_batch_without_a_producer_says_so():
    (batch,) = encode(None, pa.array([b"x"]), timestamps=0)
    assert struct.unpack_from(">qhi", batch.data, 43) == (-1, -1, -1)


def test_nothing_to_write_yields_nothing():
    assert list(encode(pa.array([], pa.binary()), pa.array([], pa.binary()), timestamps=0)) == []


def test_bad_arguments_are_named():
    with pytest.raises(ConfigException, match="compression.type='brotli'"):
        encode(None, pa.array([b""]), timestamps=0, compression="brotli")
    with pytest.raises(SerializationException, match="values cannot be written to a topic: .* got int64"):
        encode(None, pa.array([1]), timestamps=0)
    with pytest.raises(ValueError, match="keys has 1 rows and values 2"):
        encode(pa.array([b""]), pa.array([b"", b""]), timestamps=0)
    with pytest.raises(ValueError, match="both None"):
        encode(None, None, timestamps=0)
    with pytest.raises(ValueError, match="producer"):
        encode(None, pa.array([b""]), timestamps=0, transactional=True)
    with pytest.raises(SerializationException, match="header without a key"):
        encode(None, pa.array([b""]), timestamps=0, headers=pa.array([[{"key": None, "value": b""}]], HEADERS_TYPE))
    with pytest.raises(ValueError, match="unknown columns \\['colour'\\]"):
        read(b"", columns=["colour"])


def test_beyond_two_gibibytes_columns_become_large(monkeypatch, new_log):
    log = new_log().extend(encode(pa.array([b"k"]), pa.array([b"v" * 100]), timestamps=0))
    monkeypatch.setattr(decode_module, "_BINARY_LIMIT", 50)
    batch = read(log.data).batch
    assert batch.column("value").type == pa.large_binary()
    assert batch.column("value").to_pylist() == [b"v" * 100]


def test_header_names_that_are_not_utf8_are_replaced_as_java_does():
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    builder.append(0, 0, None, b"v", [("hh", b"x")])
    raw = bytearray(builder.build())
    at = raw.index(b"hh")
    raw[at : at + 2] = b"\xff\xfe"
    assert read(raw, check_crc=False).batch.column("headers").to_pylist() == [[{"key": "\ufffd\ufffd", "value": b"x"}]]


def test_an_unknown_codec_is_a_named_error():
    (batch,) = encode(None, pa.array([b"x"]), timestamps=0)
    raw = bytearray(batch.data)
    raw[22] |= 7
    with pytest.raises(CorruptRecordException, match="codec 7 is unknown"):
        read(raw, check_crc=False)

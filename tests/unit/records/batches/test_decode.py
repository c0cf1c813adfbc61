from __future__ import annotations

import json
import random
import struct
import subprocess
import sys

import crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from sparkrelay.errors import CorruptRecordException, RecordException, UnsupportedVersionException
from sparkrelay.records.batches import codecs
from sparkrelay.records.batches.codecs import CODEC_IDS, CODEC_NAMES, CodecError
from sparkrelay.records.batches.decode import HEADERS_TYPE, KAFKA_SCHEMA, AbortedTransaction, decode
from sparkrelay.records.batches.encode import ProducerState, encode
from sparkrelay.records.batches.headers import end_offset, in_front_of


def read(log, **settings):
    data = bytes(getattr(log, "data", log))
    return decode(data, topic="t", partition=3, **{"start": 0, **settings})


def some(count, prefix="v", **settings):
    values = pa.array([f"{prefix}{index}" for index in range(count)])
    (batch,) = encode(values, values, timestamps=1_000, **settings)
    return batch.data


def transactional(count, prefix, producer_id):
    return some(count, prefix, producer=ProducerState(producer_id, 0, 0), transactional=True)


def values_of(decoded):
    return [value.decode() for value in decoded.batch.column("value").to_pylist()]


def test_nothing_fetched():
    got = read(b"", start=17)
    assert (got.record_count, got.next_offset, got.batch.schema) == (0, 17, KAFKA_SCHEMA)


@pytest.mark.parametrize(
    ("start", "stop"), [(0, None), (3, None), (12, 18), (10, 11), (4, 4), (0, 10), (9, 1000), (25, None)]
)
def test_only_the_wanted_offsets(new_log, start, stop):
    log = new_log()
    for _ in range(3):
        log.append(some(8))
    got = read(log, start=start, stop=stop)
    wanted = [offset for offset in range(24) if start <= offset and (stop is None or offset < stop)]
    assert got.batch.column("offset").to_pylist() == wanted
    assert got.next_offset == max(start, min(24, stop if stop is not None else 24))


def test_compacted_offsets_keep_their_gaps(new_log):
    log = new_log()
    log.append(some(2), base_offset=10)
    log.append(some(2), base_offset=100)
    got = read(log, start=5)
    assert got.batch.column("offset").to_pylist() == [10, 11, 100, 101]
    assert got.next_offset == 102


def test_a_batch_emptied_by_compaction_moves_the_position(new_log):
    log = new_log()
    empty = bytearray(some(1)[:61])
    struct.pack_into(">i", empty, 8, 49)
    struct.pack_into(">i", empty, 23, 6)
    struct.pack_into(">i", empty, 57, 0)
    struct.pack_into(">I", empty, 17, crc32c.crc32c(bytes(empty[21:])))
    log.append(empty)
    assert (read(log).record_count, read(log).next_offset) == (0, 7)


def test_a_cut_off_last_batch_is_left_out(new_log):
    log = new_log()
    log.append(some(5))
    complete = len(log.data)
    log.append(some(5))
    for length in range(complete, len(log.data)):
        got = read(bytes(log.data[:length]))
        assert (got.record_count, got.next_offset) == (5, 5)


def test_only_a_cut_off_batch_moves_nothing(new_log):
    log = new_log()
    log.append(some(5))
    assert (read(bytes(log.data[:-1]), start=2).next_offset) == 2


@pytest.mark.parametrize("limit", range(13))
def test_max_records_cuts_anywhere_and_the_rest_follows(new_log, limit):
    log = new_log()
    for _ in range(3):
        log.append(some(4))
    first = read(log, max_records=limit)
    assert first.record_count == limit
    rest = read(log, start=first.next_offset)
    assert values_of(first) + values_of(rest) == [f"v{index}" for index in range(4)] * 3


def test_max_records_counts_from_start_not_from_the_batch(new_log):
    log = new_log()
    log.append(some(10))
    log.append(some(10, "w"))
    got = read(log, start=8, max_records=4)
    assert values_of(got) == ["v8", "v9", "w0", "w1"]
    assert got.next_offset == 12


def test_columns_are_chosen_and_keep_their_order(new_log):
    log = new_log()
    log.append(some(3))
    got = read(log, columns=["offset", "value"])
    assert got.batch.schema.names == ["value", "offset"]
    assert values_of(got) == ["v0", "v1", "v2"]
    assert read(log, columns=[]).record_count == 3


def test_log_append_time(new_log):
    log = new_log()
    log.append(some(2), append_time=77_000)
    log.append(some(1))
    got = read(log)
    assert got.batch.column("timestamp").view(pa.int64()).to_pylist() == [77_000, 77_000, 1_000]
    assert got.batch.column("timestampType").to_pylist() == [1, 1, 0]


def aborting_log(new_log):
    """Two producers interleaved; 1 aborts, commits, aborts again; 2 commits."""
    log = new_log()
    first = log.append(transactional(2, "a", 1))
    log.append(transactional(2, "b", 2))
    log.append(some(2, "plain"))
    log.append(transactional(1, "c", 1))
    log.append_control(producer_id=1, commit=False)
    log.append(transactional(2, "d", 1))
    log.append_control(producer_id=2, commit=True)
    log.append_control(producer_id=1, commit=True)
    second = log.append(transactional(2, "e", 1))
    log.append_control(producer_id=1, commit=False)
    return log, [AbortedTransaction(1, first), AbortedTransaction(1, second)]


def test_aborted_transactions_and_markers_are_dropped(new_log):
    log, aborted = aborting_log(new_log)
    got = read(log, aborted=list(reversed(aborted)))
    assert values_of(got) == ["b0", "b1", "plain0", "plain1", "d0", "d1"]
    assert got.next_offset == log.next_offset


def test_read_uncommitted_drops_markers_only(new_log):
    log, aborted = aborting_log(new_log)
    got = read(log, aborted=aborted, read_committed=False)
    assert values_of(got) == ["a0", "a1", "b0", "b1", "plain0", "plain1", "c0", "d0", "d1", "e0", "e1"]


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_aborted_transactions_reading_on_in_small_steps(new_log, limit):
    log, aborted = aborting_log(new_log)
    seen, position = [], 0
    while position < log.next_offset:
        got = read(log, aborted=aborted, start=position, max_records=limit)
        assert got.next_offset > position
        seen, position = seen + values_of(got), got.next_offset
    assert seen == ["b0", "b1", "plain0", "plain1", "d0", "d1"]


def test_a_response_that_starts_inside_an_aborted_transaction(new_log):
    log, aborted = aborting_log(new_log)
    tail = bytes(log.data[len(transactional(2, "a", 1)) :])
    assert values_of(read(tail, aborted=aborted, start=2)) == ["b0", "b1", "plain0", "plain1", "d0", "d1"]


def test_an_abort_marker_without_data_is_passed_over(new_log):
    log = new_log()
    log.append_control(producer_id=1, commit=False)
    log.append(some(1, "a"))
    log.append_control(producer_id=2, commit=False)
    got = read(log, aborted=[AbortedTransaction(2, 0)])
    assert (values_of(got), got.next_offset) == (["a0"], 3)


def emptied(batch):
    """A batch as compaction leaves it when all its records are gone."""
    raw = bytearray(batch[:61])
    struct.pack_into(">i", raw, 8, 49)
    struct.pack_into(">i", raw, 57, 0)
    struct.pack_into(">I", raw, 17, crc32c.crc32c(bytes(raw[21:])))
    return raw


def test_a_control_batch_emptied_by_compaction_is_no_damage(new_log):
    marker = new_log()
    marker.append_control(producer_id=1, commit=False)
    log = new_log()
    log.append(transactional(2, "a", 1))
    log.append(emptied(marker.data))
    log.append(some(1, "b"))
    got = read(log, aborted=[AbortedTransaction(1, 0)])
    assert (values_of(got), got.next_offset) == (["b0"], 4)


def test_a_compacted_topic_with_aborted_transactions(new_log):
    """The aborted data is gone, the marker is not; the next transaction of the producer counts."""
    log = new_log()
    log.append_control(producer_id=1, commit=False)
    log.append(transactional(2, "b", 1))
    log.append_control(producer_id=1, commit=True)
    got = read(log, aborted=[AbortedTransaction(1, 0)])
    assert values_of(got) == ["b0", "b1"]


def test_the_last_record_of_a_batch_may_be_missing(new_log):
    log = new_log()
    raw = bytearray(some(2))
    struct.pack_into(">i", raw, 23, 5)  # the batch had six
    struct.pack_into(">I", raw, 17, crc32c.crc32c(bytes(raw[21:])))
    log.append(raw)
    got = read(log)
    assert (values_of(got), got.next_offset) == (["v0", "v1"], 6)
    assert (values_of(read(log, start=4)), read(log, start=4).next_offset) == ([], 6)


def test_leader_epochs_are_reported_where_they_change(new_log):
    log = new_log()
    for epoch in (3, 3, 5, -1):
        raw = bytearray(some(2))
        struct.pack_into(">i", raw, 12, epoch)
        log.append(raw)
    got = read(log)
    assert got.leader_epochs == ((0, 3), (4, 5), (6, -1))
    assert read(log, max_records=3).leader_epochs == ((0, 3),)
    assert read(log, start=5, stop=6).leader_epochs == ((4, 5),)
    assert read(log, start=8).leader_epochs == ()
    assert read(b"").leader_epochs == ()


@pytest.mark.parametrize("damage", ["checksum", "record", "header"])
def test_errors_name_the_offset_up_to_which_records_can_be_had(new_log, damage):
    log = new_log()
    log.append(some(3))
    raw = bytearray(some(3))
    if damage == "checksum":
        raw[-1] ^= 1
    elif damage == "header":
        struct.pack_into(">i", raw, 57, 99)
    else:
        raw[61] ^= 0x40
    log.append(raw)
    with pytest.raises(CorruptRecordException) as caught:
        read(log, check_crc=damage == "checksum")
    assert caught.value.offset == 3
    sound = in_front_of(memoryview(bytes(log.data)), 3)
    assert len(values_of(read(sound))) == 3
    assert end_offset(sound, 0) == 3
    assert end_offset(memoryview(bytes(log.data)), 0) == (None if damage == "header" else 6)


def test_a_wrong_checksum_names_topic_partition_and_offset(new_log):
    log = new_log()
    log.append(some(5), base_offset=40)
    log.data[-1] ^= 1
    with pytest.raises(
        CorruptRecordException, match="t-3: the record batch at offset 40 is damaged: its CRC-32C is 0x"
    ):
        read(log)
    assert read(log, start=45).next_offset == 45


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_by_name(magic):
    message = struct.pack(">iBb", 0, magic, 0) + b"\0" * 8 * magic + struct.pack(">ii", -1, 1) + b"x"
    with pytest.raises(
        UnsupportedVersionException, match=f"t-3: the record batch at offset 9 .* message format v{magic};"
    ):
        read(struct.pack(">qi", 9, len(message)) + message)


def test_future_formats_are_refused_too():
    raw = bytearray(some(1))
    raw[16] = 3
    with pytest.raises(UnsupportedVersionException, match="message format v3"):
        read(raw)


def test_batches_out_of_order_are_refused(new_log):
    log = new_log()
    log.append(some(5), base_offset=10)
    log.append(some(5), base_offset=12)
    with pytest.raises(CorruptRecordException, match="starts before the end of the batch before it"):
        read(log)


def test_a_lying_record_count_allocates_nothing():
    raw = bytearray(some(1))
    struct.pack_into(">i", raw, 57, 2**31 - 1)
    struct.pack_into(">i", raw, 23, 2**31 - 2)
    with pytest.raises(CorruptRecordException, match="record count"):
        read(raw, check_crc=False)


def test_a_lying_snappy_length_allocates_nothing():
    with pytest.raises(CodecError, match="claim to hold"):
        codecs.decompress(b"\xff\xff\xff\xff\x0f" + b"\0" * 20, CODEC_IDS["snappy"], 1 << 40)


# What a batch may hold decompressed is bounded: a few kB of zstd may stand for many GB.


@pytest.mark.parametrize("codec", CODEC_NAMES[1:])
@pytest.mark.parametrize("data", [bytes(100_000), random.Random(7).randbytes(100_000)], ids=["zeros", "noise"])
@pytest.mark.parametrize("frames", [1, 3])
def test_a_batch_may_hold_so_many_bytes_decompressed_and_no_more(codec, data, frames):
    number = CODEC_IDS[codec]
    if codec == "snappy":
        frames = 1  # it has none; its chunks are what three times as much is made of
    compressed = bytes(codecs.compress(data, number)) * frames
    plain = data * frames
    for most in (len(plain), len(plain) + 1, (1 << 31) - 1):
        assert bytes(codecs.decompress(compressed, number, most)) == plain
        assert bytes(codecs.decompress(memoryview(compressed), number, most)) == plain
    for most in (1, len(plain) // 2, len(plain) - 1):
        words = rf"{len(compressed)} bytes of {codec} hold more than max\.decompressed\.batch\.bytes={most}\b"
        with pytest.raises(CodecError, match=words):
            codecs.decompress(compressed, number, most)


@pytest.mark.parametrize("codec", CODEC_NAMES[1:])
@pytest.mark.parametrize("most", [1 << 16, (1 << 31) - 1])
def test_damage_is_not_taken_for_too_much(codec, most):
    compressed = bytearray(codecs.compress(random.Random(7).randbytes(5_000), CODEC_IDS[codec]))
    for damaged in (compressed[:-100], compressed[:5], compressed + b"more"):
        with pytest.raises(CodecError, match=f"damaged {codec} data"):
            codecs.decompress(bytes(damaged), CODEC_IDS[codec], most)


@pytest.mark.parametrize("codec", CODEC_NAMES[1:])
def test_too_large_a_batch_names_topic_partition_offset_sizes_and_remedy(new_log, codec):
    log = new_log()
    log.append(some(2), base_offset=10)
    (batch,) = encode(pa.array([None], pa.binary()), pa.array([bytes(1_000_000)]), timestamps=0, compression=codec)
    log.append(batch.data, base_offset=12)
    words = rf"t-3: .*offset 12 .*{codec}.* max\.decompressed\.batch\.bytes=500000\b.*seek\(\)"
    with pytest.raises(CorruptRecordException, match=words) as caught:
        read(log, max_decompressed=500_000)
    assert caught.value.offset == 12
    assert read(log, max_decompressed=500_000, stop=12).record_count == 2


@pytest.mark.parametrize("codec", CODEC_NAMES[1:])
def test_a_call_ends_once_it_has_decompressed_enough(new_log, codec):
    log = new_log()
    for offset in range(0, 10, 2):
        (batch,) = encode(None, pa.array([bytes(100_000)] * 2), timestamps=0, compression=codec)
        log.append(batch.data, base_offset=offset)
    for enough, ends in ((1, [2, 4, 6, 8, 10]), (200_100, [4, 8, 10]), (None, [10])):
        found, position = [], 0
        while position < 10:
            position = read(log, start=position, enough=enough).next_offset
            found.append(position)
        assert found == ends


def growth(data, **settings):
    """Return by how many bytes a process grows that decodes these batches, and what it says."""
    program = """
import json, resource, sys
from sparkrelay.errors import CorruptRecordException
from sparkrelay.records.batches.decode import decode
data, settings = sys.stdin.buffer.read(), json.loads(sys.argv[1])
unit = 1 if sys.platform == "darwin" else 1024
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
before, said = peak(), ""
try:
    decode(data, topic="t", partition=3, start=0, check_crc=False, **settings)
except CorruptRecordException as error:
    said = str(error)
print(peak() - before)
print(said)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(settings)], input=bytes(data), capture_output=True, check=True
    )
    grown, said = done.stdout.decode().splitlines()
    return int(grown), said


@pytest.mark.parametrize("codec", CODEC_NAMES[1:])
def test_a_batch_made_to_explode_takes_no_more_memory_than_its_bound(new_log, codec):
    blown = codecs.compress(bytes(64 << 20), CODEC_IDS[codec])
    (batch,) = encode(pa.array([None], pa.binary()), pa.array([b"v"]), timestamps=0, compression=codec)
    raw = bytearray(batch.data[:61]) + bytes(blown)
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    grown, said = growth(raw, max_decompressed=8 << 20)
    assert f"{codec} hold more than max.decompressed.batch.bytes={8 << 20}" in said
    # Besides the 8 MiB: what importing and raising take, and the compressed bytes themselves.
    assert grown < 24 << 20, said


@pytest.mark.parametrize("aborted", [(), [AbortedTransaction(producer_id=7, first_offset=0)]])
def test_batches_that_decompress_to_a_lot_are_read_a_few_at_a_time(new_log, aborted):
    log = new_log()
    log.append(transactional(1, "gone", 7))
    for number in range(6):
        log.append(some(2, f"{number}" * 300, compression="zstd"))
    whole, position, pieces = [], 0, 0
    while (got := read(log, start=position, aborted=aborted, max_decompressed=2000)).next_offset > position:
        whole += values_of(got)
        position, pieces = got.next_offset, pieces + 1
    assert pieces == 3
    assert whole == values_of(read(log, aborted=aborted))


def test_no_memory_for_a_batch_is_said(monkeypatch):
    def refuse(*_):
        raise MemoryError

    compressed = bytes(codecs.compress(bytes(1 << 20), CODEC_IDS["zstd"]))
    monkeypatch.setattr(codecs.np, "empty", refuse)
    with pytest.raises(CodecError, match=rf"not enough memory .* {len(compressed)} bytes of zstd"):
        codecs.decompress(compressed, CODEC_IDS["zstd"], 1 << 20)


def test_both_snappy_framings_are_read():
    cramjam = pytest.importorskip("cramjam")
    data = b"hello " * 30_000
    assert bytes(codecs.decompress(bytes(cramjam.snappy.compress_raw(data)), 2, len(data))) == data
    chunked = bytes(codecs.compress(data, 2))
    assert chunked.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert bytes(codecs.decompress(chunked, 2, len(data))) == data


def test_lz4_blocks_are_independent_as_java_demands():
    data = random.Random(1).randbytes(70_000) + b"a" * 200_000
    framed = bytes(codecs.compress(data, CODEC_IDS["lz4"]))
    assert framed[:4] == bytes.fromhex("04224d18")
    assert framed[4] & 0x20
    assert bytes(codecs.decompress(framed, CODEC_IDS["lz4"], len(data))) == data
    # Linked blocks, as other writers make them, are read all the same.
    linked = bytes(pytest.importorskip("cramjam").lz4.compress(data))
    assert bytes(codecs.decompress(linked, CODEC_IDS["lz4"], len(data))) == data


def fuzz_material(new_log, codec):
    rows = 30
    log = new_log()
    headers = pa.array([[{"key": "h", "value": b"1"}, {"key": "n", "value": None}]] * rows, HEADERS_TYPE)
    keys = pa.array([None if index % 5 == 0 else b"key%d" % index for index in range(rows)])
    values = pa.array([None if index % 7 == 0 else b"v" * (index * 9 % 200) for index in range(rows)])
    log.extend(encode(keys, values, timestamps=1_000, headers=headers, compression=codec, max_batch_bytes=900))
    log.append_control(producer_id=1, commit=False)
    log.extend(encode(keys, values, timestamps=1_000, producer=ProducerState(1, 0, 0), transactional=True))
    return bytes(log.data)


def check_outcome(data, settings):
    """Whatever comes in: a valid batch or a named error, never a crash."""
    try:
        got = read(data, aborted=[AbortedTransaction(1, 30)], **settings)
    except RecordException as error:
        assert "t-3" in str(error)  # noqa: PT017 - both outcomes are right, one has a message
    except UnsupportedVersionException as error:
        assert "message format" in str(error)  # noqa: PT017 - see above
    else:
        got.batch.validate(full=True)
        assert got.next_offset >= 0
        assert got.record_count == got.batch.num_rows


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_mutated_bytes_give_an_error_or_a_valid_answer(new_log, codec):
    source = fuzz_material(new_log, codec)
    dice = random.Random(20_240 + CODEC_IDS[codec])
    expected = read(source, aborted=[AbortedTransaction(1, 30)]).batch
    for _ in range(1_500):
        data = bytearray(source)
        for _ in range(dice.choice([1, 1, 2, 8])):
            data[dice.randrange(len(data))] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        if dice.random() < 0.2:
            del data[dice.randrange(len(data)) :]
        if dice.random() < 0.1:
            at = dice.randrange(len(data) or 1)
            data[at : at + dice.randrange(20)] = b""
        check_outcome(bytes(data), {"check_crc": False})
    for _ in range(300):
        data = bytearray(source)
        at = dice.randrange(len(data))
        data[at] ^= 1 << dice.randrange(8)
        try:
            got = read(data, aborted=[AbortedTransaction(1, 30)]).batch
        except (RecordException, UnsupportedVersionException):
            continue
        # Base offset and leader epoch are not under the checksum; a longer batch length makes it a cut-off batch.
        columns = ["key", "value", "headers"]
        rows = got.num_rows
        assert got.select(columns).to_pylist() == expected.slice(0, rows).select(columns).to_pylist()


@settings(deadline=None, max_examples=300)
@given(body=st.binary(max_size=200), count=st.integers(-1, 40), attributes=st.integers(0, 0x3F))
def test_any_bytes_as_records(body, count, attributes):
    tail = struct.pack(">hiqqqhii", attributes, max(count - 1, 0), 0, 0, 1, 0, 0, count) + body
    head = struct.pack(">qiibI", 30, 49 + len(body), 0, 2, crc32c.crc32c(tail))
    check_outcome(head + tail, {})


@settings(deadline=None, max_examples=300)
@given(data=st.binary(max_size=300))
def test_any_bytes_at_all(data):
    check_outcome(data, {})

"""Damaged data: what is in front of it is returned, then an error names it."""

from __future__ import annotations

import struct

import crc32c
import pytest
from tests.unit.consumer.fetched_data import T0, joined, positions, records, rows

from sparkrelay.consumer.fetch.fetching import Fetched
from sparkrelay.errors import CorruptRecordException, UnsupportedVersionException


def test_what_is_in_front_of_a_damaged_batch_is_returned_and_a_seek_behind_it_works(buffering):
    damaged = bytearray(records(["x", "y"], 2))
    damaged[-3] ^= 0xFF
    data = joined(records(["a", "b"]), damaged, records(["c"], 4))
    buffering.fetched([Fetched(T0, 0, data)], 0.0, 1)
    assert rows(buffering.collect(10, None)) == [(0, 0, b"a"), (0, 1, b"b")]
    with pytest.raises(CorruptRecordException, match="t-0: the record batch at offset 2 is damaged"):
        buffering.collect(10, None)
    assert positions(buffering.subscription)[T0] == 2
    # It is fetched again: perhaps it was the network.
    assert buffering.fetchable()[T0] == 2
    buffering.subscription.seek(T0, 4)
    buffering.fetched([Fetched(T0, 4, records(["c"], 4))], 0.0, 1)
    assert rows(buffering.collect(10, None)) == [(0, 4, b"c")]


def test_a_broken_header_in_the_middle_stops_fetching_behind_it(buffering):
    broken = bytearray(records(["x"], 2))
    struct.pack_into(">i", broken, 8, 20)
    buffering.fetched([Fetched(T0, 0, joined(records(["a", "b"]), broken))], 0.0, 1)
    assert T0 not in buffering.fetchable()
    assert rows(buffering.collect(10, None)) == [(0, 0, b"a"), (0, 1, b"b")]
    buffering.fetched([Fetched(T0, 2, memoryview(bytes(broken)))], 0.0, 1)
    with pytest.raises(CorruptRecordException, match="offset 2"):
        buffering.collect(10, None)
    assert positions(buffering.subscription)[T0] == 2


def test_bytes_without_a_whole_batch_are_an_error_and_no_endless_loop(buffering):
    lying = bytearray(records(["a"]))
    struct.pack_into(">i", lying, 8, 1 << 20)
    buffering.fetched([Fetched(T0, 0, memoryview(bytes(lying)))], 0.0, 1)
    with pytest.raises(CorruptRecordException, match=r"t-0: the \d+ bytes fetched at offset 0 hold no whole"):
        buffering.collect(10, None)


def test_an_old_format_behind_new_batches_is_an_error_that_says_so(buffering):
    message = struct.pack(">iBb", 0, 1, 0) + b"\0" * 8 + struct.pack(">ii", -1, 1) + b"x"
    old = struct.pack(">qi", 2, len(message)) + message
    buffering.fetched([Fetched(T0, 0, joined(records(["a", "b"]), old))], 0.0, 1)
    assert len(rows(buffering.collect(10, None))) == 2
    buffering.fetched([Fetched(T0, 2, memoryview(old))], 0.0, 1)
    with pytest.raises(UnsupportedVersionException, match="t-0.*offset 2.*message format v1"):
        buffering.collect(10, None)


def test_an_unknown_codec_is_a_named_error(buffering):
    data = bytearray(records(["a"]))
    struct.pack_into(">h", data, 21, 6)
    struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    buffering.fetched([Fetched(T0, 0, memoryview(bytes(data)))], 0.0, 1)
    with pytest.raises(CorruptRecordException, match="t-0.*offset 0.*codec 6 is unknown"):
        buffering.collect(10, None)

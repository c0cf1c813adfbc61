"""Keys inside the keys of stores. Their bytes are in stores and changelogs: the literals here must never change."""

import numpy as np
import pyarrow as pa
import pytest

from sparkrelay.operators.aggregate.collected_values import collected_spans
from sparkrelay.operators.aggregate.distinct_values import value_keys
from sparkrelay.operators.process.keys import part
from sparkrelay.state import versions
from sparkrelay.state.byte_arrays import big_endian
from sparkrelay.state.join_rows import Buckets, bounds, note_keys, row_keys
from sparkrelay.state.key_parts import KeyPart, key_parts, plain_key

_ADA = key_parts(pa.array([b"ada"]))


def _one(array):
    (value,) = array.to_pylist()
    return value


@pytest.mark.parametrize(
    ("length", "beginning", "size"),
    [(0, "0000", 2), (3, "00036b6b", 5), (256, "01006b6b", 258), (400, "01906b6b", 402)],
)
def test_a_key_comes_after_its_length(length, beginning, size):
    written = _one(key_parts(pa.array([b"k" * length])))
    assert written.hex().startswith(beginning)
    assert len(written) == size
    assert plain_key(written) == b"k" * length


def test_a_long_key_is_replaced_by_its_digest():
    long = _one(key_parts(pa.array([b"k" * 401])))
    assert long.hex() == "ffff4552af1f6cc684a9dc24b03d23fa63a43ff1249e1e7e4ea9d53bebc48875900a"
    assert plain_key(long) is None
    assert part(b"ada").hex() == "03616461"
    assert part(b"k" * 120) == b"\x78" + b"k" * 120
    assert part(b"k" * 121).hex() == "ff41cab6bc48d894321e1a1cb07d8ca25f74acf04562963a1c066a755a67921cfe"


def test_long_keys_among_short_ones_are_written_alike():
    keys = [b"k" * 401, None, b"ada", b""]
    parts = key_parts(pa.array(keys, pa.binary())).to_pylist()
    assert parts == [None if key is None else _one(key_parts(pa.array([key]))) for key in keys]


def test_a_group_s_prefix_keeps_the_length_of_its_key():
    spans = collected_spans(pa.array([b"ada", b"k" * 257]), None)
    assert [start.hex() for start, _ in spans] == ["0200000003616461", "0200000101577b1bfc2b8e6bf9e8a8961f45fe83c1"]
    ends = big_endian(np.array([5]))
    assert _one(value_keys(ends, pa.array([b"a"]), 1, pa.array([b"v"]))).hex() == "8000000000000005010000000161000176"
    long = _one(value_keys(None, pa.array([b"k" * 401]), 7, pa.array([b"v"])))
    assert long == bytes.fromhex("0100000191") + b"k" * 401 + bytes.fromhex("000776")


def test_keys_without_a_bound_are_never_digests():
    part = KeyPart(4)
    assert part.of(b"k" * 70_000) == bytes.fromhex("00011170") + b"k" * 70_000


def test_the_keys_of_joined_rows():
    buckets, times = Buckets(5_000_000, 10_000_000), np.array([1_700_000_000_123_456])
    fronts = buckets.fronts(buckets.numbers(times))
    row = row_keys("right", fronts, _ADA, times, 258, 3)
    assert _one(row).hex() == "8000018bcfe58f1002000361646180060a2418202240000000000000010200000003"
    note = note_keys("left", buckets.ends_ms(times), row_keys("left", fronts, _ADA, times, 258, 3))
    assert _one(note).hex() == "8000018bcfe57c0411000361646180060a2418202240000000000000010200000003"
    assert [_one(bound).hex() for bound in bounds("left", fronts, _ADA, times, times + 5)] == [
        "8000018bcfe58f1001000361646180060a2418202240",
        "8000018bcfe58f1001000361646180060a2418202246",
    ]


def test_the_keys_of_versions():
    times = np.array([1_700_000_000_123])
    assert _one(versions.version_keys(_ADA, times)).hex() == "0200036164617ffffe74301a9784"
    assert _one(versions.due_keys(_ADA, times, 60_000)).hex() == "018000018bcfe6eea00003616461"
    assert versions.plain_keys(versions.version_keys(_ADA, times)).to_pylist() == [b"ada"]

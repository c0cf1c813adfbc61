from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay.errors import SerializationException, StoreCorruptedException
from sparkrelay.state.changelog import (
    MARKER_KEY,
    SCHEMA_KEY,
    Marker,
    decode_marker,
    encode_changelog,
    encode_marker,
    split,
)
from sparkrelay.state.window_keys import NO_TIME, expired_with
from sparkrelay.types import TopicPartition

AWKWARD = st.sampled_from(
    [MARKER_KEY, MARKER_KEY + b"\x00", MARKER_KEY + b"\x00\x00", MARKER_KEY[:-1], MARKER_KEY + b"x", SCHEMA_KEY]
)
KEYS = st.binary(max_size=4) | AWKWARD
MARKERS = st.builds(
    Marker,
    st.integers(0, 1 << 62),
    st.dictionaries(
        st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 1 << 31)), st.integers(-1, 1 << 62), max_size=3
    ),
)


def binary(values):
    return pa.array(values, pa.binary())


@given(rows=st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=4)) | MARKERS, max_size=10))
def test_what_is_written_is_read_whatever_the_keys(rows):
    keys, values = [], []
    for row in rows:
        if isinstance(row, Marker):
            key, value = encode_marker(row)
            keys.append(key)
            values.append(value)
        else:
            one_key, one_value = encode_changelog(binary([row[0]]), binary([row[1]]))
            keys += one_key.to_pylist()
            values += one_value.to_pylist()
    found_keys, found_values, marker = split(binary(keys), binary(values))
    state = [row for row in rows if not isinstance(row, Marker)]
    assert list(zip(found_keys.to_pylist(), found_values.to_pylist(), strict=True)) == state
    assert marker == next((row for row in reversed(rows) if isinstance(row, Marker)), None)


@given(rows=st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=4)), max_size=10))
def test_encoding_at_once_is_encoding_one_by_one(rows):
    keys, values = encode_changelog(binary([key for key, _ in rows]), binary([value for _, value in rows]))
    one_by_one = [encode_changelog(binary([key]), binary([value])) for key, value in rows]
    assert keys.to_pylist() == [key[0].as_py() for key, _ in one_by_one]
    assert values.to_pylist() == [value[0].as_py() for _, value in one_by_one]
    assert len(set(keys.to_pylist())) == len({key for key, _ in rows})
    assert MARKER_KEY not in keys.to_pylist()


def test_slices_and_chunks_are_read():
    keys, values = encode_changelog(binary([b"a", b"b", MARKER_KEY]).slice(1), binary([b"1", None, b"3"]).slice(1))
    keys = pa.chunked_array([keys.slice(0, 1), keys.slice(1)])
    found_keys, found_values, marker = split(keys, pa.chunked_array([values]))
    assert (found_keys.to_pylist(), found_values.to_pylist(), marker) == ([b"b", MARKER_KEY], [None, b"3"], None)


def test_records_have_the_documented_bytes():
    assert encode_changelog(binary([b"k"]), binary([b"v"]))[1].to_pylist() == [b"\x01v"]
    key, value = encode_marker(Marker(5, {TopicPartition("t", 1): 9}, "c"))
    assert key == b"\x00\xffsparkrelay.marker"
    assert (
        value.hex(" ")
        == "03 05 00 00 00 00 00 00 00 01 00 00 00 01 00 74 01 00 00 00 09 00 00 00 00 00 00 00 01 00 63 "
        "00 00 00 00 00 00 00 c0"
    )


def test_a_marker_whose_windows_are_kept_has_the_documented_bytes():
    _, value = encode_marker(Marker(5, {}, "c", 9, 4, {"t": 8}))
    assert value.hex(" ") == (
        "04 05 00 00 00 00 00 00 00 00 00 00 00 01 00 63 09 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 "
        "01 00 00 00 01 00 74 08 00 00 00 00 00 00 00"
    )


@given(
    watermark=st.integers(NO_TIME, 1 << 62),
    retention=st.integers(0, 1 << 62),
    sources=st.dictionaries(st.text("abc", min_size=1, max_size=249), st.integers(NO_TIME, 1 << 62), max_size=3),
)
def test_a_marker_says_what_has_expired_and_where_sources_are(watermark, retention, sources):
    marker = Marker(5, {}, "c", watermark, expired_with(watermark, retention, NO_TIME), sources)
    _, value = encode_marker(marker)
    assert decode_marker(value) == marker
    older = marker.expired == watermark and not sources
    assert value[0] == (3 if older else 4), "what older releases can read is written as they do"


def test_a_marker_that_names_what_are_no_topics_is_damaged():
    with pytest.raises(StoreCorruptedException, match="a marker record of a changelog names 1 topics"):
        decode_marker(encode_marker(Marker(5, {}, sources={"t" * 250: 1}))[1])


def test_a_marker_by_which_live_windows_would_be_removed_is_damaged():
    with pytest.raises(StoreCorruptedException, match="a marker record of a changelog holds 10 where 9 is the most"):
        decode_marker(encode_marker(Marker(5, {}, "c", 9, 10))[1])


def test_a_marker_without_a_watermark_is_read():
    _, _, marker = split(binary([MARKER_KEY]), binary([b"\x02" + encode_marker(Marker(5, {}, "c"))[1][1:-8]]))
    assert marker == Marker(5, {}, "c")


def test_a_deleted_marker_is_no_marker():
    _, _, marker = split(binary([MARKER_KEY]), binary([None]))
    assert marker is None


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ((b"k", b"\x02v"), r"value of key b'k' begins with b'\\x02', this SparkRelay reads version b'\\x01'"),
        ((b"k", b""), "value of key b'k' begins with b''"),
        ((MARKER_KEY, b"\x09"), r"version 9, this SparkRelay reads \[2, 3, 4\]"),
        ((MARKER_KEY, encode_marker(Marker(5, {TopicPartition("t", 1): 9}))[1][:-1]), "in the middle of a field"),
        ((None, b"\x01v"), "it has no key"),
    ],
)
def test_a_record_of_another_release_is_named_and_is_no_matter_of_local_state(record, words):
    before = [(b"a", None), encode_marker(Marker(1, {})), (b"b", b"\x01b")]
    keys, values = zip(*before, record, strict=True)
    with pytest.raises(SerializationException, match=rf"^offset 13 cannot be read: .*{words}.*Install that release"):
        split(binary(keys), binary(values), lambda index: f"offset {10 + index}")


@pytest.mark.parametrize("value", [b"\x09", b"", encode_marker(Marker(5, {TopicPartition("t", 1): 9}))[1][:-1]])
def test_a_damaged_marker_is_named(value):
    with pytest.raises(StoreCorruptedException, match="a marker record of a changelog"):
        decode_marker(value)


@pytest.mark.parametrize("value", [b"\x01schema", b"\x02schema", b"", None])
def test_a_record_that_says_what_the_store_holds_is_passed_over_whatever_it_says(value):
    """It is of a later release, whose instances run beside ours while an application is upgraded."""
    key, marker = encode_marker(Marker(7, {}, "rows"))
    found = split(binary([b"a", SCHEMA_KEY, key, SCHEMA_KEY]), binary([b"\x01x", value, marker, value]))
    assert (found[0].to_pylist(), found[1].to_pylist(), found[2].batch) == ([b"a"], [b"x"], 7)
    keys, values, none = split(binary([SCHEMA_KEY]), binary([value]))
    assert (len(keys), len(values), none) == (0, 0, None)
    # A user's key that is the same is another one there.
    (escaped,), _ = encode_changelog(binary([SCHEMA_KEY]), binary([b"x"]))
    assert escaped.as_py() not in {SCHEMA_KEY, MARKER_KEY}

"""Arrays of bytes that are cut: no length is believed."""

import pyarrow as pa
import pytest

from sparkrelay.errors import StoreCorruptedException
from sparkrelay.state.byte_arrays import drop_first


def test_first_bytes_are_dropped():
    values = pa.array([b"abcd", None, b"ab", b"abc"], pa.binary())
    assert drop_first(values, 2).to_pylist() == [b"cd", None, b"", b"c"]
    assert drop_first(values.slice(1, 2), 2).to_pylist() == [None, b""]
    assert drop_first(values.slice(0, 0), 2).to_pylist() == []
    assert drop_first(pa.nulls(2, pa.binary()), 2).to_pylist() == [None, None]


def test_what_is_shorter_is_damaged():
    with pytest.raises(StoreCorruptedException, match="has 1 bytes, and begins with 2"):
        drop_first(pa.array([b"abcd", b"a"], pa.binary()), 2)

"""CRC-32C of many rows at once: what the loop makes is what the library makes, for every length and every slice."""

import os
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay.records.row_checksums import checksum, checksums, first_damaged

rows = st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=90)), max_size=12)


def columns(pairs):
    return tuple(pa.array([pair[place] for pair in pairs], pa.binary()) for place in (0, 1))


def sealed(seed, pairs):
    """Values with their checksums behind them."""
    ends = [None if v is None else v + checksum(seed, k, v).to_bytes(4, "little") for k, v in pairs]
    return pa.array(ends, pa.binary())


@pytest.mark.parametrize("length", [0, 950])
@given(pairs=rows, seed=st.integers(0, (1 << 32) - 1), skipped=st.integers(0, 3))
def test_checksums_of_many_rows_are_those_of_each(length, pairs, seed, skipped):
    pairs = [(key, None if value is None else value + bytes(length)) for key, value in pairs]
    keys, values = (column.slice(skipped) for column in columns(pairs))
    pairs = pairs[skipped:]
    assert checksums(seed, keys, values).tolist() == [0 if v is None else checksum(seed, k, v) for k, v in pairs]
    assert first_damaged(seed, keys, sealed(seed, pairs)) is None


def test_the_checksum_is_the_one_that_stores_have_on_disks():
    assert checksum(0, b"", b"123456789") == 0xE3069283, "the check value of CRC-32C"
    assert checksum(0x1234, b"key", b"value") == 0x440574C6


@pytest.mark.parametrize("length", [5, 2000])
@given(data=st.data())
def test_any_bit_that_turns_is_found(length, data):
    pairs = [(b"k%d" % number, bytes([number]) * length) for number in range(4)]
    keys, ends = columns(pairs)[0], sealed(7, pairs).to_pylist()
    row = data.draw(st.integers(0, 3))
    bit = data.draw(st.integers(0, 8 * len(ends[row]) - 1))
    turned = bytearray(ends[row])
    turned[bit // 8] ^= 1 << bit % 8
    assert first_damaged(7, keys, pa.array([*ends[:row], bytes(turned), *ends[row + 1 :]])) == row
    other = [key.as_py() for key in keys]
    other[row] += b"x"
    assert first_damaged(7, pa.array(other), pa.array(ends)) == row
    assert first_damaged(8, keys, pa.array(ends)) == 0, "they are of another table"


@pytest.mark.parametrize("stored", [b"", b"123", bytes(3)])
def test_what_is_shorter_than_a_checksum_is_damaged(stored):
    assert first_damaged(7, pa.array([b"a", b"k"]), pa.array([None, stored], pa.binary())) == 1


def test_bytes_that_move_between_key_and_value_are_found():
    assert checksum(7, b"ab", b"c") != checksum(7, b"a", b"bc")


@pytest.mark.long
def test_processors_without_the_instruction_get_the_same():
    code = """
import os
import subprocess
import sys

import pyarrow as pa
from sparkrelay.records.row_checksums import checksum, checksums
values = [bytes(range(length)) for length in range(40)]
found = checksums(7, pa.array([b"key"] * 40), pa.array(values)).tolist()
print(found == [checksum(7, b"key", value) for value in values])
"""
    generic = os.environ | {"NUMBA_CPU_NAME": "generic"}
    done = subprocess.run([sys.executable, "-c", code], env=generic, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"

import pyarrow as pa
from hypothesis import given, strategies as st

from sparkrelay.state import rows

#: Few and short, so that they repeat, and with the bytes that a comparison of text would get wrong.
keys = st.lists(st.sampled_from(b"\x00\x7f\x80\xffa"), max_size=2).map(bytes)


@given(records=st.lists(st.tuples(keys, st.none() | st.binary(max_size=3))), skipped=st.integers(0, 3))
def test_the_latest_of_each_key_counts_in_the_order_of_bytes(records, skipped):
    columns = [pa.array(column, pa.binary()) for column in (zip(*records, strict=True) if records else ([], []))]
    wanted = dict(records[skipped:])
    # A slice, as a batch is that was cut from a longer one.
    assert rows.latest(*(column.slice(skipped) for column in columns)) == (
        sorted(wanted),
        [wanted[key] for key in sorted(wanted)],
    )


def test_the_latest_of_many_equal_keys_is_the_last():
    keys = pa.array([b"%d" % (number % 7) for number in range(10_000)])
    values = pa.array([b"%d" % number for number in range(10_000)])
    assert rows.latest(keys, values) == (
        [b"%d" % key for key in range(7)],
        [b"%d" % max(number for number in range(9_990, 10_000) if number % 7 == key) for key in range(7)],
    )

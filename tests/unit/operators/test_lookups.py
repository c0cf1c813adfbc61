"""What a row finds in a table that the same micro-batch has changed."""

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from sparkrelay.operators.lookup.run import _as_of
from sparkrelay.operators.table.changes import VERSIONS
from sparkrelay.state import LookedUp

KEYS = b"a", b"b", b"c", b"d"
VALUE = st.sampled_from([None, b"1", b"2", b"3", b"4"])


def found(now, before, versions, rows):
    """Ask for rows of (key or None, time); returns what each finds."""
    keys = pa.array(sorted({key for key, _ in rows if key is not None}), pa.binary())
    held = [now.get(key.as_py()) for key in keys]
    looked_up = LookedUp(
        pa.array(held, pa.binary()),
        pa.record_batch({"key": pa.array(before, pa.binary()), "old": pa.array(before.values(), pa.binary())}),
        {
            VERSIONS: pa.record_batch(
                {
                    "key": pa.array([key for key, _, _ in versions], pa.binary()),
                    "time": pa.array([time for _, time, _ in versions], pa.int64()),
                    "value": pa.array([value for *_, value in versions], pa.binary()),
                }
            )
        },
    )
    numbers = np.array([len(keys) if key is None else keys.index(key).as_py() for key, _ in rows], np.int64)
    times = np.array([time for _, time in rows], np.int64)
    values = pa.concat_arrays([looked_up.values, pa.nulls(1, pa.binary())])
    every, taken = _as_of(looked_up, keys, values, numbers, times)
    return every.take(pa.array(taken)).to_pylist()


def test_rows_and_changes_are_taken_by_their_times():
    versions = [(b"a", 10, b"2"), (b"b", 12, None), (b"a", 20, b"3")]
    now, before = {b"a": b"3", b"b": None, b"c": b"9"}, {b"a": b"1", b"b": b"5"}
    rows = [(b"a", 9), (b"a", 10), (b"a", 19), (b"a", 20), (b"b", 11), (b"b", 12), (b"c", 0), (b"d", 5), (None, 50)]
    assert found(now, before, versions, rows) == [b"1", b"2", b"2", b"3", b"5", None, b"9", None, None]


@given(
    old=st.dictionaries(st.sampled_from(KEYS), VALUE.filter(bool)),
    changes=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 5), VALUE)),
    rows=st.lists(st.tuples(st.sampled_from([*KEYS, None]), st.integers(-1, 6)), min_size=1),
)
def test_each_row_finds_what_one_after_the_other_gives(old, changes, rows):
    changes = sorted(changes, key=lambda change: change[1])
    now = {**old, **{key: value for key, _, value in changes}}
    before = {key: old.get(key) for key in {key for key, _, _ in changes}}
    expected = []
    for key, time in rows:
        table = old | {changed: value for changed, at, value in changes if at <= time}
        expected.append(table.get(key))
    assert found(now, before, changes, rows) == expected

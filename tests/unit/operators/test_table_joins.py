"""What has changed of rows that are joined of tables, beside joining what the tables held and what they hold."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay.operators.table.joined_rows import NEVER, JoinedTables, Rows, _joined

#: One key of three tables: the value before and now, None where there is no row; and the time of what it is now.
HOW = st.sampled_from(["inner", "left", "right", "full"])
VALUE = st.none() | st.integers(0, 2)
TABLES = st.tuples(*(st.tuples(VALUE, VALUE, st.integers(0, 9)) for _ in range(3)))


def rows_of(was, now, time):
    """Return a table of one key and one column."""
    column = {kind: (pa.array([value], pa.int64()),) for kind, value in (("was", was), ("now", now))}
    some = was is not None or now is not None
    times = np.array([time if some and not (now is None and was is None) else NEVER])
    return Rows(
        column["was"],
        column["now"],
        np.array([was is not None]),
        np.array([now is not None]),
        np.array([was != now]),
        times,
    )


def joined(how, left, right):
    """Join two rows, as dictionaries or None."""
    there = {"inner": left and right, "left": left, "right": right, "full": left or right}[how]
    return {**(left or {}), **(right or {})} if there else None


@given(TABLES, HOW, HOW, st.booleans())
def test_rows_are_joined_as_they_were_and_as_they_are(tables, first, second, left_deep):
    tree = JoinedTables(second, JoinedTables(first, 0, 1), 2)
    if not left_deep:
        tree = JoinedTables(second, 0, JoinedTables(first, 1, 2))
    found = _joined(tree, [rows_of(*table) for table in tables])

    def expected(which):
        a, b, c = (
            None if table[which] is None else {name: table[which]} for name, table in zip("abc", tables, strict=True)
        )
        return joined(second, joined(first, a, b), c) if left_deep else joined(second, a, joined(first, b, c))

    def said(there, columns):
        columns = [column for column in columns if not pa.types.is_boolean(column.type)]
        row = {name: column[0].as_py() for name, column in zip("abc", columns, strict=True)}
        return {name: value for name, value in row.items() if value is not None} if there[0] else None

    was, now = expected(0), expected(1)
    assert said(found.was, found.were) == was
    assert said(found.is_, found.are) == now
    # A change of a side may leave the joined row as it was only where that side is not in it.
    assert found.changed[0] == (was != now)


def test_the_time_is_the_later_one_of_both_and_of_what_was_deleted():
    sides = [rows_of(1, 2, 5), rows_of(1, None, 9)]
    assert _joined(JoinedTables("left", 0, 1), sides).times.tolist() == [9]
    sides = [rows_of(1, 2, 5), rows_of(None, None, 9)]
    assert _joined(JoinedTables("left", 0, 1), sides).times.tolist() == [5]
    assert _joined(JoinedTables("inner", 0, 1), sides).times.tolist() == [NEVER]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_nothing_is_joined_of_nothing(how):
    empty = rows_of(None, None, 0), rows_of(None, None, 0)
    found = _joined(JoinedTables(how, 0, 1), list(empty))
    assert not (found.is_ | found.was | found.changed).any()

"""Java's queue: sorted by key, and equal entries in the order in which its steps leave them."""

from hypothesis import given, strategies as st

from sparkrelay.assignment.placement.java_order import java_order


@given(st.lists(st.integers(0, 5)))
def test_entries_leave_in_order(numbers):
    assert java_order(numbers, lambda number: number) == sorted(numbers)


def test_equal_entries_leave_as_they_do_in_java():
    """Offered a to g with equal keys, java.util.PriorityQueue (17) gives the first, then the last ones."""
    assert java_order("abcdefg", lambda _: 0) == list("agfedcb")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers())))
def test_nothing_is_lost(entries):
    assert sorted(java_order(entries, lambda entry: entry[0])) == sorted(entries)

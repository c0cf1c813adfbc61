"""Where variables and timers of a stateful processor stand."""

import pytest

from sparkrelay.operators.process.keys import (
    LONGEST_NAME,
    behind_front,
    element_key,
    entries,
    entry_key,
    expiry_key,
    part,
    read_due,
    timer_key,
    variable_key,
    variable_of,
)
from sparkrelay.state.window_keys import ENDLESS, end_bytes, over


def test_what_is_due_comes_before_what_never_ends():
    group = part(b"ada")
    variable = variable_key(group, "count")
    for due in (0, 1, 1 << 60):
        assert over(due - 1) <= timer_key(due, group) < over(due) < variable < ENDLESS
        assert read_due(timer_key(due, group)) == (due, True)
    assert behind_front(timer_key(7, group)) == group


def test_an_expiry_names_its_variable_and_comes_within_a_second():
    variable = element_key(variable_key(part(b"ada"), "list"), 3)
    for expires, stands in ((1, 1000), (1000, 1000), (1001, 2000)):
        key = expiry_key(expires, variable)
        assert read_due(key) == (stands, False)
        assert variable_of(key) == variable


@pytest.mark.parametrize("groups", [(b"a", b"ab"), (b"", b"\0"), (b"x" * 120, b"x" * 121), (b"\xff", b"\xff" * 300)])
def test_no_group_begins_another_one(groups):
    one, other = (part(group) for group in groups)
    assert not one.startswith(other)
    assert not other.startswith(one)


def test_a_range_has_a_map_s_entries_and_no_others():
    first, stop = entries(variable_key(part(b"ada"), "m"))
    assert first <= entry_key(first, b"") < entry_key(first, b"\xff" * 500) < stop
    for other in (variable_key(part(b"ada"), "mm"), variable_key(part(b"ada"), "l"), variable_key(part(b"adb"), "m")):
        assert not first <= entry_key(other, b"k") < stop


def test_keys_are_short_enough_to_be_scanned():
    longest = entry_key(variable_key(part(b"g" * 120), "n" * LONGEST_NAME), b"k" * 120)
    assert len(expiry_key(1, longest)) < 479
    assert longest.startswith(end_bytes(1 << 62))

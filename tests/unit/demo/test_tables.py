import json

import pytest
from hypothesis import given, strategies as st

from sparkrelay.demo.tables import BY_CARRIER, BY_ORIGIN, Totals, compare, read_row, read_tables
from sparkrelay.errors import SerializationException

ROWS = st.dictionaries(
    st.tuples(st.sampled_from("ABCDEF")), st.builds(Totals, st.integers(1, 9), st.integers(-9, 9), st.just(1.5))
)


def test_a_row_by_carrier_and_day():
    value = {
        "carrier": "UA",
        "window": {"start": "2013-01-01T00:00:00.000Z", "end": "2013-01-02T00:00:00.000Z"},
        "flights": 3,
        "total_delay": -7,
        "mean_delay": -7 / 3,
    }
    assert read_row(BY_CARRIER, json.dumps(value).encode()) == (("UA", "2013-01-01"), Totals(3, -7, -7 / 3))


def test_a_row_by_origin():
    value = b'{"origin":"EWR","flights":1,"total_delay":2,"mean_delay":2.0}'
    assert read_row(BY_ORIGIN, value) == (("EWR",), Totals(1, 2, 2.0))


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b'{"origin":"EWR"}', b'{"flights":1}'])
def test_what_is_no_row_is_named(value):
    for output in (BY_CARRIER, BY_ORIGIN):
        with pytest.raises(SerializationException, match=output.topic):
            read_row(output, value)


def test_tasks_are_named_after_the_part_of_the_topology_and_the_partition():
    assert (BY_CARRIER.task(3), BY_ORIGIN.task(0)) == ("0_3", "1_0")


@given(ROWS)
def test_equal_tables_are_exact(rows):
    verdict = compare({"t": rows}, {"t": dict(rows)})
    assert (verdict.exact, verdict.lost, verdict.overcounted, verdict.differences) == (True, 0, 0, ())


@given(ROWS, ROWS)
def test_lost_and_overcounted_are_what_one_table_has_and_the_other_has_not(expected, found):
    verdict = compare({"t": expected}, {"t": found})
    assert verdict.exact == (expected == found)
    assert verdict.overcounted - verdict.lost == sum(r.flights for r in found.values()) - sum(
        r.flights for r in expected.values()
    )
    mirrored = compare({"t": found}, {"t": expected})
    assert (mirrored.lost, mirrored.overcounted) == (verdict.overcounted, verdict.lost)


def test_a_missing_table_is_lost():
    verdict = compare({"t": {("A",): Totals(4, 1, 0.25)}}, {})
    assert (verdict.exact, verdict.lost) == (False, 4)
    assert verdict.differences == ("t A: batch 4 flights, 1 min, mean 0.25, stream has no such row",)


def test_a_mean_that_is_nearly_right_is_wrong():
    verdict = compare({"t": {("A",): Totals(3, 1, 1 / 3)}}, {"t": {("A",): Totals(3, 1, 0.333333)}})
    assert (verdict.exact, verdict.lost, verdict.overcounted, len(verdict.differences)) == (False, 0, 0, 1)


def test_many_differences_are_cut_short():
    expected = {(str(number),): Totals(1, 0, 0.0) for number in range(20)}
    verdict = compare({"t": expected}, {"t": {}})
    assert verdict.lost == 20
    assert verdict.differences[-1] == "... and 15 more rows"


def test_tables_of_the_batch_are_read_back():
    text = '{"t": [[["UA", "2013-01-01"], 3, -7, -2.3333333333333335]]}'
    assert read_tables(text) == {"t": {("UA", "2013-01-01"): Totals(3, -7, -7 / 3)}}

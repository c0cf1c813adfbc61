"""Where topics are read first."""

import datetime as dt

import pytest

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.errors import TopologyException
from sparkrelay.topology.starts import Start, TopicStart, spark_starting, topic_starts

NOON = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.mark.parametrize(
    ("given", "offset", "listed"),
    [
        ("earliest", None, EARLIEST),
        (" Latest ", None, LATEST),
        ("2026-11-28T12:00:00Z", None, NOON_MS),
        ("2026-11-28T13:00:00+01:00", None, NOON_MS),
        (NOON, None, NOON_MS),
        ("24 hours ago", None, NOON_MS - 86_400_000),
        ("1 week ago", None, NOON_MS - 7 * 86_400_000),
        ("99999999 weeks ago", None, 0),
        (0, 0, None),
        (23, 23, None),
    ],
)
def test_one_place_for_all_partitions(given, offset, listed):
    found = topic_starts(given, ("a", "b"), "here")
    assert found.keys() == {"a", "b"}
    start = found["b"].of(7)
    assert (start.offset, start.listed_at(NOON_MS)) == (offset, listed)


@pytest.mark.parametrize("given", [{0: 23, 1: "earliest"}, {"a": {0: 23, 1: "earliest"}}, '{"0": 23, "1": "earliest"}'])
def test_a_place_for_each_partition(given):
    (found,) = topic_starts(given, ("a",), "here").values()
    assert (found.of(0).offset, found.of(1).listed, found.of(2)) == (23, EARLIEST, None)
    assert (str(found), found.is_beginning) == ("0: 23, 1: earliest", False)


def test_a_topic_that_is_not_named_follows_the_settings():
    assert topic_starts({"b": "earliest"}, ("a", "b"), "here") == {"b": TopicStart(Start.parse("earliest"))}
    assert topic_starts(None, ("a",), "here") == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("soon", 'here: \'soon\' must be "earliest", "latest", a time'),
        ("", "must be"),
        ({}, "must be"),
        (True, "must be"),
        (-1, "must be"),
        (1 << 63, "must be"),
        ("2026-11-28T12:00:00", "has no time zone"),
        (dt.datetime(2026, 11, 28), "has no time zone"),  # noqa: DTZ001 - what is refused
        ("1969-12-31T23:59:59Z", "is before 1970"),
        ({"c": 1}, "here names c, which is not read here"),
        ({0: 1}, "here names 0"),
        ({"a": {"x": 1}}, "here, 'a': 'x' is no number of a partition"),
        ({"a": {0: "soon"}}, "here, 'a', 0: 'soon' must be"),
        ({"a": {0: {}}}, "must be"),
        ("{", "here is no JSON"),
        ("{" * 100_000, "here is no JSON"),
    ],
)
def test_what_is_no_place(given, says):
    with pytest.raises(TopologyException, match=says):
        topic_starts(given, ("a", "b"), "here")


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, None),
        ({"startingoffsets": "latest"}, (None, LATEST)),
        ({"startingoffsets": '{"a": {"0": 23}}'}, (23, None)),
        ({"startingoffsets": '{"a": {"0": -2}}'}, (None, EARLIEST)),
        ({"startingoffsets": '{"a": {"0": -1}}'}, (None, LATEST)),
        ({"startingtimestamp": "1000", "startingoffsets": "latest"}, (None, 1000)),
        ({"startingoffsetsbytimestamp": '{"a": {"0": 1000}}', "startingoffsets": "latest"}, (None, 1000)),
    ],
)
def test_options_of_sparks_kafka_source(options, first):
    found = topic_starts(spark_starting(options, ("a",), "here"), ("a",), "here")
    start = found["a"].of(0) if found else None
    assert (None if start is None else (start.offset, start.listed)) == first


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingoffsets": "soon"}, "must be"),
        ({"startingoffsets": '{"b": {"0": 1}}'}, "must name all partitions of a, such as"),
        ({"startingoffsets": '{"a": 1}'}, "must name all partitions of a"),
        ({"startingoffsets": '{"a": {"0": -3}}'}, "-3 must be"),
        ({"startingoffsets": "{"}, "is no JSON"),
        ({"startingtimestamp": "noon"}, "must be milliseconds since 1970"),
        ({"startingoffsetsbytimestamp": "[1]"}, "must be an object"),
        ({"startingoffsetsbytimestamp": '{"a": {"0": -1}}'}, "must be milliseconds"),
    ],
)
def test_options_that_say_nothing(options, says):
    with pytest.raises(TopologyException, match=says):
        topic_starts(spark_starting(options, ("a",), "here"), ("a",), "here")

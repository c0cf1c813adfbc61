"""`sparkrelay offsets`: what it prints, and what it refuses before it asks a broker."""

import pytest

from sparkrelay.cli import app as command_line
from sparkrelay.cli.offsets import changes, table
from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.errors import ConfigException
from sparkrelay.runtime.instance.group_offsets import NewOffsets, PartitionOffsets, target
from sparkrelay.types import TopicPartition

IN, OUT = TopicPartition("in", 0), TopicPartition("orders-in", 11)
HERE = ["--bootstrap-servers", "localhost:1", "--application-id", "app"]


def test_a_line_for_each_partition():
    found = {
        IN: PartitionOffsets(5, 7, 10),
        OUT: PartitionOffsets(12, 0, 10),
        TopicPartition("gone", 0): PartitionOffsets(3),
        TopicPartition("well", 0): PartitionOffsets(7, 7, 1000),
    }
    assert list(table("app", found)) == [
        "partition     offset  first   end  left",
        "in-0               5      7    10     3  records 5 to 6 are gone",
        "orders-in-11      12      0    10     0  beyond the end of the log",
        "gone-0             3      -     -     -  does not exist",
        "well-0             7      7  1000   993",
    ]
    assert list(table("app", {})) == ["application app has committed no offsets"]


def test_what_would_be_set():
    new = NewOffsets((), {IN: (5, 7), OUT: (None, 0)}, "id")
    assert list(changes(new, "earliest")) == [
        "in-0: offset 5 -> 7 (earliest)",
        "orders-in-11: offset none -> 0 (earliest)",
    ]
    *_, remark = changes(NewOffsets((), {OUT: (None, 0)}, "id"), "earliest")
    assert remark == "the group has no offset of orders-in: instances that do not read this topic ignore the new ones"


@pytest.mark.parametrize(
    ("text", "listed", "offset"),
    [
        ("earliest", EARLIEST, None),
        ("latest", LATEST, None),
        ("0", None, 0),
        ("340", None, 340),
        ("1970-01-01T00:00:01.5Z", 1500, None),
        ("1970-01-01T01:00:00+01:00", 0, None),
    ],
)
def test_where_to(text, listed, offset):
    place = target(text)
    assert (place.text, place.listed, place.offset) == (text, listed, offset)


def test_where_the_group_is():
    assert target("current") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("2026-11-28T12:00:00", "has no time zone: append Z for UTC"),
        ("1969-12-31T23:59:59Z", "is before 1970"),
        ("-1", 'must be "earliest", "latest", a time'),
        ("9" * 19, 'must be "earliest"'),
        ("soon", 'must be "earliest"'),
        ("", 'must be "earliest"'),
    ],
)
def test_nowhere(text, says):
    with pytest.raises(ConfigException, match=says):
        target(text)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--to", "soon"], "--to 'soon' must be \"earliest\""),
        (["--to", "0", "--partitions", "0,x"], "--partitions '0,x' is not a list of numbers such as 0,2"),
        (["--to", "0", "--partitions", ""], "--partitions '' is not a list"),
    ],
)
def test_wrong_options_are_refused_before_a_broker_is_asked(capsys, options, says):
    assert command_line.run(["offsets", "set", *HERE, "--topic", "in", *options]) == 1
    assert says in capsys.readouterr().err

"""Records that were deleted before they were read: all partitions are named, and the command for all of them."""

from sparkrelay.runtime.tasks.deleted_records import deleted_records
from sparkrelay.types import TopicPartition


def partitions(*numbers, topic="orders"):
    return [TopicPartition(topic, number) for number in numbers]


def test_all_partitions_are_named_with_what_is_gone():
    one, other, fine = partitions(0, 2, 1)
    (clicks,) = partitions(3, topic="clicks")
    error = deleted_records("app", {one: 10, other: 0, fine: 5, clicks: 1}, {one: 15, other: 1, fine: 5, clicks: 3})
    text = str(error)
    assert "read: clicks-3 (offsets 1 to 2), orders-0 (offsets 10 to 14), orders-2 (offsets 0 to 0)." in text
    assert "sparkrelay offsets set --application-id app --topic orders --partitions 0,2 --to earliest ..." in text
    assert "sparkrelay offsets set --application-id app --topic clicks --partitions 3 --to earliest ..." in text
    assert "on.data.loss=continue" in text
    assert error.partitions == {one, other, clicks}


def test_of_many_partitions_some_are_named_and_the_command_has_all():
    many = partitions(*range(9))
    text = str(deleted_records("app", dict.fromkeys(many, 0), dict.fromkeys(many, 1)))
    assert "orders-4 (offsets 0 to 0) and 4 more." in text
    assert "orders-5 (" not in text
    assert "--partitions 0,1,2,3,4,5,6,7,8 --to earliest" in text


def test_where_no_records_are_gone_there_is_no_error():
    """The position is beyond the end, or the partition is not known."""
    (one,) = partitions(0)
    assert deleted_records("app", {one: 5}, {one: 5}) is None
    assert deleted_records("app", {one: 5}, {}) is None

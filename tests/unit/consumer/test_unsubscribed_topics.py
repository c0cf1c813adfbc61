"""Records of topics that the application no longer subscribes to stay where they are. No broker is needed."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from sparkrelay.consumer.base.mailbox import Mailbox
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.fetch.fetch_buffer import FetchBuffer
from sparkrelay.consumer.fetch.fetching import Fetched
from sparkrelay.records.batches.encode import encode
from sparkrelay.types import TopicPartition

OLD, NEW = TopicPartition("old", 0), TopicPartition("new", 0)


@pytest.fixture
def held():
    """A member that reads both topics."""
    held = SubscriptionState()
    held.subscribe(["old", "new"])
    held.assign_from_group([OLD, NEW])
    held.release()
    for partition in (OLD, NEW):
        held.seek(partition, 0)
    return held


@pytest.fixture
def buffer(held):
    return FetchBuffer(
        held, Mailbox(), read_committed=False, check_crcs=True, max_decompressed=1 << 20, out_of_range=print
    )


def fill(buffer):
    for partition in (OLD, NEW):
        (batch,) = encode(None, pa.array([b"1", b"2"], pa.binary()), timestamps=0)
        buffer.fetched([Fetched(partition, 0, memoryview(bytes(batch.data)))], 0.0)


def topics(buffer):
    return buffer.collect(10, None)["topic"].to_pylist()


@pytest.mark.parametrize("wanted", [(["new"],), ((), re.compile("n.*"))])
def test_no_rows_of_a_topic_that_is_given_up_and_positions_stay_in_front_of_them(held, buffer, wanted):
    fill(buffer)
    held.subscribe(*wanted)
    assert topics(buffer) == ["new", "new"]
    assert not buffer.has_data()
    assert {p: o.offset for p, o in held.committable().items()} == {OLD: 0, NEW: 2}
    assert held.fetchable() == {NEW: 2}
    assert held.assigned == {OLD, NEW}


def test_a_topic_that_is_wanted_again_is_read_on(held, buffer):
    fill(buffer)
    held.subscribe(["new"])
    assert topics(buffer) == ["new", "new"]
    held.subscribe(["old", "new"])
    assert topics(buffer) == ["old", "old"]


def test_what_the_group_gives_for_an_older_subscription_is_not_read(held, buffer):
    held.subscribe(["new"])
    held.assign_from_group([OLD, NEW])
    held.release()
    held.seek(OLD, 0)
    assert held.fetchable() == {NEW: 0}


def test_what_a_broker_finds_for_a_pattern_is_read(held):
    # Its expressions and ours may differ in what they match.
    held.subscribe((), re.compile("n.*"))
    held.assign_from_group([OLD, NEW])
    held.release()
    assert held.fetchable() == {OLD: 0, NEW: 0}


def test_partitions_named_by_hand_need_no_subscription():
    held = SubscriptionState()
    held.assign_by_hand([OLD])
    held.seek(OLD, 0)
    assert held.fetchable() == {OLD: 0}

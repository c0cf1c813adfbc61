from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sparkrelay.consumer.base.assignor import MemberAssignment, MemberSubscription
from sparkrelay.consumer.group.wire import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from sparkrelay.errors import SerializationException
from sparkrelay.types import TopicPartition

topics = st.text("abc-.", min_size=1, max_size=4)
partitions = st.builds(TopicPartition, topics, st.integers(0, 5))


@given(
    st.builds(
        MemberSubscription,
        topics=st.frozensets(topics),
        owned_partitions=st.frozensets(partitions),
        user_data=st.binary(max_size=20),
        generation=st.integers(-1, 100),
        rack=st.none() | st.text("r1", min_size=1, max_size=3),
    )
)
def test_subscriptions_come_back(subscription):
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(st.lists(partitions, unique=True), st.binary(max_size=20))
def test_assignments_come_back(parts, data):
    decoded = decode_assignment(encode_assignment(MemberAssignment(tuple(parts), data)))
    assert decoded.user_data == data
    assert sorted(decoded.partitions) == sorted(parts)
    for topic in {p.topic for p in parts}:
        assert [p for p in decoded.partitions if p.topic == topic] == [p for p in parts if p.topic == topic]


def test_older_subscriptions_are_read():
    # Version 0: one topic, user data; as written by clients before KIP-429.
    data = b"\x00\x00" + b"\x00\x00\x00\x01\x00\x01t" + b"\x00\x00\x00\x02hi"
    assert decode_subscription(data) == MemberSubscription(frozenset({"t"}), user_data=b"hi")


def test_newer_subscriptions_are_read_as_far_as_we_know_them():
    data = encode_subscription(MemberSubscription(frozenset({"t"}), generation=3))
    newer = b"\x00\x09" + data[2:] + b"more"
    assert decode_subscription(newer) == MemberSubscription(frozenset({"t"}), generation=3)


def test_null_user_data_is_none():
    data = b"\x00\x01" + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff"
    assert decode_assignment(data) == MemberAssignment()
    assert decode_assignment(b"") == MemberAssignment()


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x01\x00\x00\x00\x05\x00\x01t"])
def test_garbage_is_a_named_error(data):
    with pytest.raises(SerializationException, match="subscription"):
        decode_subscription(data)


NULL, NONE, T = b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x00\x00\x01\x00\x01t"


@pytest.mark.parametrize("data", [NULL + NULL + NONE, NONE + NULL + NULL, NONE + NULL + T + NULL])
def test_missing_arrays_in_a_subscription_are_a_named_error(data):
    with pytest.raises(SerializationException, match="subscription"):
        decode_subscription(b"\x00\x01" + data)


@pytest.mark.parametrize("data", [NULL + NULL, T + NULL + NULL])
def test_missing_arrays_in_an_assignment_are_a_named_error(data):
    with pytest.raises(SerializationException, match="assignment"):
        decode_assignment(b"\x00\x01" + data)

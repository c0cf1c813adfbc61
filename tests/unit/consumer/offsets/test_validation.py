"""Positions after a change of leader (KIP-320), and of topics that were made again (KIP-516)."""

from __future__ import annotations

import pickle
import uuid

import pytest
from kafka.protocol.consumer import OffsetForLeaderEpochResponse

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.group_requests import OffsetAndMetadata
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.offsets.validation import ValidationManager
from sparkrelay.errors import AuthenticationException, DisconnectException, LogTruncationException
from sparkrelay.types import TopicPartition

T0, T1 = (TopicPartition("t", p) for p in range(2))


class Validation:
    def __init__(self, driver, metadata, make_state, has_reset):
        self.metadata, self.subscription = metadata, SubscriptionState()
        self.failures, self.dropped, self.stale, self.reset = [], [], [], []
        self.manager = ValidationManager(
            metadata,
            self.subscription,
            has_reset=has_reset,
            reset=self.reset.append,
            drop=self.dropped.append,
            stale=self.stale.append,
            make_state=make_state,
            fail=self.failures.append,
        )
        self.driver = driver(self.manager)
        self.subscription.assign_by_hand([T0, T1])

    def answer(self, *parts):
        """Answer as (partition, code, end offset, epoch)."""
        make = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        return self.driver.answer(
            "OffsetForLeaderEpoch",
            OffsetForLeaderEpochResponse(
                topics=[
                    make(
                        topic="t",
                        partitions=[
                            make.EpochEndOffset(partition=p, error_code=code, end_offset=end, leader_epoch=epoch)
                            for p, code, end, epoch in parts
                        ],
                    )
                ]
            ),
        )


@pytest.fixture
def make_validation(driver, cluster, make_state):
    return lambda has_reset=True: Validation(driver, cluster({"t": 2}, brokers=(1, 2)), make_state, has_reset)


@pytest.fixture
def validation(make_validation):
    """T0 at offset 50 of epoch 3; T1 at 60 of unknown epoch; then the leader of both changes to one of epoch 5."""
    return doubt(make_validation())


def doubt(validation):
    validation.metadata.set_leader(T0, 1, 3)
    validation.subscription.seek(T0, 50, 3)
    validation.subscription.seek(T1, 60)
    assert validation.driver.poll() == []
    assert validation.subscription.fetchable() == {T0: 50, T1: 60}
    validation.metadata.set_leader(T0, 2, 5)
    validation.metadata.set_leader(T1, 2, 5)
    return validation


def test_a_newer_leader_is_asked_before_fetching_goes_on(validation):
    assert validation.driver.poll() == ["OffsetForLeaderEpoch"]
    assert validation.subscription.fetchable() == {T1: 60}
    assert not validation.subscription.may_return(T0)
    assert validation.dropped == [T0]
    unsent = validation.driver.find("OffsetForLeaderEpoch")
    (part,) = unsent.request.topics[0].partitions
    assert (unsent.node, part.partition, part.leader_epoch, part.current_leader_epoch) == (2, 0, 3, 5)
    assert validation.driver.pass_time(10) == []  # one at a time
    validation.answer((0, 0, 50, 3))
    assert validation.subscription.fetchable() == {T0: 50, T1: 60}
    assert validation.driver.pass_time(10) == []  # once is enough


def test_the_same_leader_needs_no_question_and_a_later_one_does(validation):
    validation.driver.poll()
    validation.answer((0, 0, 1000, 4))
    validation.subscription.advance(T0, 50, 70, 5)
    assert validation.driver.poll() == []
    validation.metadata.set_leader(T0, 1, 6)
    assert validation.driver.poll() == ["OffsetForLeaderEpoch"]


def test_a_committed_position_of_an_older_epoch_is_checked_before_the_first_fetch(make_validation):
    validation = make_validation()
    validation.metadata.set_leader(T0, 1, 4)
    number, unknown = validation.subscription.take_unknown()
    assert set(unknown) == {T0, T1}
    validation.subscription.found(T0, number, 50, 2)
    assert validation.driver.poll() == ["OffsetForLeaderEpoch"]
    assert validation.subscription.fetchable() == {}
    validation.answer((0, 0, 50, 2))
    assert validation.subscription.fetchable() == {T0: 50}


def test_a_cut_log_is_read_on_from_where_the_logs_part(validation):
    validation.driver.poll()
    validation.answer((0, 0, 42, 2))
    assert validation.subscription.fetchable()[T0] == 42
    assert validation.subscription.get(T0).leader_epoch == 2
    assert validation.failures == []
    assert validation.driver.poll() == []


def test_an_epoch_that_the_leader_does_not_know_is_reset(validation):
    validation.driver.poll()
    validation.answer((0, 0, -1, -1))
    assert validation.reset == [T0]


@pytest.mark.parametrize(("end", "divergent"), [((42, 2), 42), ((-1, -1), None)])
def test_without_reset_a_cut_log_is_an_error_that_says_where(make_validation, end, divergent):
    validation = doubt(make_validation(has_reset=False))
    validation.driver.poll()
    validation.answer((0, 0, *end))
    (error,) = validation.failures
    assert isinstance(error, LogTruncationException)
    assert (error.partition, error.position, error.divergent_offset) == (T0, 50, divergent)
    assert "t-0" in str(error)
    assert "seek()" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.divergent_offset) == (str(error), divergent)
    # It stays in doubt, and is not asked about again, until somebody seeks.
    assert validation.driver.pass_time(100) == []
    assert T0 not in validation.subscription.fetchable()
    validation.subscription.seek(T0, 42)
    assert validation.driver.poll() == []
    assert validation.subscription.fetchable()[T0] == 42


def test_a_seek_makes_the_question_pointless(validation):
    validation.driver.poll()
    validation.subscription.seek(T0, 7)
    validation.answer((0, 0, 42, 2))
    assert validation.subscription.fetchable()[T0] == 7
    assert validation.driver.poll() == []


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE]
)
def test_a_broker_that_does_not_know_is_asked_again(validation, code):
    validation.driver.poll()
    validation.answer((0, code, -1, -1))
    assert T0 not in validation.subscription.fetchable()
    assert validation.driver.poll() == []
    assert validation.driver.pass_time(0.1) == ["OffsetForLeaderEpoch"]
    assert (validation.stale == ["t"]) == (code != ErrorCode.OFFSET_NOT_AVAILABLE)


def test_a_lost_connection_and_a_refusal(validation):
    validation.driver.poll()
    validation.driver.answer("OffsetForLeaderEpoch", error=DisconnectException("gone"))
    assert validation.stale == ["t"]
    assert validation.driver.pass_time(0.1) == ["OffsetForLeaderEpoch"]
    validation.driver.answer("OffsetForLeaderEpoch", error=AuthenticationException("who are you"))
    assert [type(error) for error in validation.failures] == [AuthenticationException]


def test_the_question_follows_the_leader(validation):
    validation.driver.poll()
    validation.metadata.set_leader(T0, 1, 6)
    validation.answer((0, ErrorCode.FENCED_LEADER_EPOCH, -1, -1))
    assert validation.driver.pass_time(0.1) == ["OffsetForLeaderEpoch"]
    assert validation.driver.find("OffsetForLeaderEpoch").node == 1


def test_a_topic_that_was_made_again_is_not_read_until_a_seek(make_validation, metadata_message):
    """franz-go #1426."""
    validation = make_validation()
    validation.subscription.seek(T0, 50)
    validation.subscription.seek(T1, 60)
    validation.driver.poll()
    validation.metadata.update(metadata_message({"t": 2}, ids={"t": uuid.uuid4()}), requested={"t"})
    validation.driver.poll()
    assert sorted(validation.dropped) == [T0, T1]
    assert validation.subscription.fetchable() == {}
    # Offsets of the old topic must not be committed for the new one.
    assert validation.subscription.committable() == {}
    assert validation.subscription.first_recreated() == (T0, 50)
    validation.subscription.seek(T0, 0)
    validation.driver.poll()
    assert validation.subscription.fetchable() == {T0: 0}
    assert validation.subscription.committable() == {T0: OffsetAndMetadata(0)}
    assert validation.subscription.first_recreated() == (T1, 60)
    validation.subscription.assign_by_hand([T0])
    assert validation.subscription.first_recreated() is None
    assert not validation.subscription.has_recreated


def test_an_automatic_reset_does_not_take_a_remade_topic_for_the_old_one(make_validation, metadata_message):
    """Leader epochs and offsets are asked for by name, so the answer may be about the new topic already."""
    validation = make_validation()
    validation.subscription.seek(T0, 50)
    validation.driver.poll()
    validation.subscription.reset(T0, -2)
    number, asked = validation.subscription.take_unknown()
    assert asked[T0] == -2
    validation.subscription.found(T0, number, 0)
    validation.metadata.update(metadata_message({"t": 2}, ids={"t": uuid.uuid4()}), requested={"t"})
    validation.driver.poll()
    assert validation.subscription.fetchable() == {}
    assert validation.subscription.first_recreated() == (T0, 0)


def test_a_question_about_a_partition_without_leader_is_asked_when_there_is_one(validation, metadata_message):
    leaders = {("t", 0): -1, ("t", 1): -1}
    validation.driver.poll()
    validation.answer((0, ErrorCode.FENCED_LEADER_EPOCH, -1, -1))
    validation.metadata.update(metadata_message({"t": 2}, leaders=leaders, epoch=9), requested={"t"})
    assert validation.driver.pass_time(0.1) == []
    assert validation.driver.waits["ValidationManager"] <= 0.1
    validation.metadata.update(metadata_message({"t": 2}, epoch=10), requested={"t"})
    assert validation.driver.pass_time(0.1) == ["OffsetForLeaderEpoch"]


def test_an_answer_to_an_earlier_look_up_is_not_taken_for_the_present_one(make_validation):
    subscription = make_validation().subscription
    subscription.seek_to([T0], -1)
    first, asked = subscription.take_unknown()
    assert asked[T0] == -1
    subscription.seek_to([T0], -2)
    second, asked = subscription.take_unknown()
    assert asked == {T0: -2}
    subscription.found(T0, first, 99)
    assert subscription.get(T0).position is None
    subscription.found(T0, second, 3)
    assert subscription.get(T0).position == 3

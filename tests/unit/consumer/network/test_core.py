"""All managers of one consumer together: who gets a refusal, and how often."""

from __future__ import annotations

import pytest
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.group_requests import OffsetAndMetadata
from sparkrelay.client.messages import FetchResponse
from sparkrelay.consumer.assignors.range_assignor import RangeAssignor
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.consumer.base.events import (
    Commit,
    ErrorRaised,
    FetchCommitted,
    PartitionsChanged,
    Polled,
    Prepared,
    Subscribe,
)
from sparkrelay.consumer.base.mailbox import Mailbox
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.fetch.fetch_buffer import FetchBuffer
from sparkrelay.consumer.fetch.fetching import FetchManager
from sparkrelay.consumer.network.core import ConsumerCore
from sparkrelay.errors import AuthorizationException
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Consuming:
    def __init__(self, metadata, driver, *, fetching=False):
        self.metadata, self.mailbox, self.subscription = metadata, Mailbox(), SubscriptionState()
        buffer = FetchBuffer(
            self.subscription,
            self.mailbox,
            read_committed=True,
            check_crcs=True,
            max_decompressed=1 << 20,
            out_of_range=lambda *_: None,
        )
        self.core = ConsumerCore(
            ConsumerConfig.from_dict({"bootstrap.servers": "h:1", "group.id": "g"}),
            metadata,
            mailbox=self.mailbox,
            subscription=self.subscription,
            assignors=[RangeAssignor()],
            buffer=buffer if fetching else None,
        )
        self.driver = driver(*self.core.managers)

    def process(self, event):
        self.core.process(event, self.driver.now)

    def subscribe(self):
        self.subscription.subscribe(frozenset({"t"}), None)
        self.process(Polled(self.driver.now))
        self.process(Subscribe(frozenset({"t"})))

    def refuse_the_coordinator(self):
        make = FindCoordinatorResponse.Coordinator
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        answer = make(key="g", node_id=-1, host="", port=-1, error_code=code, error_message=None)
        self.driver.answer("FindCoordinator", FindCoordinatorResponse(coordinators=[answer]))

    def errors(self):
        found = []
        while (event := self.mailbox.take()) is not None:
            if isinstance(event, ErrorRaised):
                found.append(event.error)
        return found


@pytest.fixture
def consuming(cluster, driver):
    return Consuming(cluster({"t": 1}), driver)


def test_whoever_waits_for_a_refused_coordinator_gets_it_at_once(consuming, make_call):
    commits, fetch = [make_call("a commit"), make_call("another commit")], make_call("committed()")
    for call in commits:
        consuming.process(Commit(call, {T0: OffsetAndMetadata(1)}, retry=True))
    consuming.process(FetchCommitted(fetch, frozenset({T0})))
    assert consuming.driver.poll() == ["FindCoordinator"]
    consuming.refuse_the_coordinator()
    for call in (*commits, fetch):
        with pytest.raises(AuthorizationException, match="coordinator of group 'g'"):
            call.result()
    assert consuming.errors() == []  # those who asked got it
    assert consuming.driver.pass_time(100) == []


def test_a_commit_after_a_refusal_asks_anew(consuming, make_call):
    for _ in range(2):
        call = make_call("a commit")
        consuming.process(Commit(call, {T0: OffsetAndMetadata(1)}, retry=True))
        assert consuming.driver.pass_time(10) == ["FindCoordinator"]
        assert not call.done
        consuming.refuse_the_coordinator()
        assert call.done


def test_a_member_without_a_coordinator_gives_up_and_its_commits_fail(consuming, make_call):
    consuming.subscribe()
    consuming.driver.poll()
    consuming.process(Prepared(consuming.mailbox.take().number))
    call = make_call("a commit")
    consuming.process(Commit(call, {T0: OffsetAndMetadata(1)}, retry=True))
    assert "FindCoordinator" in consuming.driver.poll()
    consuming.refuse_the_coordinator()
    assert consuming.core.given_up
    with pytest.raises(AuthorizationException):
        call.result()
    (error,) = consuming.errors()
    assert isinstance(error, AuthorizationException)


def test_a_refused_topic_is_one_waiting_error_however_often_it_is_refused(consuming, metadata_message):
    consuming.subscription.assign_by_hand([TopicPartition("secret", 0)])
    consuming.process(PartitionsChanged())
    for _ in range(3):
        consuming.driver.pass_time(1000)
        response = metadata_message({})
        make = MetadataResponse.MetadataResponseTopic
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.topics = [make(error_code=code, name="secret", topic_id=None, is_internal=False, partitions=[])]
        consuming.metadata.update(response, requested={"secret"})
        consuming.driver.answer("TopicsWanted")
    (error,) = consuming.errors()
    assert "secret" in str(error)
    assert consuming.errors() == []


def test_errors_that_differ_all_wait(consuming):
    for text in ("one", "two", "one"):
        consuming.core.fail(AuthorizationException(text))
    assert [str(error) for error in consuming.errors()] == ["one", "two"]
    consuming.core.fail(AuthorizationException("one"))
    assert len(consuming.errors()) == 1


def test_fetching_forgets_partitions_that_left_the_assignment(cluster, driver):
    buffering = Consuming(cluster({"t": 2}), driver, fetching=True)
    fetches = next(manager for manager in buffering.core.managers if isinstance(manager, FetchManager))
    # What a broker that is no longer the leader leads to: a pause of each partition.
    make = FetchResponse.FetchableTopicResponse
    moved = [
        make.PartitionData(
            partition_index=number, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=-1,
            last_stable_offset=-1, log_start_offset=-1, aborted_transactions=None, records=None,
        )
        for number in (0, 1)
    ]  # fmt: skip
    topic_id = buffering.metadata.topic_id("t")
    for held in ({T0, T1}, {T1}, set()):
        buffering.subscription.assign_by_hand(held)
        for partition in held:
            buffering.subscription.seek(partition, 0)
        buffering.process(PartitionsChanged())
        assert set(fetches._paused_until) <= held
        buffering.driver.pass_time(10)
        if held:
            answer = FetchResponse(responses=[make(topic="", topic_id=topic_id, partitions=moved)], session_id=0)
            buffering.driver.answer("Fetch", answer)
            assert set(fetches._paused_until) == held

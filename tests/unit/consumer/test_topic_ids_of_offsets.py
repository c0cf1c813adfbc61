"""Under which topic's id offsets are committed and asked for, and what happens if that topic is there no more."""

from __future__ import annotations

import uuid

import pytest
from kafka.protocol.consumer import OffsetCommitResponse, OffsetFetchResponse
from kafka.protocol.metadata import MetadataResponse

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.group_requests import GroupMetadata, OffsetAndMetadata, offset_commit, offset_fetch
from sparkrelay.consumer.base.events import Commit
from sparkrelay.consumer.base.subscription import LeaderView, SubscriptionState
from sparkrelay.consumer.offsets.commits import CommitManager, sort_out
from sparkrelay.errors import DisconnectException, UnknownTopicException
from sparkrelay.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OLD, NEW, OTHER = (uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in ("old", "new", "other"))
OFFSETS = {T0: OffsetAndMetadata(5, "x", 2), T1: OffsetAndMetadata(6), U0: OffsetAndMetadata(7)}


def as_sent(request, version):
    return type(request).decode(request.encode(version=version), version=version)


def bounds(request):
    return request._min_version, request._max_version


# -- requests ----------------------------------------------------------------------------------------------------------


def test_a_commit_names_topics_by_id_to_brokers_that_know_ids_and_by_name_to_others():
    request = offset_commit("g", OFFSETS, member=GroupMetadata("g", 3, "m", "i"), ids={T0: OLD, T1: OLD, U0: OTHER})
    newer, older = as_sent(request, 10), as_sent(request, 9)
    assert [topic.topic_id for topic in newer.topics] == [OLD, OTHER]
    assert [topic.name for topic in older.topics] == ["t", "u"]
    for sent in (newer, older):
        assert (sent.group_id, sent.generation_id_or_member_epoch, sent.member_id) == ("g", 3, "m")
        assert sent.group_instance_id == "i"
        parts = [
            (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.committed_metadata)
            for topic in sent.topics
            for p in topic.partitions
        ]
        assert parts == [(0, 5, 2, "x"), (1, 6, -1, ""), (0, 7, -1, "")]
    assert bounds(request)[1] in (None, 10)


def test_a_commit_goes_by_name_where_any_id_is_unknown():
    assert bounds(offset_commit("g", OFFSETS, ids={T0: OLD, T1: OLD})) == (7, 9)


def test_committed_offsets_are_asked_for_by_id_or_by_name():
    request = offset_fetch("g", OFFSETS, stable=True, ids={"t": OLD, "u": OTHER})
    assert [t.topic_id for t in as_sent(request, 10).groups[0].topics] == [OLD, OTHER]
    assert [(t.name, t.partition_indexes) for t in as_sent(request, 9).groups[0].topics] == [("t", [0, 1]), ("u", [0])]
    assert bounds(offset_fetch("g", OFFSETS, stable=True, ids={"t": OLD})) == (8, 9)


# -- which topic -------------------------------------------------------------------------------------------------------


def without(metadata, topic):
    """Have the broker say that there is no such topic."""
    absent = MetadataResponse.MetadataResponseTopic(
        name=topic, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions=[]
    )
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1, rack=None)
    metadata.update(
        MetadataResponse(brokers=[broker], cluster_id="c", controller_id=1, topics=[absent]), requested=[topic]
    )
    return metadata


def test_the_topic_of_the_position_counts_and_else_the_one_that_is_known(cluster):
    known = cluster({"t": 2, "u": 1}, ids={"t": NEW, "u": OTHER})
    assert sort_out(OFFSETS, {T0: OLD, T1: NEW}, known) == ({T1: NEW, U0: OTHER}, {T0})
    assert sort_out([T0, U0], {T0: OLD}, cluster({})) == ({T0: OLD}, frozenset())


def test_a_position_in_a_topic_that_is_known_not_to_exist_is_gone(cluster):
    known = without(cluster({"t": 2}, ids={"t": OLD}), "t")
    assert sort_out([T0, T1], {T0: OLD}, known) == ({}, {T0})


def test_what_a_position_belongs_to_is_known_until_somebody_seeks():
    subscription = SubscriptionState()
    subscription.assign_by_hand([T0, T1])
    subscription.seek(T0, 5)
    subscription.check(lambda _: LeaderView(led=True, epoch=0, topic_id=OLD))
    assert subscription.topic_ids([T0, T1, U0]) == {T0: OLD}
    subscription.check(lambda _: LeaderView(led=True, epoch=0, topic_id=NEW))
    assert subscription.topic_ids([T0]) == {T0: OLD}
    assert subscription.committable() == {}
    subscription.seek(T0, 0)
    assert subscription.topic_ids([T0]) == {}


# -- answers -----------------------------------------------------------------------------------------------------------


class Known:
    """A coordinator that is always known."""

    node, last_error = 1, None

    def need(self):
        return self.node

    def lost(self, why):
        pass

    def moved(self, code):
        return False


@pytest.fixture
def committing(driver, cluster, make_state):
    class Committing:
        def __init__(self):
            self.metadata, self.stale = cluster({"t": 2, "u": 1}, ids={"t": OLD, "u": OTHER}), []
            self.manager = CommitManager(
                "g",
                coordinator=Known(),
                metadata=self.metadata,
                stale=self.stale.append,
                place=lambda: None,
                fenced=lambda code: True,
                make_state=make_state,
            )
            self.driver = driver(self.manager)

        def commit(self, call, *, retry=True, automatic=False, found_in=None):
            found_in = {T0: OLD, U0: OTHER} if found_in is None else found_in
            offsets = {p: OFFSETS[p] for p in (T0, U0)}
            self.manager.commit(Commit(call, offsets, retry, automatic, found_in))
            return self.driver.poll()

        def make_again(self, topics):
            self.metadata.update(cluster_answer(topics), requested=topics)

    def cluster_answer(topics):
        make = MetadataResponse.MetadataResponseTopic
        broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1, rack=None)
        made = [make(name=name, topic_id=NEW, error_code=0, partitions=[]) for name in topics]
        return MetadataResponse(brokers=[broker], cluster_id="c", controller_id=1, topics=made)

    return Committing()


def answer(t=0, u=0):
    make = OffsetCommitResponse.OffsetCommitResponseTopic
    part = make.OffsetCommitResponsePartition
    return OffsetCommitResponse(
        topics=[
            make(topic_id=topic_id, partitions=[part(partition_index=0, error_code=code)])
            for topic_id, code in ((OLD, t), (OTHER, u))
        ]
    )


def test_a_topic_that_is_gone_is_left_out_of_an_automatic_commit(committing, make_call):
    call = make_call()
    committing.commit(call, automatic=True)
    committing.driver.answer("OffsetCommit", answer(t=ErrorCode.UNKNOWN_TOPIC_ID))
    with pytest.raises(UnknownTopicException, match="t-0 at 5") as gone:
        call.result()
    assert not gone.value.retriable
    assert "u-0" not in str(gone.value)
    assert committing.driver.pass_time(10) == []


@pytest.mark.parametrize("there", [True, False])
def test_an_explicit_commit_is_repeated_only_while_the_topic_may_be_there(committing, make_call, there):
    """The coordinator may know of a new topic later than the broker that named it."""
    call = make_call()
    committing.commit(call)
    committing.driver.answer("OffsetCommit", answer(t=ErrorCode.UNKNOWN_TOPIC_ID))
    assert committing.stale == ["t"]
    assert not call.done
    if not there:
        committing.make_again(["t"])
    assert committing.driver.pass_time(0.1) == ["OffsetCommit"]
    request = committing.driver.answer("OffsetCommit", answer())
    assert [topic.name for topic in request.topics] == (["t", "u"] if there else ["u"])
    if there:
        assert call.result() is None
    else:
        with pytest.raises(UnknownTopicException, match="t-0 at 5.*seek"):
            call.result()


def test_a_commit_that_is_not_repeated_says_which_topics_are_gone(committing, make_call):
    call = make_call()
    committing.commit(call, retry=False)
    committing.driver.answer("OffsetCommit", answer(ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_ID))
    with pytest.raises(UnknownTopicException, match="t-0 at 5, u-0 at 7"):
        call.result()


def test_positions_that_are_known_to_be_of_another_topic_are_not_sent(committing, make_call):
    """A broker that knows names only would take them for offsets of the new topic."""
    committing.make_again(["t"])
    call = make_call()
    assert committing.commit(call) == ["OffsetCommit"]
    request = committing.driver.answer("OffsetCommit", answer())
    assert [topic.name for topic in request.topics] == ["u"]
    with pytest.raises(UnknownTopicException, match="t-0 at 5"):
        call.result()
    committing.make_again(["t", "u"])
    alone = make_call()
    assert committing.commit(alone) == []
    with pytest.raises(UnknownTopicException, match="t-0 at 5, u-0 at 7"):
        alone.result()


def test_offsets_of_no_position_follow_the_topic_of_that_name(committing, make_call):
    call = make_call()
    committing.commit(call, found_in={})
    committing.driver.answer("OffsetCommit", answer(t=ErrorCode.UNKNOWN_TOPIC_ID))
    committing.make_again(["t"])
    committing.driver.pass_time(0.1)
    request = committing.driver.answer("OffsetCommit", answer())
    assert [topic.topic_id for topic in request.topics] == [NEW, OTHER]
    assert call.result() is None


def test_what_passes_is_repeated_although_another_topic_is_gone(committing, make_call):
    call = make_call()
    committing.commit(call, automatic=True)
    committing.driver.answer("OffsetCommit", answer(ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert committing.driver.pass_time(0.1) == ["OffsetCommit"]
    committing.driver.answer("OffsetCommit", error=DisconnectException("gone"))
    assert not call.done


def fetched(topic_id, code=0):
    make = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = make.OffsetFetchResponseTopics
    part = topic.OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=-1 if code else 7, committed_leader_epoch=3, metadata="x", error_code=code
    )
    return OffsetFetchResponse(groups=[make(group_id="g", topics=[topic(topic_id=topic_id, partitions=[part])])])


def test_committed_offsets_come_from_the_topic_that_was_asked_about(committing, make_call):
    call = make_call()
    committing.manager.fetch(call, frozenset({T0}))
    committing.driver.poll()
    committing.driver.answer("OffsetFetch", fetched(OLD, ErrorCode.UNKNOWN_TOPIC_ID))
    assert committing.stale == ["t"]
    assert committing.driver.pass_time(0.1) == ["OffsetFetch"]
    # Made again while the question is under way: the answer may be about either.
    committing.make_again(["t"])
    committing.driver.answer("OffsetFetch", fetched(OLD))
    assert not call.done
    assert committing.driver.pass_time(0.2) == ["OffsetFetch"]
    request = committing.driver.answer("OffsetFetch", fetched(NEW))
    assert request.groups[0].topics[0].topic_id == NEW
    assert call.result() == {T0: OffsetAndMetadata(7, "x", 3)}

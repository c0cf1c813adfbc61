"""Fetch requests: sessions, replicas, and what answers lead to."""

from __future__ import annotations

import pytest

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import FetchResponse
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.consumer.fetch.fetching import FetchManager
from sparkrelay.errors import DisconnectException
from sparkrelay.types import TopicPartition

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))
CONFIG = ConsumerConfig.from_dict(
    {"bootstrap.servers": "a:1", "isolation.level": "read_committed", "metadata.max.age.ms": 60_000}
)


class Source:
    def __init__(self, wanted):
        self.wanted, self.parts, self.errors, self.full = dict(wanted), [], [], set()

    @property
    def changes(self):
        return object()

    def has_room(self, node):
        return node not in self.full

    def fetchable(self):
        return dict(self.wanted)

    def fetched(self, parts, now, node):
        self.parts += parts

    def fetch_failed(self, error, now):
        self.errors.append(error)


class Fetching:
    def __init__(self, driver, metadata, wanted, **more):
        self.metadata, self.source, self.stale = metadata, Source(wanted), []
        self.id = metadata.topic_id("t")
        self.manager = FetchManager(metadata, CONFIG, self.source, self.stale.append, **more)
        self.driver = driver(self.manager)


def answer(*parts, topic_id, error_code=0, session_id=0):
    """Answers as (partition, code, records, more fields)."""
    make = FetchResponse.FetchableTopicResponse
    return FetchResponse(
        error_code=error_code,
        session_id=session_id,
        responses=[
            make(
                topic="",
                topic_id=topic_id,
                partitions=[
                    make.PartitionData(
                        **{
                            "partition_index": p, "error_code": code, "high_watermark": 100, "last_stable_offset": 90,
                            "log_start_offset": 0, "aborted_transactions": None, "records": records, **more,
                        }
                    )
                    for p, code, records, more in parts
                ],
            )
        ],
    )  # fmt: skip


@pytest.fixture
def fetching(driver, cluster):
    return Fetching(driver, cluster({"t": 3}, brokers=(1, 2), leaders={("t", 2): 2}), {T0: 5, T1: 6, T2: 7})


def test_each_leader_gets_one_request_and_no_partition_two(fetching):
    assert fetching.driver.poll() == ["Fetch", "Fetch"]
    assert fetching.driver.pass_time(10) == []
    first = fetching.driver.waiting[0].request
    assert [(p.partition, p.fetch_offset) for p in first.topics[0].partitions] == [(0, 5), (1, 6)]
    assert first.topics[0].topic_id == fetching.id
    # The leader of T0 moves while it is being fetched: it is not asked for a second time.
    fetching.metadata.set_leader(T0, 2, 5)
    fetching.driver.waiting[1].handle(answer((2, 0, b"", {}), topic_id=fetching.id), None, 0.0)
    assert fetching.driver.poll() == ["Fetch"]
    assert [p.partition for p in fetching.driver.waiting[-1].request.topics[0].partitions] == [2]


def test_answers_are_handed_on_as_they_came(fetching):
    fetching.driver.poll()
    fetching.driver.answer(
        "Fetch",
        answer(
            (0, 0, memoryview(b"bytes"), {}),
            (1, ErrorCode.OFFSET_OUT_OF_RANGE, None, {}),
            topic_id=fetching.id,
        ),
    )
    one, two = fetching.source.parts
    assert (one.partition, one.offset, bytes(one.records), one.first) == (T0, 5, b"bytes", True)
    assert (one.high_watermark, one.last_stable_offset, one.log_start_offset) == (100, 90, 0)
    assert (two.partition, two.error_code, two.first) == (T1, ErrorCode.OFFSET_OUT_OF_RANGE, False)


def test_an_empty_answer_rearms_at_once(fetching):
    fetching.driver.poll()
    fetching.driver.answer("Fetch", answer((0, 0, b"", {}), (1, 0, b"", {}), topic_id=fetching.id))
    assert fetching.driver.poll() == ["Fetch"]


def test_a_partition_that_moved_is_asked_for_after_a_pause_or_at_once_where_the_answer_says(fetching):
    fetching.driver.poll()
    leader = FetchResponse.FetchableTopicResponse.PartitionData.LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    fetching.driver.answer(
        "Fetch",
        answer((0, moved, None, {}), (1, moved, None, {"current_leader": leader}), topic_id=fetching.id),
    )
    assert fetching.source.parts == []
    assert fetching.stale == ["t"]
    assert fetching.metadata.leader(T1) == 2
    assert fetching.driver.poll() == []  # broker 2 is still busy, T0 pauses
    assert fetching.driver.pass_time(0.1) == ["Fetch"]


def test_a_lost_connection_is_tried_again_with_new_metadata(fetching):
    fetching.driver.poll()
    fetching.driver.answer("Fetch", error=DisconnectException("gone"))
    assert fetching.stale == ["t"]
    assert fetching.driver.poll() == []
    assert fetching.driver.pass_time(0.15) == ["Fetch"]


def test_a_partition_without_leader_asks_for_metadata_until_there_is_one(driver, cluster):
    """A broker that is starting answers with nothing, which changes nothing that could be noticed."""

    class Still(Source):
        changes = 0

    metadata, stale = cluster({}), []
    polling = driver(FetchManager(metadata, CONFIG, Still({T0: 0}), stale.append))
    polling.poll()
    assert stale == ["t"]
    assert polling.waits["FetchManager"] <= 0.1
    polling.pass_time(0.1)
    assert stale == ["t", "t"]


def test_a_partition_without_leader_asks_for_metadata(driver, cluster):
    fetching = Fetching(driver, cluster({}), {T0: 0})
    assert fetching.driver.poll() == []
    assert fetching.stale == ["t"]


# -- sessions (KIP-227) ------------------------------------------------------------------------------------------------


@pytest.fixture
def in_session(driver, cluster):
    fetching = Fetching(driver, cluster({"t": 3}), {T0: 5, T1: 6, T2: 7}, sessions=True)
    fetching.driver.poll()
    fetching.driver.answer("Fetch", answer(topic_id=fetching.id, session_id=9))
    return fetching


def asked(request):
    return [(p.partition, p.fetch_offset) for topic in request.topics for p in topic.partitions]


def forgotten(request):
    return [p for topic in request.forgotten_topics_data for p in topic.partitions]


def next_request(fetching, message, now=0.0):
    """Poll, answer, and return the request."""
    assert fetching.driver.pass_time(now) == ["Fetch"]
    return fetching.driver.answer("Fetch", message)


def test_an_idle_request_names_nothing(in_session):
    for epoch in (1, 2):
        request = next_request(in_session, answer(topic_id=in_session.id, session_id=9))
        assert (request.session_id, request.session_epoch) == (9, epoch)
        assert (asked(request), forgotten(request)) == ([], [])
        assert len(request.encode(version=17)) == 25


def test_answers_in_a_session_belong_to_what_the_session_reads(in_session):
    """The request names only T0; the answer brings T1, which was asked for in the first."""
    in_session.source.wanted[T0] = 8
    request = next_request(
        in_session,
        answer((1, 0, memoryview(b"bytes"), {}), topic_id=in_session.id, session_id=9),
    )
    assert asked(request) == [(0, 8)]
    (part,) = in_session.source.parts
    assert (part.partition, part.offset, part.first) == (T1, 6, False)


def test_partitions_that_are_no_longer_wanted_are_forgotten(in_session):
    del in_session.source.wanted[T1]
    request = next_request(in_session, answer(topic_id=in_session.id, session_id=9))
    assert (asked(request), forgotten(request)) == ([], [1])
    assert request.forgotten_topics_data[0].topic_id == in_session.id


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 9),
    ],
)
def test_session_errors_lead_to_a_full_request_after_a_pause(in_session, code, session_id):
    next_request(in_session, answer(topic_id=in_session.id, error_code=code))
    assert in_session.source.parts == []
    assert in_session.driver.poll() == []
    request = next_request(in_session, answer(topic_id=in_session.id, session_id=10), now=0.2)
    assert (request.session_id, request.session_epoch, len(asked(request))) == (session_id, 0, 3)


def test_a_lost_connection_begins_a_new_session(in_session):
    in_session.driver.poll()
    in_session.driver.answer("Fetch", error=DisconnectException("gone"))
    request = next_request(in_session, answer(topic_id=in_session.id, session_id=10), now=0.2)
    assert (request.session_id, request.session_epoch, len(asked(request))) == (9, 0, 3)


def test_a_topic_without_id_is_asked_for_by_name(driver, cluster, metadata_message):
    metadata = cluster({"t": 1})
    metadata.update(metadata_message({"t": 1}, ids={"t": None}), requested={"t"})
    fetching = Fetching(driver, metadata, {T0: 5}, sessions=True)
    fetching.driver.poll()
    assert fetching.driver.find("Fetch").request._max_version == 12


def test_closing_sessions_ends_it_on_the_other_connection(in_session):
    in_session.driver.poll()  # one is being held back
    (unsent,) = in_session.manager.close_sessions()
    assert (unsent.node, unsent.lane) == (1, "")
    assert (unsent.request.session_id, unsent.request.session_epoch, asked(unsent.request)) == (9, -1, [])
    assert in_session.driver.waiting[0].lane != ""
    unsent.handle(None, DisconnectException("closed"), 0.0)


def test_a_broker_without_room_in_the_buffer_is_not_asked(in_session):
    in_session.source.full.add(1)
    assert in_session.driver.pass_time(10) == []
    in_session.source.full.clear()
    request = next_request(in_session, answer(topic_id=in_session.id, session_id=9))
    assert (request.session_epoch, asked(request), forgotten(request)) == (1, [], [])


def test_as_long_as_nothing_changes_the_source_is_not_asked(driver, cluster):
    class Still(Source):
        changes, looked = 0, 0

        def fetchable(self):
            self.looked += 1
            return super().fetchable()

    metadata, stale = cluster({"t": 3}), []
    source = Still({T0: 5})
    polling = driver(FetchManager(metadata, CONFIG, source, stale.append, sessions=True))
    assert polling.poll() == ["Fetch"]
    for _ in range(10):
        polling.pass_time(0.1)
    assert source.looked == 1
    polling.answer("Fetch", answer(topic_id=metadata.topic_id("t"), session_id=3))
    assert polling.poll() == ["Fetch"]
    assert source.looked == 2
    source.changes, source.wanted = 1, {T0: 5, T1: 0}
    polling.poll()
    assert source.looked == 3
    metadata.set_leader(T0, 1, 5)
    polling.poll()
    assert source.looked == 4


# -- other replicas (KIP-392) ------------------------------------------------------------------------------------------


@pytest.fixture
def near(driver, cluster):
    """T0 and T1, both led by broker 1, which says that broker 2 is nearer for T0."""
    metadata = cluster({"t": 3}, brokers=(1, 2))
    fetching = Fetching(driver, metadata, {T0: 5, T1: 6}, sessions=True, rack="b")
    fetching.driver.poll()
    request = fetching.driver.answer(
        "Fetch",
        answer((0, 0, None, {"preferred_read_replica": 2}), (1, 0, None, {}), topic_id=fetching.id, session_id=9),
    )
    assert request.rack_id == "b"
    return fetching


def nodes(fetching):
    return {unsent.node: asked(unsent.request) for unsent in fetching.driver.waiting}


def test_a_nearer_replica_is_read_from_then_on(near):
    near.driver.poll()
    assert nodes(near) == {1: [], 2: [(0, 5)]}
    assert [forgotten(unsent.request) for unsent in near.driver.waiting if unsent.node == 1] == [[0]]
    unsent = next(unsent for unsent in near.driver.waiting if unsent.node == 2)
    near.driver.waiting.remove(unsent)
    unsent.handle(answer((0, 0, memoryview(b"x"), {}), topic_id=near.id, session_id=4), None, 0.0)
    assert [bytes(part.records) for part in near.source.parts if part.records] == [b"x"]
    near.source.wanted[T0] = 6
    near.driver.poll()
    assert nodes(near) == {1: [], 2: [(0, 6)]}


def answer_follower(near, message=None, error=None):
    near.driver.poll()
    unsent = next(unsent for unsent in near.driver.waiting if unsent.node == 2)
    near.driver.waiting.remove(unsent)
    unsent.handle(message, error, near.driver.now)
    unsent = near.driver.find("Fetch")
    near.driver.waiting.remove(unsent)
    unsent.handle(answer(topic_id=near.id, session_id=9), None, near.driver.now)


def test_out_of_range_at_a_follower_is_asked_of_the_leader_first(near):
    near.source.parts.clear()
    out = ErrorCode.OFFSET_OUT_OF_RANGE
    answer_follower(near, answer((0, out, None, {}), topic_id=near.id, session_id=4))
    assert near.source.parts == []
    near.driver.poll()
    assert nodes(near) == {1: [(0, 5)]}
    near.driver.answer("Fetch", answer((0, out, None, {}), topic_id=near.id, session_id=9))
    assert [part.error_code for part in near.source.parts] == [out]


def test_an_error_of_a_follower_leads_back_to_the_leader(near):
    answer_follower(near, error=DisconnectException("gone"))
    near.driver.poll()
    assert nodes(near) == {1: [(0, 5)]}


def test_a_partition_that_a_request_does_not_name_is_under_way_with_it_all_the_same(near):
    """The leader's session still has T0 from before the follower was tried, so nothing needs to be said of it."""
    del near.source.wanted[T1]
    near.driver.poll()
    near.driver.answer("Fetch", error=DisconnectException("gone"))
    near.driver.poll()
    assert nodes(near) == {1: []}
    near.metadata.set_leader(T0, 2, 7)
    near.driver.pass_time(1)  # a pause after the failure
    assert nodes(near) == {1: []}


def test_a_new_leader_decides_anew(near):
    near.metadata.set_leader(T0, 1, 7)
    near.driver.poll()
    assert nodes(near) == {1: [(0, 5)]}


def test_the_advice_is_good_for_a_while_and_for_brokers_that_are_there(near, metadata_message):
    near.driver.pass_time(59)
    assert 2 in nodes(near)
    answer_follower(near, answer(topic_id=near.id, session_id=4))
    near.driver.pass_time(2)
    assert nodes(near) == {1: [(0, 5)]}


def test_a_follower_that_left_the_cluster_is_not_asked(near, metadata_message):
    near.metadata.update(metadata_message({"t": 3}, brokers=(1,)), requested={"t"})
    near.driver.poll()
    assert nodes(near) == {1: []}  # the session still has T0, nothing was said of it since


# -- what is forgotten -------------------------------------------------------------------------------------------------


def remembered(manager):
    """Partitions of which the manager knows anything."""
    return {
        p for held in vars(manager).values() if isinstance(held, dict) for p in held if isinstance(p, TopicPartition)
    }


def answer_node(fetching, node, message=None, error=None):
    unsent = next(unsent for unsent in fetching.driver.waiting if unsent.node == node)
    fetching.driver.waiting.remove(unsent)
    unsent.handle(message, error, fetching.driver.now)


def test_what_was_learned_of_partitions_is_forgotten_with_them(near):
    """A consumer of topics that come and go would gather them for life."""
    near.manager.grow(T0)
    near.manager.grow(T1)
    near.source.wanted[T2] = 0
    near.driver.poll()
    moved = answer((2, ErrorCode.NOT_LEADER_OR_FOLLOWER, None, {}), topic_id=near.id, session_id=9)
    answer_node(near, 1, moved)
    answer_node(near, 2, answer(topic_id=near.id, session_id=4))
    assert remembered(near.manager) == {T0, T1, T2}
    near.manager.keep(frozenset({T1}))
    assert remembered(near.manager) == {T1}
    assert near.manager._max_partition_bytes == {T1: 2 * 1_048_576}
    del near.source.wanted[T0], near.source.wanted[T2]
    near.driver.poll()
    assert near.driver.find("Fetch").request.topics == []  # T1 goes on as it was


def test_a_partition_that_comes_back_while_it_is_under_way_is_not_asked_for_twice(near):
    near.driver.poll()
    assert nodes(near) == {1: [], 2: [(0, 5)]}
    near.manager.keep(frozenset())
    near.metadata.set_leader(T0, 1, 7)  # no follower is read any more
    answer_node(near, 1, answer(topic_id=near.id, session_id=9))
    near.driver.poll()
    assert nodes(near) == {1: [], 2: [(0, 5)]}


def test_brokers_that_left_the_cluster_are_forgotten(near, metadata_message):
    near.driver.poll()
    near.metadata.update(metadata_message({"t": 3}, brokers=(1,)), requested={"t"})
    near.manager.keep(frozenset({T0, T1}))
    assert {unsent.node for unsent in near.manager.close_sessions()} == {1}
    assert 2 in near.manager._nodes  # its answer, or the end of its connection, is still to come
    answer_node(near, 2, error=DisconnectException("gone"))
    near.manager.keep(frozenset({T1}))
    assert set(near.manager._nodes) == {1}

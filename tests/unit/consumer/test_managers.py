"""Coordinator, commits, heartbeats, offsets, positions and metadata: every answer a broker may give."""

from __future__ import annotations

import pytest

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import (
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ListOffsetsResponse,
    OffsetCommitResponse,
    OffsetFetchResponse,
)
from sparkrelay.consumer.assignor import GroupMetadata
from sparkrelay.consumer.commits import CommitManager
from sparkrelay.consumer.coordinator import CoordinatorManager
from sparkrelay.consumer.events import Commit
from sparkrelay.consumer.heartbeats import HeartbeatManager
from sparkrelay.consumer.offsets import LATEST, OffsetsManager
from sparkrelay.consumer.positions import PositionsManager
from sparkrelay.consumer.subscription import SubscriptionState
from sparkrelay.consumer.topic_metadata import TopicMetadataManager
from sparkrelay.errors import (
    AuthenticationException,
    AuthorizationException,
    CommitFailedException,
    DisconnectException,
    OffsetOutOfRangeException,
    UnknownTopicException,
)
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Located:
    """A coordinator that is known until it is lost."""

    def __init__(self, node=1):
        self.node, self.last_error, self.losses = node, None, []

    def need(self):
        return self.node

    def lost(self, why):
        self.losses.append(why)

    def moved(self, code):
        if code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            self.lost(code)
            return True
        return False

    def silent(self, node, why):
        self.lost(why)


class Asker:
    def __init__(self):
        self.refreshed = 0

    def refresh(self):
        self.refreshed += 1


# -- coordinator -------------------------------------------------------------------------------------------------------


@pytest.fixture
def finding(driver, cluster, make_state):
    failures, asker = [], Asker()
    manager = CoordinatorManager(
        "g", metadata=cluster({}, brokers=(1, 2)), topics=asker, fail=failures.append, state=make_state()
    )
    manager.failures, manager.asker, manager.driver = failures, asker, driver(manager)
    return manager


def found(node=2, code=0):
    make = FindCoordinatorResponse.Coordinator
    return FindCoordinatorResponse(
        coordinators=[make(key="g", node_id=node, host="h", port=1, error_code=code, error_message=None)]
    )


def test_nobody_looks_for_a_coordinator_that_nobody_needs(finding):
    assert finding.driver.pass_time(100) == []
    assert finding.need() is None
    assert finding.driver.poll() == ["FindCoordinator"]
    assert finding.driver.pass_time(100) == []  # one at a time
    finding.driver.answer("FindCoordinator", found())
    assert finding.need() == 2
    assert finding.driver.pass_time(100) == []


def test_a_coordinator_that_is_not_ready_is_looked_for_again_after_a_pause(finding):
    finding.need()
    finding.driver.poll()
    finding.driver.answer("FindCoordinator", found(code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert finding.driver.poll() == []
    assert finding.driver.pass_time(0.1) == ["FindCoordinator"]
    finding.driver.answer("FindCoordinator", error=DisconnectException("gone"))
    assert finding.driver.pass_time(0.1) == []
    assert finding.driver.pass_time(0.1) == ["FindCoordinator"]


def test_a_refusal_is_told_once_and_not_repeated(finding):
    finding.need()
    finding.driver.poll()
    finding.driver.answer("FindCoordinator", found(code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert len(finding.failures) == 1
    assert finding.driver.pass_time(100) == []


def test_a_coordinator_that_metadata_does_not_know_is_asked_for_again_with_metadata(finding):
    finding.need()
    finding.driver.poll()
    finding.driver.answer("FindCoordinator", found(node=9))
    assert finding.node is None
    assert finding.asker.refreshed == 1


def test_a_lost_coordinator_is_looked_for_when_needed(finding):
    finding.need()
    finding.driver.poll()
    finding.driver.answer("FindCoordinator", found())
    finding.lost("a test")
    assert finding.driver.poll() == []
    finding.need()
    assert finding.driver.poll() == ["FindCoordinator"]


@pytest.mark.parametrize(
    ("code", "moved"),
    [
        (0, False),
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, False),
    ],
)
def test_a_coordinator_that_says_that_it_is_not_one_is_lost(finding, code, moved):
    finding.need()
    finding.driver.poll()
    finding.driver.answer("FindCoordinator", found())
    assert finding.moved(code) is moved
    assert finding.node == (None if moved else 2)


# -- heartbeats --------------------------------------------------------------------------------------------------------


class Placed:
    """A membership as heartbeats see it."""

    def __init__(self):
        self.beats, self.hurried, self.life, self.heartbeat_interval = True, False, 5, 3.0
        self.awaits_another = False
        self.codes, self.errors = [], []

    def heartbeat(self):
        return HeartbeatRequest(group_id="g", generation_id=self.life, member_id="m")

    def heartbeat_answered(self, message):
        self.codes.append(message.error_code)

    def heartbeat_failed(self, error):
        self.errors.append(error)


@pytest.fixture
def beating(driver, make_state):
    place, coordinator = Placed(), Located()
    manager = HeartbeatManager(place, coordinator, session_timeout=10.0, state=make_state())
    manager.place, manager.coordinator_, manager.driver = place, coordinator, driver(manager)
    manager.driver.poll()
    return manager


def test_heartbeats_come_each_interval_one_at_a_time(beating):
    assert beating.driver.pass_time(2.9) == []
    assert beating.driver.pass_time(0.1) == ["Heartbeat"]
    assert beating.driver.pass_time(3.0) == []
    request = beating.driver.answer("Heartbeat", HeartbeatResponse(error_code=0))
    assert (request.generation_id, request.member_id) == (5, "m")
    assert beating.driver.poll() == ["Heartbeat"]


def test_heartbeats_are_quick_once_a_rebalance_is_over_that_another_may_follow(beating):
    beating.place.life = 6
    beating.driver.poll()
    assert beating.driver.pass_time(2.0) == [], "the leader assigns, say"
    beating.place.awaits_another = True
    beating.driver.poll()
    for _ in range(30):
        assert beating.driver.pass_time(0.101) == ["Heartbeat"]
        beating.driver.answer("Heartbeat", HeartbeatResponse(error_code=0))
    assert beating.driver.pass_time(2.9) == []
    assert beating.driver.pass_time(0.11) == ["Heartbeat"]


def test_heartbeats_that_are_quicker_anyway_stay_so(beating):
    beating.place.awaits_another, beating.place.life, beating.place.heartbeat_interval = True, 6, 0.05
    beating.driver.poll()
    assert beating.driver.pass_time(0.051) == ["Heartbeat"]


def test_no_heartbeats_outside_of_a_generation(beating):
    beating.place.beats = False
    assert beating.driver.pass_time(100) == []


@pytest.mark.parametrize(
    "code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
)
def test_refusals_reach_the_membership(beating, code):
    beating.driver.pass_time(3)
    beating.driver.answer("Heartbeat", HeartbeatResponse(error_code=code))
    assert beating.place.codes == [code]


def test_an_answer_to_a_heartbeat_of_an_older_generation_says_nothing(beating):
    beating.driver.pass_time(3)
    beating.place.life = 6
    beating.driver.answer("Heartbeat", HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert beating.place.codes == []


def test_a_moved_coordinator_is_lost_and_the_heartbeat_repeated_soon(beating):
    beating.driver.pass_time(3)
    beating.driver.answer("Heartbeat", HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
    assert len(beating.coordinator_.losses) == 1
    assert beating.driver.pass_time(0.1) == ["Heartbeat"]


def test_silence_for_a_session_loses_the_coordinator(beating):
    beating.driver.pass_time(3)
    beating.driver.pass_time(10)
    assert "a heartbeat was not answered for 10 s" in str(beating.coordinator_.losses[0])


def test_a_coordinator_that_was_away_for_a_session_is_not_lost_again_when_it_is_found(beating):
    beating.coordinator_.node = None
    beating.driver.pass_time(60)
    beating.coordinator_.node = 2
    assert beating.driver.pass_time(1) == ["Heartbeat"]
    beating.driver.pass_time(1)
    assert beating.coordinator_.losses == []


def test_silence_for_a_session_drops_the_connections_on_which_an_answer_is_awaited(finding, make_state):
    """A broker that hangs keeps its connections open: what waits there must not wait for request.timeout.ms."""
    heartbeats = HeartbeatManager(Placed(), finding, session_timeout=10.0, state=make_state())
    driver = finding.driver.__class__(heartbeats, finding)
    driver.poll()
    driver.answer("FindCoordinator", found())
    driver.poll()
    assert driver.pass_time(3) == ["Heartbeat"]
    assert driver.pass_time(9.9) == []
    assert driver.dropped == []
    assert driver.waits["HeartbeatManager"] == pytest.approx(0.1)
    driver.pass_time(0.1)
    assert driver.dropped == [(2, "group"), (2, "join")]
    driver.answer("Heartbeat", error=DisconnectException("the broker did not answer in time"))
    driver.poll()
    driver.answer("FindCoordinator", found(1))
    assert driver.pass_time(0.1) == ["Heartbeat"]
    assert driver.find("Heartbeat").node == 1
    assert driver.dropped == [(2, "group"), (2, "join")]


def test_a_coordinator_that_moved_keeps_its_connections(finding):
    finding.need()
    finding.driver.poll()
    finding.driver.answer("FindCoordinator", found())
    finding.lost("a test")
    finding.driver.poll()
    assert finding.driver.dropped == []


# -- commits -----------------------------------------------------------------------------------------------------------


class Committing:
    def __init__(self, driver, cluster, make_state):
        self.place, self.fenced, self.coordinator = GroupMetadata("g", 5, "m"), [], Located()
        self.metadata, self.stale = cluster({"t": 2}), []
        self.manager = CommitManager(
            "g",
            coordinator=self.coordinator,
            metadata=self.metadata,
            stale=self.stale.append,
            place=lambda: self.place,
            fenced=self.fenced.append,
            make_state=make_state,
        )
        self.driver = driver(self.manager)

    def commit(self, call, offset=1, *, retry=True, automatic=False):
        self.manager.commit(Commit(call, {T0: (offset, -1, "")}, retry, automatic))


@pytest.fixture
def committing(driver, cluster, make_state):
    return Committing(driver, cluster, make_state)


def committed(code=0):
    make = OffsetCommitResponse.OffsetCommitResponseTopic
    part = make.OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[make(name="t", partitions=[part])])


def test_commits_go_one_after_another_with_the_place_in_the_group(committing, make_call):
    first, second = make_call(), make_call()
    committing.commit(first, 1)
    committing.commit(second, 2)
    assert committing.driver.poll() == ["OffsetCommit"]
    request = committing.driver.answer("OffsetCommit", committed())
    assert (request.generation_id_or_member_epoch, request.member_id) == (5, "m")
    assert request.topics[0].partitions[0].committed_offset == 1
    assert first.done
    assert not second.done
    assert committing.driver.poll() == ["OffsetCommit"]


def test_a_commit_of_an_older_epoch_is_repeated_with_the_new_one(committing, make_call):
    """KIP-848: the answer to the heartbeat that brings the epoch is on its way."""
    call = make_call()
    committing.commit(call)
    committing.driver.poll()
    committing.driver.answer("OffsetCommit", committed(ErrorCode.STALE_MEMBER_EPOCH))
    assert not call.done
    assert committing.fenced == []
    committing.place = GroupMetadata("g", 6, "m")
    assert committing.driver.pass_time(0.1) == ["OffsetCommit"]
    assert committing.driver.answer("OffsetCommit", committed()).generation_id_or_member_epoch == 6
    assert call.result() is None


def test_a_commit_of_an_older_epoch_fails_once_the_member_is_expelled(committing, make_call):
    call = make_call()
    committing.commit(call)
    committing.driver.poll()
    committing.driver.answer("OffsetCommit", committed(ErrorCode.STALE_MEMBER_EPOCH))
    committing.place = GroupMetadata("g", -1, "m")
    assert committing.driver.pass_time(0.1) == []
    with pytest.raises(CommitFailedException, match="not in group 'g' at present"):
        call.result()


def test_a_commit_that_is_not_to_be_repeated_fails_with_an_older_epoch(committing, make_call):
    call = make_call()
    committing.commit(call, retry=False)
    committing.driver.poll()
    committing.driver.answer("OffsetCommit", committed(ErrorCode.STALE_MEMBER_EPOCH))
    with pytest.raises(CommitFailedException, match="STALE_MEMBER_EPOCH"):
        call.result()


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_asks_for_committed_offsets_under_its_epoch(committing, make_call, make_state, code):
    manager = CommitManager(
        "g",
        coordinator=committing.coordinator,
        metadata=committing.metadata,
        stale=committing.stale.append,
        place=lambda: committing.place,
        fenced=committing.fenced.append,
        member_reads=True,
        make_state=make_state,
    )
    committing.driver.managers = (manager,)
    call = make_call()
    manager.fetch(call, frozenset([T0]))
    committing.driver.poll()
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    refused = OffsetFetchResponse(groups=[group(group_id="g", topics=[], error_code=code)])
    asked = committing.driver.answer("OffsetFetch", refused).groups[0]
    assert (asked.member_id, asked.member_epoch) == ("m", 5)
    committing.place = GroupMetadata("g", -1, "m")
    assert committing.driver.pass_time(0.1) == ["OffsetFetch"]
    answer = OffsetFetchResponse(groups=[group(group_id="g", topics=[], error_code=0)])
    asked = committing.driver.answer("OffsetFetch", answer).groups[0]
    assert (asked.member_id, asked.member_epoch) == (None, -1)
    assert call.result() == {}


def test_a_commit_outside_of_the_group_is_plain(committing, make_call):
    committing.place = None
    committing.commit(make_call())
    committing.driver.poll()
    request = committing.driver.answer("OffsetCommit", committed())
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_a_commit_is_repeated_until_its_deadline_with_the_newest_generation(committing, make_call, code):
    call = make_call()
    committing.commit(call)
    committing.driver.poll()
    committing.driver.answer("OffsetCommit", committed(code))
    committing.place = GroupMetadata("g", 6, "m")
    assert committing.driver.pass_time(0.1) == ["OffsetCommit"]
    assert committing.driver.answer("OffsetCommit", committed()).generation_id_or_member_epoch == 6
    assert call.result() is None


def test_what_a_member_committed_is_not_sent_once_it_has_left(committing, make_call):
    """A plain commit would be taken by a group without members, whoever has read on since."""
    call, plain = make_call(), make_call()
    committing.commit(call)
    committing.place = None
    committing.commit(plain)
    assert committing.driver.poll() == ["OffsetCommit"]
    with pytest.raises(CommitFailedException, match="has left group 'g'"):
        call.result()
    assert not plain.done


def test_an_automatic_commit_does_not_wait_for_a_topic_that_is_gone(committing, make_call):
    """The group would wait with it: it is made before partitions are given up."""
    call = make_call()
    committing.commit(call, automatic=True)
    committing.driver.poll()
    committing.driver.answer("OffsetCommit", committed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(UnknownTopicException, match="t-0"):
        call.result()


def test_an_automatic_commit_is_repeated_for_the_topics_that_are_there(committing, make_call):
    call = make_call()
    committing.commit(call, automatic=True)
    committing.driver.poll()
    gone, there = committed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    committing.driver.answer("OffsetCommit", OffsetCommitResponse(topics=gone.topics + there.topics))
    assert not call.done
    assert committing.driver.pass_time(0.1) == ["OffsetCommit"]


def test_an_asynchronous_commit_is_not_repeated(committing, make_call):
    call = make_call()
    committing.commit(call, retry=False)
    committing.driver.poll()
    committing.driver.answer("OffsetCommit", error=DisconnectException("gone"))
    with pytest.raises(DisconnectException):
        call.result()
    assert committing.driver.pass_time(10) == []


def committing_now(committing):
    """Return the offsets of the commits under way, in their order, and see that none can overtake another."""
    sent = [unsent for unsent in committing.driver.waiting if type(unsent.request).__name__ == "OffsetCommitRequest"]
    assert len({(unsent.node, unsent.lane) for unsent in sent}) <= 1
    return [unsent.request.topics[0].partitions[0].committed_offset for unsent in sent]


def test_asynchronous_commits_do_not_wait_for_each_other(committing, make_call):
    """A thousand in a row would take a thousand times the way to the broker and back."""
    calls = [make_call() for _ in range(100)]
    for offset, call in enumerate(calls):
        committing.commit(call, offset, retry=False)
    committing.driver.poll()
    under_way = committing_now(committing)
    assert under_way == list(range(len(under_way)))
    assert 5 <= len(under_way) <= 20  # heartbeats stand behind them
    for offset in range(100):
        assert committing_now(committing)[0] == offset
        committing.driver.answer("OffsetCommit", committed())
        assert calls[offset].done
        committing.driver.poll()
    assert committing_now(committing) == []


def test_nothing_goes_out_behind_a_commit_that_may_be_repeated(committing, make_call):
    """Its repetition would overwrite what is newer."""
    calls = [make_call() for _ in range(4)]
    for offset, call in enumerate(calls):
        committing.commit(call, offset, retry=offset == 1)
    committing.driver.poll()
    assert committing_now(committing) == [0, 1]
    committing.driver.answer("OffsetCommit", committed())
    assert committing.driver.poll() == []
    committing.driver.answer("OffsetCommit", committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert committing.driver.poll() == []
    assert committing.driver.pass_time(0.1) == ["OffsetCommit"]
    assert committing_now(committing) == [1]
    committing.driver.answer("OffsetCommit", committed())
    committing.driver.poll()
    assert committing_now(committing) == [2, 3]


def test_a_lost_connection_fails_the_asynchronous_commits_on_it_and_no_other(committing, make_call):
    calls = [make_call() for _ in range(30)]
    for offset, call in enumerate(calls):
        committing.commit(call, offset, retry=False)
    committing.driver.poll()
    lost = len(committing_now(committing))
    for _ in range(lost):
        committing.driver.answer("OffsetCommit", error=DisconnectException("gone"))
    assert [call.done for call in calls] == [True] * lost + [False] * (30 - lost)
    committing.driver.poll()
    assert committing_now(committing)[0] == lost


def test_a_refusal_spares_the_commits_that_are_under_way(committing, make_call):
    calls = [make_call() for _ in range(30)]
    for offset, call in enumerate(calls):
        committing.commit(call, offset, retry=False)
    committing.driver.poll()
    under_way = len(committing_now(committing))
    assert committing.manager.refused(AuthorizationException("no"))
    assert [call.done for call in calls] == [False] * under_way + [True] * (30 - under_way)
    for _ in range(under_way):
        committing.driver.answer("OffsetCommit", committed())
    assert committing.driver.poll() == []
    assert [call.error is None for call in calls] == [True] * under_way + [False] * (30 - under_way)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_an_expelled_members_commit_fails_and_the_membership_hears_of_it(committing, make_call, code):
    call = make_call()
    committing.commit(call)
    committing.driver.poll()
    committing.driver.answer("OffsetCommit", committed(code))
    with pytest.raises(CommitFailedException, match=r"max\.poll\.interval\.ms"):
        call.result()
    assert committing.fenced == [code]


def test_a_commit_to_a_group_that_is_gone_ends_the_membership(committing, make_call):
    """OffsetCommit of version 9 says so with a code of its own; the group's members are forgotten with it."""
    call = make_call()
    committing.commit(call)
    committing.driver.poll()
    committing.driver.answer("OffsetCommit", committed(ErrorCode.GROUP_ID_NOT_FOUND))
    with pytest.raises(CommitFailedException, match="GROUP_ID_NOT_FOUND"):
        call.result()
    assert committing.fenced == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_late_refusal_does_not_fence_the_next_generation(committing, make_call):
    committing.commit(make_call())
    committing.driver.poll()
    committing.place = GroupMetadata("g", 6, "m")
    committing.driver.answer("OffsetCommit", committed(ErrorCode.ILLEGAL_GENERATION))
    assert committing.fenced == []


def test_no_commit_without_a_generation(committing, make_call):
    committing.place = GroupMetadata("g")
    call = make_call()
    committing.commit(call)
    assert committing.driver.poll() == []
    with pytest.raises(CommitFailedException, match="not in group 'g'"):
        call.result()


def test_an_expired_commit_is_not_sent(committing, make_call):
    committing.coordinator.node = None
    call = make_call(deadline=1.0)
    committing.commit(call)
    assert committing.driver.poll() == []
    call.expire(2.0)
    committing.coordinator.node = 1
    assert committing.driver.pass_time(2.0) == []


def fetched(offset=7, code=0, group_code=0):
    make = OffsetFetchResponse.OffsetFetchResponseGroup
    topic = make.OffsetFetchResponseTopics
    part = topic.OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=offset, committed_leader_epoch=3, metadata="x", error_code=code
    )
    return OffsetFetchResponse(
        groups=[make(group_id="g", topics=[topic(name="t", partitions=[part])], error_code=group_code)]
    )


def test_committed_offsets_wait_for_open_transactions(committing, make_call):
    call = make_call()
    committing.manager.fetch(call, frozenset({T0}))
    assert committing.driver.poll() == ["OffsetFetch"]
    assert committing.driver.answer("OffsetFetch", fetched(code=ErrorCode.UNSTABLE_OFFSET_COMMIT)).require_stable
    assert committing.driver.pass_time(0.1) == ["OffsetFetch"]
    committing.driver.answer("OffsetFetch", fetched())
    assert call.result() == {T0: (7, 3, "x")}


def test_no_committed_offset_is_left_out_and_a_refusal_raised(committing, make_call):
    none, refused = make_call(), make_call()
    committing.manager.fetch(none, frozenset({T0}))
    committing.driver.poll()
    committing.driver.answer("OffsetFetch", fetched(offset=-1))
    assert none.result() == {}
    committing.manager.fetch(refused, frozenset({T0}))
    committing.driver.poll()
    committing.driver.answer("OffsetFetch", fetched(group_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(Exception, match="GROUP_AUTHORIZATION_FAILED"):
        refused.result()


# -- offsets and positions ---------------------------------------------------------------------------------------------


def listed(*answers):
    make = ListOffsetsResponse.ListOffsetsTopicResponse
    part = make.ListOffsetsPartitionResponse
    return ListOffsetsResponse(
        topics=[
            make(
                name="t",
                partitions=[
                    part(partition_index=p, error_code=code, timestamp=-1, offset=offset, leader_epoch=0)
                    for p, code, offset in answers
                ],
            )
        ]
    )


@pytest.fixture
def listing(driver, cluster, make_state):
    stale = []
    manager = OffsetsManager(
        cluster({"t": 2}, brokers=(1, 2), leaders={("t", 1): 2}),
        stale=stale.append,
        make_state=make_state,
        timeout_ms=1000,
    )
    manager.stale_, manager.driver = stale, driver(manager)
    return manager


def test_end_offsets_are_one_round_trip_to_each_leader(listing, make_call):
    call = make_call()
    listing.ask(call, {T0: LATEST, T1: LATEST}, read_committed=True)
    assert listing.driver.poll() == ["ListOffsets", "ListOffsets"]
    assert listing.driver.answer("ListOffsets", listed((0, 0, 10))).isolation_level == 1
    assert not call.done
    listing.driver.answer("ListOffsets", listed((1, 0, 20)))
    assert call.result() == {T0: 10, T1: 20}


def test_a_partition_that_is_not_there_is_the_reason_that_its_offsets_take_too_long(listing, make_call):
    call = make_call()
    listing.ask(call, {TopicPartition("t", 7): LATEST}, read_committed=True)
    assert listing.driver.poll() == []
    assert listing.stale_ == ["t"]
    assert str(call.last_error).startswith("t-7: topic 't' has 2 partitions: UNKNOWN_TOPIC_OR_PARTITION (3)")


def test_only_partitions_that_moved_are_asked_for_again(listing, make_call):
    call = make_call()
    listing.ask(call, {T0: LATEST, T1: LATEST}, read_committed=False)
    listing.driver.poll()
    listing.driver.answer("ListOffsets", listed((0, 0, 10)))
    listing.driver.answer("ListOffsets", listed((1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)))
    assert listing.stale_ == ["t"]
    assert listing.driver.poll() == []
    assert listing.driver.pass_time(0.1) == ["ListOffsets"]
    listing.driver.answer("ListOffsets", listed((1, 0, 20)))
    assert call.result() == {T0: 10, T1: 20}


def test_an_unknown_topic_says_so_when_time_runs_out(listing, make_call):
    call = make_call("listing offsets", deadline=5.0)
    listing._metadata._errors["missing"] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    listing.ask(call, {TopicPartition("missing", 0): LATEST}, read_committed=True)
    assert listing.driver.poll() == []
    assert "missing" in listing.stale_
    call.expire(6.0)
    with pytest.raises(Exception, match="not done in time.*'missing'.*UNKNOWN_TOPIC_OR_PARTITION"):
        call.result()


def test_a_refusal_ends_the_question(listing, make_call):
    call = make_call()
    listing.ask(call, {T0: LATEST}, read_committed=True)
    listing.driver.poll()
    listing.driver.answer("ListOffsets", listed((0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)))
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
        call.result()
    assert listing.driver.pass_time(10) == []


def positions(listing, committing, reset):
    failures, subscription = [], SubscriptionState()
    manager = PositionsManager(
        subscription,
        commits=committing.manager if committing else None,
        offsets=listing,
        reset=lambda: reset,
        read_committed=True,
        fail=failures.append,
        notify=lambda: None,
    )
    managers = [manager, *([committing.manager] if committing else []), listing]
    return manager, subscription, failures, listing.driver.__class__(*managers)


def positions_of(subscription):
    standings = {partition: subscription.get(partition) for partition in subscription.assigned}
    return {p: standing.position for p, standing in standings.items() if standing.position is not None}


def test_a_position_is_the_committed_offset_else_the_reset(listing, committing):
    _, subscription, failures, driver = positions(listing, committing, LATEST)
    subscription.assign_from_group([T0, T1])
    assert driver.poll() == ["OffsetFetch"]
    driver.answer("OffsetFetch", fetched(offset=7))
    assert driver.poll() == ["ListOffsets"]
    driver.answer("ListOffsets", listed((1, 0, 20)))
    assert positions_of(subscription) == {T0: 7, T1: 20}
    assert failures == []


def test_a_seek_wins_over_a_position_that_is_being_looked_up(listing):
    _, subscription, _, driver = positions(listing, None, LATEST)
    subscription.assign_by_hand([T0])
    driver.poll()
    subscription.seek(T0, 3)
    driver.answer("ListOffsets", listed((0, 0, 20)))
    assert positions_of(subscription) == {T0: 3}


def test_a_partition_that_was_given_up_gets_no_position(listing):
    _, subscription, _, driver = positions(listing, None, LATEST)
    subscription.assign_by_hand([T0])
    driver.poll()
    subscription.clear()
    driver.answer("ListOffsets", listed((0, 0, 20)))
    assert positions_of(subscription) == {}


def test_without_offset_and_reset_there_is_one_error(listing):
    _, subscription, failures, driver = positions(listing, None, None)
    subscription.assign_by_hand([T0])
    assert driver.poll() == []
    assert driver.pass_time(10) == []
    assert len(failures) == 1
    assert isinstance(failures[0], OffsetOutOfRangeException)
    subscription.seek(T0, 5)
    assert positions_of(subscription) == {T0: 5}


def test_a_refused_lookup_is_raised_and_repeated_after_a_pause(listing):
    _, subscription, failures, driver = positions(listing, None, LATEST)
    subscription.assign_by_hand([T0])
    driver.poll()
    driver.answer("ListOffsets", error=AuthenticationException("who are you"))
    assert len(failures) == 1
    assert driver.poll() == []
    assert driver.pass_time(1.0) == ["ListOffsets"]


# -- metadata ----------------------------------------------------------------------------------------------------------


class Knowing:
    def __init__(self, driver, metadata, state):
        self.failures, self.metadata = [], metadata
        self.manager = TopicMetadataManager(metadata, max_age=300, state=state, fail=self.failures.append)
        self.driver = driver(self.manager)

    def answer(self, response=None, error=None):
        if response is not None:
            self.metadata.update(response, requested=self.driver.find("TopicsWanted").request.topics)
        return self.driver.answer("TopicsWanted", response, error).topics


@pytest.fixture
def knowing(driver, cluster, make_state):
    return Knowing(driver, cluster({}), make_state())


def test_wanted_topics_are_asked_for_and_refreshed(knowing, metadata_message):
    knowing.manager.want({"t"})
    assert knowing.driver.poll() == ["TopicsWanted"]
    assert knowing.answer(metadata_message({"t": 1})) == {"t"}
    assert knowing.driver.pass_time(299) == []
    assert knowing.driver.pass_time(1) == ["TopicsWanted"]


def test_absent_topics_are_looked_for_each_second(knowing, metadata_message):
    knowing.manager.want({"t"})
    knowing.driver.poll()
    knowing.answer(metadata_message({}))
    assert knowing.driver.pass_time(0.5) == []
    assert knowing.driver.pass_time(0.5) == ["TopicsWanted"]


def test_a_stale_leader_is_not_asked_for_all_the_time(knowing, metadata_message):
    knowing.manager.stale("t")
    knowing.driver.poll()
    knowing.answer(metadata_message({"t": 1}))
    knowing.manager.stale("t")
    assert knowing.driver.poll() == []
    assert knowing.driver.pass_time(0.1) == ["TopicsWanted"]


def test_whoever_asks_hears_when_it_is_there_also_after_failures(knowing, metadata_message):
    heard = []
    knowing.manager.ask(frozenset({"x"}), lambda: heard.append(1))
    knowing.driver.poll()
    knowing.answer(error=DisconnectException("gone"))
    assert heard == []
    assert knowing.driver.pass_time(0.1) == ["TopicsWanted"]
    knowing.answer(metadata_message({"x": 1}))
    assert heard == [1]


def test_a_question_is_not_answered_by_a_response_that_was_on_its_way(knowing, metadata_message):
    """A leader needs metadata that is fresh, so what was asked before does not count."""
    heard = []
    knowing.manager.stale("t")
    knowing.driver.poll()
    knowing.manager.ask(frozenset({"t"}), lambda: heard.append(1))
    knowing.answer(metadata_message({"t": 1}))
    assert heard == []
    assert knowing.driver.poll() == ["TopicsWanted"]
    knowing.answer(metadata_message({"t": 1}))
    assert heard == [1]


def test_a_refused_login_is_told(knowing):
    knowing.manager.want({"t"})
    knowing.driver.poll()
    knowing.answer(error=AuthenticationException("no"))
    assert len(knowing.failures) == 1


def test_whoever_waits_for_metadata_gets_it_once_the_login_is_mended(knowing, metadata_message):
    """A leader that never hears of its topics would never assign, and the group would wait for it."""
    heard = []
    knowing.manager.ask(frozenset({"x"}), lambda: heard.append(1))
    knowing.manager.stale("y")
    knowing.driver.poll()
    knowing.answer(error=AuthenticationException("no"))
    assert (heard, len(knowing.failures)) == ([], 1)
    assert knowing.driver.poll() == []
    assert knowing.driver.pass_time(0.1) == ["TopicsWanted"]
    assert knowing.answer(metadata_message({"x": 1, "y": 1})) == {"x", "y"}
    assert heard == [1]


def test_a_question_that_can_fail_does_so_at_once_and_poll_hears_nothing(knowing):
    heard, refused = [], []
    knowing.manager.ask(frozenset({"x"}), lambda: heard.append(1), refused.append)
    knowing.driver.poll()
    error = AuthenticationException("no")
    knowing.answer(error=error)
    assert (heard, refused, knowing.failures) == ([], [error], [])
    assert knowing.driver.pass_time(100) == []

"""Commits: their order, what is repeated, and what ends them."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer import OffsetCommitResponse
from tests.unit.consumer.broker_answers import committed

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.errors import (
    AuthorizationException,
    CommitFailedException,
    DisconnectException,
    RebalanceInProgressException,
    UnknownTopicException,
)


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
def test_an_expelled_members_commit_fails_and_the_membership_learns_of_it(committing, make_call, code):
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


@pytest.mark.parametrize("place", [GroupMetadata("g", 6, "m"), GroupMetadata("g", 5, "m")], ids=["joined", "joining"])
def test_a_commit_between_two_generations_says_that_the_group_is_rebalancing(committing, make_call, place):
    """A cooperative consumer reads on while others join; the error said that it had been silent for too long."""
    call = make_call()
    committing.commit(call)
    committing.driver.poll()
    committing.place, committing.expelled = place, False
    committing.driver.answer("OffsetCommit", committed(ErrorCode.ILLEGAL_GENERATION))
    with pytest.raises(RebalanceInProgressException, match=r"is rebalancing \(ILLEGAL_GENERATION\); call poll\(\)"):
        call.result()


def test_a_member_that_was_expelled_meanwhile_gets_no_rebalance_error(committing, make_call):
    call = make_call()
    committing.commit(call)
    committing.driver.poll()
    committing.place = GroupMetadata("g")
    committing.driver.answer("OffsetCommit", committed(ErrorCode.ILLEGAL_GENERATION))
    with pytest.raises(CommitFailedException, match=r"max\.poll\.interval\.ms"):
        call.result()


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

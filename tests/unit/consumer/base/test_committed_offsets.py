"""Committed offsets as the coordinator gives them."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer import OffsetFetchResponse
from tests.unit.consumer.broker_answers import fetched

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.group_requests import GroupMetadata, OffsetAndMetadata
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_asks_for_committed_offsets_under_its_epoch(committing, make_call, make_state, code):
    manager = committing.another(make_state, member_reads=True)
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


def test_committed_offsets_wait_for_open_transactions(committing, make_call):
    call = make_call()
    committing.manager.fetch(call, frozenset({T0}))
    assert committing.driver.poll() == ["OffsetFetch"]
    assert committing.driver.answer("OffsetFetch", fetched(code=ErrorCode.UNSTABLE_OFFSET_COMMIT)).require_stable
    assert committing.driver.pass_time(0.1) == ["OffsetFetch"]
    committing.driver.answer("OffsetFetch", fetched())
    assert call.result() == {T0: OffsetAndMetadata(7, "x", 3)}


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

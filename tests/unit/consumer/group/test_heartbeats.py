"""Heartbeats: when they go out, and what their answers lead to."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer import HeartbeatResponse
from tests.unit.consumer.broker_answers import found
from tests.unit.consumer.surroundings import Located

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import HeartbeatRequest
from sparkrelay.consumer.group.heartbeats import HeartbeatManager
from sparkrelay.errors import DisconnectException


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


def test_heartbeats_are_quick_when_a_rebalance_is_expected(beating):
    beating.driver.pass_time(3)
    beating.driver.answer("Heartbeat", HeartbeatResponse(error_code=0))
    assert beating.driver.pass_time(1) == []
    beating.hasten(beating.driver.now)
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

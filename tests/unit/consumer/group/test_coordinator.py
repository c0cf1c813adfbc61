"""Who coordinates a group: found when needed, lost when it says so."""

from __future__ import annotations

import pytest
from tests.unit.consumer.broker_answers import found

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.errors import DisconnectException


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


def test_a_refusal_is_reported_once_and_not_repeated(finding):
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


def test_a_coordinator_that_moved_keeps_its_connections(finding):
    finding.need()
    finding.driver.poll()
    finding.driver.answer("FindCoordinator", found())
    finding.lost("a test")
    finding.driver.poll()
    assert finding.driver.dropped == []

"""When a member asks for the next rebalance."""

from sparkrelay.protocol import NO_REBALANCE_SCHEDULED
from sparkrelay.runtime.group.scheduled_rebalance import ScheduledRebalance

NOW = 1_800_000_000_000


def test_nothing_is_due_unless_assigned():
    scheduled = ScheduledRebalance()
    assert not scheduled.due(NOW)
    scheduled.on_assignment(NO_REBALANCE_SCHEDULED, NOW)
    assert not scheduled.due(NOW + (1 << 50))


def test_a_deadline_is_kept_once():
    scheduled = ScheduledRebalance()
    scheduled.on_assignment(NOW + 500, NOW)
    assert not scheduled.due(NOW + 499)
    assert scheduled.due(NOW + 500)
    assert not scheduled.due(NOW + 501)


def test_another_rebalance_replaces_the_deadline():
    scheduled = ScheduledRebalance()
    scheduled.on_assignment(NOW + 500, NOW)
    scheduled.on_assignment(NO_REBALANCE_SCHEDULED, NOW + 100)
    assert not scheduled.due(NOW + 500)
    scheduled.on_assignment(NOW + 900, NOW + 200)
    assert not scheduled.due(NOW + 899)
    assert scheduled.due(NOW + 900)


def test_at_once_again_and_again_gets_pauses():
    scheduled, now, pauses = ScheduledRebalance(), NOW, []
    for _ in range(14):
        scheduled.on_assignment(0, now)
        pauses.append(scheduled.due_ms - now)
        now = scheduled.due_ms
        assert scheduled.due(now)
    assert pauses[:6] == [0, 0, 0, 100, 200, 400]
    assert pauses[-1] == 10_000
    scheduled.on_assignment(NOW * 2, now)
    scheduled.on_assignment(0, now)
    assert scheduled.due(now), "a quiet rebalance in between, and at once means at once"


def test_a_deadline_in_the_past_is_at_once():
    scheduled = ScheduledRebalance()
    scheduled.on_assignment(NOW - 1, NOW)
    assert scheduled.due(NOW)

"""When a member asks for the next rebalance."""

from sparkrelay.protocol import NO_REBALANCE_SCHEDULED
from sparkrelay.runtime.group.scheduled_rebalance import ScheduledRebalance

NOW = 1_800_000_000_000


def test_nothing_is_due_unless_told():
    appointment = ScheduledRebalance()
    assert not appointment.due(NOW)
    appointment.told(NO_REBALANCE_SCHEDULED, NOW)
    assert not appointment.due(NOW + (1 << 50))


def test_a_deadline_is_kept_once():
    appointment = ScheduledRebalance()
    appointment.told(NOW + 500, NOW)
    assert not appointment.due(NOW + 499)
    assert appointment.due(NOW + 500)
    assert not appointment.due(NOW + 501)


def test_another_rebalance_replaces_the_deadline():
    appointment = ScheduledRebalance()
    appointment.told(NOW + 500, NOW)
    appointment.told(NO_REBALANCE_SCHEDULED, NOW + 100)
    assert not appointment.due(NOW + 500)
    appointment.told(NOW + 900, NOW + 200)
    assert not appointment.due(NOW + 899)
    assert appointment.due(NOW + 900)


def test_at_once_again_and_again_gets_pauses():
    appointment, now, pauses = ScheduledRebalance(), NOW, []
    for _ in range(14):
        appointment.told(0, now)
        pauses.append(appointment.due_ms - now)
        now = appointment.due_ms
        assert appointment.due(now)
    assert pauses[:6] == [0, 0, 0, 100, 200, 400]
    assert pauses[-1] == 10_000
    appointment.told(NOW * 2, now)
    appointment.told(0, now)
    assert appointment.due(now), "a quiet rebalance in between, and at once means at once"


def test_a_deadline_in_the_past_is_at_once():
    appointment = ScheduledRebalance()
    appointment.told(NOW - 1, NOW)
    assert appointment.due(NOW)

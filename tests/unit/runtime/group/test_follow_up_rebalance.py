from sparkrelay.runtime.group.follow_up_rebalance import FollowUp
from sparkrelay.types import TaskId

A, B = TaskId(0, 0), TaskId(0, 1)


def follow_up(standby, *, lags=None, running=(), warming=(), at=0.0):
    made = FollowUp(acceptable_lag=1000, longest_pause_s=10.0, probing_s=600.0)
    made.on_subscription(lags or {}, running)
    made.on_assignment(at)
    made.on_followed(standby, warming)
    return made


def test_a_copy_that_was_cold_asks_once_when_it_is_at_half_of_the_acceptable_lag():
    ours = follow_up([A, B], lags={A: 5000, B: 5000})
    assert ours.reasons({A: 501, B: 2000}, 19.0) == []
    assert ours.reasons({A: 500, B: 2000}, 20.0) == []
    assert ours.reasons({A: 500, B: 2000}, 21.0) == [A]
    assert ours.reasons({A: 0, B: 2000}, 40.0) == []
    assert ours.waits
    assert ours.reasons({A: 0, B: 0}, 40.0) == [B]
    assert not ours.waits


def test_copies_that_are_warm_soon_after_each_other_ask_together():
    ours = follow_up([A, B])
    assert ours.reasons({A: 0, B: 2000}, 20.0) == []
    assert ours.reasons({A: 0, B: 500}, 20.5) == [A, B]


def test_a_copy_that_has_fallen_behind_again_waits_anew_for_the_others():
    ours = follow_up([A, B])
    assert ours.reasons({A: 0, B: 2000}, 20.0) == []
    assert ours.reasons({A: 600, B: 2000}, 20.5) == []
    assert ours.reasons({A: 0, B: 2000}, 21.2) == []
    assert ours.reasons({A: 0, B: 2000}, 22.2) == [A]


def test_a_copy_whose_lag_the_leader_does_not_know_was_cold():
    assert follow_up([A]).reasons({A: 0}, 20.0) == [A]


def test_a_task_that_we_ran_until_now_does_not_ask():
    ours = follow_up([A], running=[A])
    assert not ours.waits
    # Its partitions are given up, so the second rebalance follows before anybody has looked at the copy.
    ours.on_subscription({}, ())
    ours.on_followed([A], ())
    assert not ours.waits


def test_a_copy_whose_lag_is_not_known_does_not_ask():
    assert follow_up([A]).reasons({}, 20.0) == []


def test_a_copy_that_was_reported_as_warm_does_not_ask():
    ours = follow_up([A], lags={A: 1000})
    assert not ours.waits
    assert ours.reasons({A: 0}, 20.0) == []


def test_a_copy_that_the_leader_holds_to_be_cold_asks_again_though_it_was_reported_as_warm():
    # We know the ends as of our last look, the leader those of now: a busy owner had committed a batch in between.
    ours = follow_up([A, B], lags={A: 0, B: 0}, warming=["0_0", "7_7"])
    assert ours.reasons({A: 0, B: 0}, 20.0) == [A]


def test_between_two_requests_there_is_a_pause():
    ours = follow_up([A, B], at=100.0)
    assert ours.reasons({A: 0}, 100.0) == []
    assert ours.reasons({A: 0}, 100.9) == []
    assert ours.reasons({A: 0}, 101.0) == [A]
    assert ours.reasons({A: 0, B: 0}, 101.9) == []
    assert ours.reasons({A: 0, B: 0}, 102.0) == [B]


def test_a_copy_that_asks_in_vain_waits_longer_each_time():
    ours, now, pauses = follow_up([A]), 100.0, []
    assert ours.reasons({A: 0}, now) == [A]
    for _ in range(11):
        asked_at = now
        # The owner was further ahead when the leader looked.
        ours.on_subscription({A: 5000}, ())
        ours.on_assignment(now)
        ours.on_followed([A], ())
        while not ours.reasons({A: 0}, now):
            now += 1.0
        pauses.append(now - asked_at)
    assert pauses == [1, 2, 4, 20, 40, 80, 160, 320, 600, 600, 600]


def test_a_copy_that_was_warm_at_last_begins_anew():
    ours = follow_up([A], at=0.0)
    for number in range(1, 8):
        assert ours.reasons({A: 0}, number * 700.0) == [A]
        ours.on_subscription({A: 5000}, ())
        ours.on_followed([A], ())
    ours.on_subscription({}, [A])
    ours.on_followed([], ())
    ours.on_subscription({A: 5000}, ())
    ours.on_followed([A], ())
    assert ours.reasons({A: 0}, 4900.0 + 1.0) == [A]

from sparkrelay.assignment.leader.follow_up_pause import FollowUpPause


def pauses(longest_s, assigned_at):
    pause, lengths = FollowUpPause(longest_s), []
    for now in assigned_at:
        pause.assigned(now)
        lengths.append(round(pause.over_at - now, 6))
    return lengths


def test_pauses_grow_while_rebalance_follows_rebalance():
    assert pauses(10.0, [0, 2, 5, 10, 19, 30]) == [1, 2, 4, 8, 10, 10]


def test_both_halves_of_a_cooperative_rebalance_are_one():
    assert pauses(10.0, [0, 0.5, 3, 3.9]) == [1, 1, 2, 2]


def test_a_group_that_was_quiet_begins_with_a_short_pause_again():
    assert pauses(10.0, [0, 2, 5, 25, 26.5]) == [1, 2, 4, 1, 2]


def test_the_longest_pause_may_be_shorter_than_a_second_or_none():
    assert pauses(0.5, [0, 0.6, 1.2]) == [0.5, 0.5, 0.5]
    assert pauses(0.0, [0, 0, 5]) == [0, 0, 0]

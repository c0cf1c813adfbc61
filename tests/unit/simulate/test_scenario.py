import itertools

import pytest
from hypothesis import given, settings, strategies as st

from sparkrelay.errors import ConfigException
from sparkrelay.simulate import Churn, Scenario, mixed_scenarios
from sparkrelay.simulate.churn import Action, churn_events


def test_generated_scenarios_depend_on_seed_and_number_alone():
    assert list(mixed_scenarios(30, seed=7)) == list(mixed_scenarios(60, seed=7))[:30]
    assert list(mixed_scenarios(30, seed=7)) != list(mixed_scenarios(30, seed=8))


def test_the_kinds_of_churn_take_turns():
    found = [scenario.churn for scenario in mixed_scenarios(12, seed=1)]
    assert found == [kind.value for kind in Churn] * 2
    assert {s.churn for s in mixed_scenarios(5, kinds=["rack-loss"])} == {"rack-loss"}


@settings(max_examples=200)
@given(seed=st.integers(0, 2**40))
def test_generated_scenarios_have_the_sizes_that_are_promised(seed):
    for scenario in mixed_scenarios(6, seed=seed):
        assert 2 <= scenario.clients <= 12
        assert 6 <= scenario.tasks <= 80
        events = churn_events(scenario)
        assert events[0].at_s == 0
        assert [event.at_s for event in events] == sorted(event.at_s for event in events)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"churn": "earthquake"}, "earthquake"),
        ({"clients": 0}, "clients=0"),
        ({"restore_rate": 0}, "restore_rate=0"),
        ({"size_spread": 2.0}, "size_spread=2.0"),
        ({"subtopologies": 0}, "at least one subtopology"),
        ({"churn": "scale-in", "churn_size": 3, "clients": 3}, "leaves nobody"),
        ({"churn": "rack-loss", "racks": 1}, "racks=1"),
        ({"churn": "rack-loss", "racks": 4, "clients": 3}, "racks=4"),
        ({"max_warmups": 0}, "max.warmup.replicas"),
        ({"rack_strategy": "best"}, "rack.aware.assignment.strategy"),
        ({"probing_interval_s": 1.0}, "probing.rebalance.interval.ms"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused_by_name(settings, named):
    with pytest.raises(ConfigException, match=named):
        Scenario(**settings)


def actions(**settings):
    return [(event.at_s, event.action, event.process) for event in churn_events(Scenario(**settings))]


def test_newcomers_have_new_numbers():
    assert actions(churn="scale-out", clients=3, churn_size=2) == [(0, Action.JOIN, 3), (0, Action.JOIN, 4)]


def test_those_who_leave_are_different_processes():
    left = actions(churn="scale-in", clients=6, churn_size=5)
    assert len({process for _, _, process in left}) == 5


def test_a_rolling_bounce_takes_one_after_the_other():
    assert actions(churn="rolling-bounce", clients=2, downtime_s=20.0, pause_s=30.0) == [
        (0, Action.LEAVE, 0),
        (20, Action.JOIN, 0),
        (50, Action.LEAVE, 1),
        (70, Action.JOIN, 1),
    ]


def test_a_rack_is_lost_at_once_and_noticed_later():
    found = actions(churn="rack-loss", clients=5, racks=2, lost_rack=1, detection_s=6.0)
    assert found == [(0, Action.CRASH, 1), (0, Action.CRASH, 3), (6, Action.DETECT, 1), (6, Action.DETECT, 3)]


@pytest.mark.parametrize("detection_s", [6.0, 45.0])
def test_a_flapping_member_is_noticed_if_it_stays_away_long_enough(detection_s):
    found = actions(churn="flapping", churn_size=2, detection_s=detection_s, downtime_s=20.0, pause_s=30.0)
    kinds = [action for _, action, _ in found]
    once = [Action.CRASH, Action.DETECT, Action.JOIN] if detection_s < 20 else [Action.CRASH, Action.JOIN]
    assert kinds == list(itertools.chain(once, once))
    assert len({process for _, _, process in found}) == 1

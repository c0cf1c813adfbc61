"""When watermarks go on without input."""

from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.runtime.tasks.idle_watermarks import IdleWatermarks


def report(left_ms, store="counts"):
    return StateReport(store, 0, expired=100, left_ms=left_ms)


def test_they_go_on_by_the_silence_until_all_windows_are_over():
    idle = IdleWatermarks(2.0, ["counts"])
    idle.had_input(10.0)
    idle.committed([report(2_400), StateReport("users", 0)])
    assert idle.due(12.3) == 0
    assert idle.due(12.5) == 2500
    # It failed, and is due as much as ever.
    assert idle.due(13.0) == 3000
    idle.committed([report(9_000)])
    assert idle.due(21.9) == 0
    assert idle.due(22.0) == 9000
    idle.committed([report(None)])
    assert idle.due(9999.0) == 0
    idle.had_input(10_000.0)
    idle.committed([report(1)])
    assert idle.due(10_001.9) == 0
    assert idle.due(10_002.0) == 2000


def test_a_new_owner_waits_as_long_and_looks_once():
    idle = IdleWatermarks(2.0, ["counts", "far away"])
    assert idle.due(50.0) == 0
    assert idle.due(52.0) == 2000
    idle.committed([report(None)])
    assert idle.due(9999.0) == 0


def test_a_window_far_ahead_costs_nothing_until_it_ends():
    idle = IdleWatermarks(1.0, ["counts"])
    idle.had_input(0.0)
    idle.committed([report(86_400_000)])
    assert sum(idle.due(float(second)) > 0 for second in range(86_400)) == 0
    assert idle.due(86_400.0) == 86_400_000


def test_they_stay_where_that_is_not_wanted_or_nothing_could_end():
    for idle in (IdleWatermarks(0.0, ["counts"]), IdleWatermarks(1.0, [])):
        idle.had_input(1.0)
        assert idle.due(1e6) == 0

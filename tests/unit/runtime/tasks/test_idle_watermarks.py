"""When watermarks go on without input."""

from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.runtime.tasks.idle_watermarks import IdleWatermarks

OPEN = StateReport("counts", 0, watermark=100, last_end=101)
OVER = StateReport("counts", 0, watermark=101, last_end=101)
WITHOUT_WINDOWS = StateReport("users", 0)


def test_they_go_on_by_the_silence_until_all_windows_are_over():
    idle = IdleWatermarks(2.0)
    idle.had_input(10.0)
    assert idle.due(11.9) == 0
    assert idle.due(12.5) == 2500
    # It failed, and is due as much as ever.
    assert idle.due(13.0) == 3000
    idle.moved([OPEN, WITHOUT_WINDOWS])
    assert idle.due(14.9) == 0
    assert idle.due(15.0) == 2000
    idle.moved([OVER, WITHOUT_WINDOWS])
    assert idle.due(99.0) == 0
    idle.had_input(100.0)
    assert idle.due(102.0) == 2000


def test_a_new_owner_waits_as_long_and_looks_once():
    idle = IdleWatermarks(2.0)
    assert idle.due(50.0) == 0
    assert idle.due(52.0) == 2000
    idle.moved([OVER])
    assert idle.due(99.0) == 0


def test_they_stay_where_that_is_not_wanted():
    idle = IdleWatermarks(0.0)
    idle.had_input(1.0)
    assert idle.due(1e6) == 0

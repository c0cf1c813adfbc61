"""An assignor that fails is a result of a study, not its end: what it did is reported, whatever it did."""

import asyncio

import pytest
from tests.doubles.assignors import Answers

from sparkrelay.assignment import TaskAssignment
from sparkrelay.simulate.scenario import Scenario
from sparkrelay.simulate.simulation import simulate


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ZeroDivisionError("oh"), "ZeroDivisionError: oh"),
        (SystemExit(0), "SystemExit: 0"),
        (asyncio.CancelledError(), "CancelledError"),
        (None, "returned None instead of a TaskAssignment"),
        (TaskAssignment([None]), "an entry None"),
        (TaskAssignment([]), "MISSING_PROCESS_ID"),
    ],
    ids=["raises", "exits", "is cancelled", "nothing", "nonsense", "forgets processes"],
)
def test_a_failing_assignor_is_a_result(answer, message):
    assert message in simulate(Scenario(), Answers(answer)).error

"""SIGKILL at random moments of running batches: of the whole instance and of its driver alone, in turns."""

import random
import time

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.chaos,
    pytest.mark.in_order,
    pytest.mark.long,
    pytest.mark.timeout(600),
]

KILLS = 30


@pytest.fixture(scope="module")
def dice(seed):
    return random.Random(seed + 1)


@pytest.mark.parametrize("number", range(KILLS))
def test_a_kill_at_a_random_moment(number, fleet, ledger, dice, seed):
    doomed = fleet.ensure_running()
    fleet.prepare()
    ledger.wait_for_results(fleet)
    ledger.write(400)
    # Somewhere in the batches: after a random part of the updates, and then anywhere within a batch.
    left = dice.randrange(100, 390)
    ledger.read_until(lambda: ledger.backlog <= left, lambda: f"CHAOS_SEED={seed}: nothing moves\n{doomed.tail()}")
    time.sleep(dice.uniform(0, 0.2))
    doomed.kill(only_driver=number % 2 == 1)
    # Its successor is up already; the next test's own is prepared there, if there is one.
    fleet.start(spare=False)
    ledger.wait_for_results(fleet)


def test_a_late_reader_finds_the_same(fleet, ledger):
    fleet.ensure_running()
    ledger.wait_for_results(fleet)
    assert fleet.running.stop() == "stopped NOT_RUNNING"
    ledger.read_again()

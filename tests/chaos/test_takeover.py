"""Two instances share the work; one is killed, and the other takes its tasks over from its standbys."""

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(240)]


def test_one_of_two_is_killed(neighbours, ledger, wait_until):
    first = neighbours.start()
    ledger.write(200)
    ledger.settle(neighbours)
    second = neighbours.start(spare=False)
    everything = {"0_0", "0_1", "1_0", "1_1"}

    def shared():
        mine, other = first.tasks(), second.tasks()
        return (
            len(mine["active"]) == len(other["active"]) == 2
            and {*mine["active"], *other["active"]} == everything
            and {*mine["standby"], *other["standby"]} == everything
        )

    wait_until(shared, "the two do not share the tasks", 90)
    ledger.write(2000)
    left = ledger.backlog // 2
    ledger.read_until(lambda: ledger.backlog <= left, neighbours.tail)
    first.kill()
    ledger.write(200)
    ledger.settle(neighbours)
    assert set(second.tasks()["active"]) == everything
    assert second.stop() == "stopped NOT_RUNNING"
    ledger.read_again()

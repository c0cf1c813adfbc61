"""Executors of one instance are killed under load: others take over at once, replacements take the slots again."""

import os
import random
import signal

import pytest
from tests.chaos.instances import EVERYTHING

pytestmark = [
    pytest.mark.integration,
    pytest.mark.chaos,
    pytest.mark.in_order,
    pytest.mark.long,
    pytest.mark.timeout(900),
]


@pytest.fixture
def wait_for_share(wait_until, cluster):
    """`wait_for_share()` waits until both executors have half of the tasks and copies of the rest; returns ids."""

    def shared():
        processes = list(cluster.running.processes().values())
        return (
            len(processes) == 2
            and all({*process["active"], *process["standby"]} == EVERYTHING for process in processes)
            and all(len(process["active"]) == len(EVERYTHING) // 2 for process in processes)
            and {task for process in processes for task in process["active"]} == EVERYTHING
        )

    def wait():
        try:
            wait_until(shared, "the executors do not share the tasks", 240)
        except AssertionError:
            raise AssertionError(f"{cluster.running.processes()}\n{cluster.tail()}") from None
        return set(cluster.running.processes())

    return wait


@pytest.mark.parametrize("number", [0, 1])
def test_an_executor_is_killed_and_its_replacement_takes_its_slot(number, cluster, ledger, seed, wait_for_share):
    identities = wait_for_share()
    ledger.write_and_read_half(400, cluster.tail)
    victim = random.Random(seed + number).choice(sorted(cluster.running.executors().values()))
    os.kill(victim, signal.SIGKILL)
    ledger.write(100)
    # Well within the session timeout of 600 s, which nobody waits for.
    ledger.wait_for_results(cluster, 240)
    assert wait_for_share() == identities, "a replacement on the same host is the same process"
    ledger.write(100)
    ledger.wait_for_results(cluster)


def test_all_executors_are_killed_and_the_instance_waits_for_new_ones(cluster, ledger, wait_for_share):
    identities = wait_for_share()
    ledger.write_and_read_half(400, cluster.tail)
    for victim in cluster.running.executors().values():
        os.kill(victim, signal.SIGKILL)
    ledger.write(100)
    # Two JVMs and their Python daemons start anew.
    ledger.wait_for_results(cluster, 240)
    assert wait_for_share() == identities
    ledger.read_until(lambda: cluster.running.ask("status").startswith("RUNNING"), cluster.tail)
    ledger.read_again()


def test_a_stop_leaves_no_process_behind(cluster, ledger, wait_for_share, wait_until):
    wait_for_share()
    assert cluster.running.stop() == "stopped NOT_RUNNING"
    wait_until(lambda: not cluster.running.members(), "processes are left over")

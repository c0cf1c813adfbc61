"""On YARN, executors in containers of two nodes: one is killed, and the outputs are exact."""

import os
import signal
from pathlib import Path

import pytest
from tests.chaos.instances import EVERYTHING, Fleet
from tests.yarn_cluster import YarnCluster

from sparkrelay.runtime.contract.socket_folders import LONGEST_PATH

pytestmark = [
    pytest.mark.integration,
    pytest.mark.chaos,
    pytest.mark.in_order,
    pytest.mark.long,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def yarn(tmp_path_factory):
    cluster = YarnCluster(tmp_path_factory.mktemp("yarn"))
    try:
        yield cluster.start()
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def application(kafka, ledger, tmp_path_factory, yarn):
    """One instance with an executor on each node and a standby of every task: `running`."""
    ships = Fleet(
        kafka,
        tmp_path_factory.mktemp("application"),
        ledger,
        master="yarn",
        spark=yarn.spark,
        environment=yarn.environment,
        **{"num.standby.replicas": 1, "session.timeout.ms": 600000, "acceptable.recovery.lag": 100},
    )
    ships.start(spare=False)
    yield ships
    ships.close()


@pytest.fixture
def wait_for_share(wait_until, yarn, application):
    """`wait_for_share()` waits until each executor has its part of the tasks, and copies of the rest."""

    def shared():
        processes = list(application.running.processes().values())
        return (
            len(processes) == YarnCluster.NODES
            and all({*process["active"], *process["standby"]} == EVERYTHING for process in processes)
            and {task for process in processes for task in process["active"]} == EVERYTHING
        )

    def wait():
        try:
            wait_until(shared, "the executors do not share the tasks", 240)
        except AssertionError:
            raise AssertionError(f"{application.running.processes()}\n{yarn.tail()}\n{application.tail()}") from None

    return wait


def test_workers_start_in_containers_that_are_too_long_for_their_sockets(yarn, application, ledger, wait_for_share):
    """Nothing was set for that: a container's temporary folder is where Spark makes sockets."""
    wait_for_share()
    containers = [Path(f"/proc/{pid}/cwd").readlink() for pid in yarn.executors().values()]
    assert len(set(containers)) == YarnCluster.NODES
    assert all(len(str(container / "tmp")) > LONGEST_PATH for container in containers)
    ledger.write(100)
    ledger.wait_for_results(application)


def test_an_executor_is_killed_and_another_container_takes_its_place(yarn, application, ledger, wait_for_share):
    wait_for_share()
    before = yarn.executors()
    ledger.write_and_read_half(400, application.tail)
    os.kill(min(before.values()), signal.SIGKILL)
    ledger.write(100)
    # Well within the session timeout of 600 s, which nobody waits for.
    ledger.wait_for_results(application, 240)
    wait_for_share()
    assert len(set(yarn.executors()) - set(before)) == 1
    ledger.write(100)
    ledger.wait_for_results(application)


def test_no_container_outlives_a_stop(yarn, application, ledger, wait_until):
    assert application.running.stop() == "stopped NOT_RUNNING"
    wait_until(lambda: not yarn.executors(), "executors outlive their driver")

"""On Spark's standalone cluster, master and workers as processes: whichever dies or leaves, the outputs are exact."""

import os
import signal

import pytest
from tests.chaos.instances import EVERYTHING, Fleet
from tests.standalone_cluster import StandaloneCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.chaos,
    pytest.mark.in_order,
    pytest.mark.long,
    pytest.mark.timeout(900),
]

#: Executors of an application, each on a worker of its own.
EXECUTORS = 2


@pytest.fixture(scope="module")
def standalone(tmp_path_factory, spark_home):
    """A master and two workers of one core."""
    cluster = StandaloneCluster(tmp_path_factory.mktemp("standalone"), spark_home)
    try:
        cluster.start_master()
        for _ in range(EXECUTORS):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def applications(kafka, ledger, tmp_path_factory, standalone, spark_home):
    """Spark applications on the cluster, each one instance with a standby of every task: `running` is the first."""
    ships = Fleet(
        kafka,
        tmp_path_factory.mktemp("applications"),
        ledger,
        master=standalone.url,
        spark={
            "spark.cores.max": str(EXECUTORS),
            "spark.executor.cores": "1",
            "spark.executor.memory": "1g",
            "spark.decommission.enabled": "true",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
        environment={"SPARK_HOME": str(spark_home)},
        **{"num.standby.replicas": 1, "session.timeout.ms": 6000, "acceptable.recovery.lag": 100},
    )
    ships.start(spare=False)
    yield ships
    ships.close()


@pytest.fixture
def wait_for_share(wait_until, standalone):
    """`wait_for_share(*instances)` waits until each executor has its part of the tasks, and copies of the rest."""

    def wait(*instances):
        processes = {}

        def shared():
            processes.clear()
            for instance in instances:
                processes.update(instance.processes())
            active = [task for process in processes.values() for task in process["active"]]
            copies = [task for process in processes.values() for task in process["standby"]]
            parts = {len(process["active"]) for process in processes.values()}
            return (
                len(processes) == EXECUTORS * len(instances)
                and sorted(active) == sorted(copies) == sorted(EVERYTHING)
                and len(parts) == 1
            )

        try:
            wait_until(shared, "the executors do not share the tasks", 240)
        except AssertionError as error:
            tails = [one.tail() for one in instances]
            raise AssertionError(f"{error}: {processes}\n{standalone.tail()}\n" + "\n".join(tails)) from None

    return wait


def test_an_executor_is_killed(standalone, applications, ledger, wait_for_share):
    wait_for_share(applications.running)
    ledger.write_and_read_half(400, applications.tail)
    os.kill(min(standalone.executors().values()), signal.SIGKILL)
    ledger.write(100)
    ledger.wait_for_results(applications)


def test_a_worker_is_killed_and_another_one_comes(standalone, applications, ledger, wait_for_share, wait_until):
    wait_for_share(applications.running)
    victim = standalone.workers[0]
    ledger.write_and_read_half(400, applications.tail)
    victim.kill()
    ledger.write(100)
    ledger.wait_for_results(applications)
    wait_until(lambda: not victim.executors(), "the executor of a dead worker lives on")
    standalone.add_worker()
    wait_for_share(applications.running)


def test_a_worker_is_decommissioned_and_another_one_comes(standalone, applications, ledger, wait_for_share, wait_until):
    wait_for_share(applications.running)
    leaver = next(worker for worker in standalone.workers if worker.executors())
    ledger.write_and_read_half(400, applications.tail)
    standalone.decommission(leaver)
    ledger.write(100)
    ledger.wait_for_results(applications)
    wait_until(lambda: not leaver.executors(), f"it keeps its executor\n{leaver.tail()}")
    standalone.add_worker()
    wait_for_share(applications.running)


def test_the_master_is_killed_and_the_next_one_knows_the_application(standalone, applications, ledger, wait_for_share):
    wait_for_share(applications.running)
    ledger.write_and_read_half(400, applications.tail)
    standalone.kill_master()
    ledger.write(100)
    # Nobody needs a master for what runs.
    ledger.wait_for_results(applications)
    standalone.restart_master()
    assert [application["state"] for application in standalone.status()["activeapps"]] == ["RUNNING"]
    # Only a master that knows the application gives it another executor.
    os.kill(min(standalone.executors().values()), signal.SIGKILL)
    ledger.write(100)
    ledger.wait_for_results(applications)
    wait_for_share(applications.running)


def test_a_driver_is_killed_and_another_application_takes_over(
    standalone, applications, ledger, wait_for_share, wait_until
):
    for _ in range(EXECUTORS):
        standalone.add_worker()
    first, second = applications.running, applications.start(spare=False)
    ledger.write(100)
    wait_for_share(first, second)
    ledger.write_and_read_half(400, applications.tail)
    first.kill()
    ledger.write(100)
    ledger.wait_for_results(applications)
    wait_until(lambda: len(standalone.executors()) == EXECUTORS, "executors outlive their driver")
    ledger.read_again()

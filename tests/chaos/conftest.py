"""Fleets of instances for a module of tests, and their ledger."""

import os
import random
import sys

import pytest
from tests.chaos.instances import EVERYTHING, Fleet
from tests.chaos.ledger import Ledger


@pytest.fixture(scope="session", autouse=True)
def _own_brokers(brokers_of_tests):
    """Also those that a module starts for itself."""


@pytest.fixture(scope="module")
def seed():
    """The seed of everything random, printed where a test fails; set CHAOS_SEED to repeat it."""
    chosen = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(1 << 30)))
    sys.stderr.write(f"CHAOS_SEED={chosen}\n")
    return chosen


@pytest.fixture(scope="module")
def ways():
    """Which of the two ways a fleet's micro-batches take, as in `instance.choose_ways`: one and the other in turn."""
    return "in turn"


@pytest.fixture(scope="module")
def optimization():
    """`topology.optimization` of a fleet: whether its table has a changelog of its own."""
    return "none"


@pytest.fixture(scope="module")
def ledger(kafka, module_topic, seed, ways, optimization):
    """The ledger of a fleet: of each of them, where a module has several, one after the other."""
    book = Ledger(kafka, module_topic, seed)
    yield book
    book.close()


@pytest.fixture(scope="module")
def fleet(kafka, ledger, tmp_path_factory, ways, optimization):
    """Instances that share one state directory, one at a time."""
    settings = {"topology.optimization": optimization}
    ships = Fleet(kafka, tmp_path_factory.mktemp("fleet"), ledger, ways=ways, **settings)
    yield ships
    ships.close()


@pytest.fixture(scope="module")
def cluster(kafka, ledger, tmp_path_factory, spark_home):
    """One instance on a cluster of two executors with one core each, and a standby of every task: `running`."""
    ships = Fleet(
        kafka,
        tmp_path_factory.mktemp("cluster"),
        ledger,
        master="local-cluster[2,1,1024]",
        environment={"SPARK_HOME": str(spark_home)},
        **{"num.standby.replicas": 1, "session.timeout.ms": 600000, "acceptable.recovery.lag": 100},
    )
    ships.start(spare=False)
    yield ships
    ships.close()


@pytest.fixture(scope="module")
def neighbours(kafka, ledger, tmp_path_factory, optimization):
    """Two instances side by side, each with a state directory, and with a standby of every task: `crew`."""
    ships = Fleet(
        kafka,
        tmp_path_factory.mktemp("neighbours"),
        ledger,
        one_state_dir=False,
        **{
            "num.standby.replicas": 1,
            "session.timeout.ms": 6000,
            "acceptable.recovery.lag": 100,
            "topology.optimization": optimization,
        },
    )
    ships.crew = ships.start(), ships.start(spare=False)
    yield ships
    ships.close()


@pytest.fixture
def share(wait_until):
    """`share(first, second)` waits until both have half of the tasks, and copies of the other half."""

    def wait(first, second):
        def shared():
            mine, other = first.tasks(), second.tasks()
            assert "ERROR" not in (mine["state"], other["state"]), first.tail() + second.tail()
            return (
                len(mine["active"]) == len(other["active"]) == len(EVERYTHING) // 2
                and {*mine["active"], *other["active"]} == EVERYTHING
                and {*mine["standby"], *other["standby"]} == EVERYTHING
            )

        wait_until(shared, "the two do not share the tasks", 240)

    return wait


@pytest.fixture
def has_everything(wait_until):
    """`has_everything(instance)`: outputs may all be said before the last task, which had none, is in service."""

    def wait(instance):
        wait_until(lambda: set(instance.tasks()["active"]) == EVERYTHING, "it does not run every task")

    return wait


@pytest.fixture(scope="module")
def crowd(kafka, ledger, tmp_path_factory):
    """Instances with a state directory each, which a successor inherits."""
    ships = Fleet(
        kafka,
        tmp_path_factory.mktemp("crowd"),
        ledger,
        one_state_dir=True,
        **{
            "num.standby.replicas": 1,
            "session.timeout.ms": 6000,
            "acceptable.recovery.lag": 1000,
            "max.batch.records": 20_000,
        },
    )
    yield ships
    ships.close()

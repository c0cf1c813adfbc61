"""The instance dies between two writes of a micro-batch, at each such place once; and so does a Python worker.

One chain: each instance recovers what the one before it left, is checked, and dies in its turn. One table's topic is
its changelog (`topology.optimization`), where its copy and the group's offset may differ; others have their own.
"""

import pytest
from tests.marks import marked
from tests.waiting import LONG

from sparkrelay.runtime.contract.fault_points import POINTS

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.in_order, pytest.mark.timeout(600)]

#: Point -> at which time of reaching it. Batches of several tasks pass a point once for each task, or leg, or send.
IN_BATCHES = {
    "driver-before-job": 3,
    "fetch-first-rows": 4,
    "state-before-apply": 6,
    "state-after-apply": 5,
    "changelog-before-flush": 3,
    "changelog-after-flush": 2,
    "publish-after-send": 17,
    "publish-before-flush": 5,
    "publish-after-flush": 6,
    "driver-between-waves": 3,
    "driver-before-commit": 3,
    # Two tasks and more commit at once: at the second time the first one's EndTxn is out, the second one's is not.
    "driver-before-end-txn": 4,
    # Its answer was not read: the outcome is unknown to whoever comes next.
    "driver-after-end-txn": 5,
    "driver-after-commit": 3,
}
#: An instance opens its four tasks at once: each time what is unfinished is undone.
WHILE_INITIALIZING = {
    "initialize-after-epoch": 1,
    "restore-before-undo": 2,
    "restore-after-undo": 3,
    "restore-after-slice": 2,
}
WHILE_RESTORING = [point for point in WHILE_INITIALIZING if point.startswith("restore")]
#: What `make test` tries: the outcome of its transaction is unknown to the next instance.
ALWAYS = {"driver-after-end-txn"}
#: Its own test is in test_takeover: it takes others who are led.
WHILE_LEADING = "leader-before-answer"
IN_WORKERS = [point for point in POINTS if not point.startswith(("leader", "driver", "initialize", "restore"))]


@pytest.fixture(
    scope="module",
    params=[
        ("resident", "all"),
        *(pytest.param(chain, marks=pytest.mark.long) for chain in (("resident", "none"), ("bulk", "none"))),
    ],
    ids="-".join,
)
def chain(request):
    """How micro-batches run, and `topology.optimization`."""
    return request.param


@pytest.fixture(scope="module")
def ways(chain):
    return chain[0]


@pytest.fixture(scope="module")
def optimization(chain):
    return chain[1]


def test_every_point_is_tried():
    assert {*IN_BATCHES, *WHILE_INITIALIZING, WHILE_LEADING} >= set(POINTS)


@pytest.mark.parametrize("point", marked(IN_BATCHES, ALWAYS))
def test_the_instance_dies_in_a_batch(point, fleet, ledger):
    fleet.die_in_a_batch(point, IN_BATCHES[point], ledger)


def leave_a_batch_unfinished(fleet, ledger, point):
    """An instance is killed in a batch, so that the next one has something to do when it gets to the point."""
    former = fleet.ensure_running()
    ledger.wait_for_results(fleet)
    fleet.arm("publish-before-flush", 4, "instance")
    ledger.write(240)
    former.wait_for_death("in a batch")
    if point == "restore-after-slice":
        fleet.forget_state()


@pytest.mark.long
@pytest.mark.parametrize("point", WHILE_INITIALIZING)
def test_the_instance_dies_while_it_opens_tasks(point, fleet, ledger):
    leave_a_batch_unfinished(fleet, ledger, point)
    fleet.arm(point, WHILE_INITIALIZING[point], "instance")
    fleet.launch_and_die(f"at {point}")
    fleet.disarm()
    fleet.start()
    ledger.wait_for_results(fleet)


@pytest.mark.long
@pytest.mark.parametrize("point", IN_WORKERS)
def test_a_worker_dies(point, fleet, ledger):
    fleet.lose_a_worker(point, ledger)


@pytest.mark.long
@pytest.mark.parametrize("point", WHILE_RESTORING)
def test_a_worker_dies_while_tasks_open(point, fleet, ledger):
    leave_a_batch_unfinished(fleet, ledger, point)
    fleet.arm(point, WHILE_INITIALIZING[point], "worker")
    instance = fleet.start()
    ledger.wait_for_results(fleet)
    assert fleet.struck
    fleet.disarm()
    assert instance.alive


@pytest.mark.long
def test_state_on_disk_is_lost_and_a_late_reader_finds_the_same(fleet, ledger, kafka_admin, optimization):
    fleet.lose_state(ledger)
    ledger.read_again()
    topics = kafka_admin.list_topics(timeout=LONG).topics
    assert (f"{fleet.application_id}-people-changelog" in topics) == (optimization == "none")

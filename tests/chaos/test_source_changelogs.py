"""The table's topic is its changelog (`topology.optimization`): whoever comes next reads it, to where the group was."""

import pytest
from tests.chaos.marks import marked

pytestmark = [pytest.mark.integration, pytest.mark.chaos, pytest.mark.timeout(600)]

#: Point -> at which time of reaching it, as in test_fault_points: where the copy and the group's offset may differ.
IN_BATCHES = {"state-after-apply": 5, "driver-before-end-txn": 4, "driver-after-end-txn": 5, "driver-after-commit": 3}
#: The revealing ones; `make chaos` tries all.
ALWAYS = {"state-after-apply", "driver-after-end-txn"}


@pytest.fixture(scope="module")
def optimization():
    return "all"


def has_no_copy(fleet, kafka_admin):
    topics = kafka_admin.list_topics(timeout=60).topics
    return f"{fleet.application_id}-people-changelog" not in topics


@pytest.mark.parametrize("point", marked(IN_BATCHES, ALWAYS))
def test_the_instance_dies_in_a_batch(point, fleet, ledger, kafka_admin):
    fleet.die_in_a_batch(point, IN_BATCHES[point], ledger)
    assert has_no_copy(fleet, kafka_admin)


def test_the_instance_dies_while_it_reads_the_topic(fleet, ledger):
    former = fleet.ensure_running()
    ledger.wait_for_results(fleet)
    fleet.arm("publish-before-flush", 4, "instance")
    ledger.write(240)
    former.wait_for_death("in a batch")
    fleet.forget_state()
    fleet.arm("restore-after-slice", 2, "instance")
    fleet.launch_and_die("at restore-after-slice")
    fleet.disarm()
    fleet.start()
    ledger.wait_for_results(fleet)


def test_state_on_disk_is_lost_and_a_late_reader_finds_the_same(fleet, ledger):
    fleet.lose_state(ledger)
    ledger.read_again()

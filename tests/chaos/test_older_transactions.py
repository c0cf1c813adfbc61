"""Exactly once on a cluster whose transaction version was not raised, under kills; and raising it under an instance.

One chain on one broker: what each test leaves, the next one's instance takes up.
"""

import signal

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.chaos,
    pytest.mark.in_order,
    pytest.mark.long,
    pytest.mark.timeout(600),
]

#: Between adding a partition and writing, between writing and ending, around the end, and where tasks are initialized.
IN_BATCHES = {
    "publish-after-send": 17,
    "publish-after-flush": 6,
    "driver-between-waves": 3,
    "driver-before-end-txn": 4,
    "driver-after-end-txn": 5,
}


@pytest.fixture(scope="module")
def kafka():
    from sparkrelay.devkafka import DevKafka

    with DevKafka(features={"transaction.version": 0}) as broker:
        yield broker


@pytest.mark.parametrize("point", IN_BATCHES)
def test_the_instance_dies_in_a_batch(point, fleet, ledger):
    fleet.die_in_a_batch(point, IN_BATCHES[point], ledger)


@pytest.mark.parametrize("point", ["changelog-after-flush", "publish-after-send"])
def test_a_worker_dies(point, fleet, ledger):
    fleet.lose_a_worker(point, ledger)


def test_an_instance_that_slept_through_its_successor_writes_nothing(fleet, ledger):
    zombie = fleet.ensure_running()
    ledger.wait_for_results(fleet)
    # In the middle of its batches.
    ledger.write_and_read_half(400, zombie.tail)
    zombie.signal(signal.SIGSTOP)
    # The zombie's slot of the state directory is locked: the successor restores from the changelogs in another.
    fleet.start(spare=False)
    ledger.wait_for_results(fleet)
    zombie.signal(signal.SIGCONT)
    ledger.write(200)
    ledger.wait_for_results(fleet)
    zombie.kill()
    ledger.write(50)
    ledger.wait_for_results(fleet)


def test_the_transaction_version_is_raised_under_a_running_instance(fleet, ledger, kafka, wait_until):
    from sparkrelay.client.admin import Admin
    from sparkrelay.client.config import ClientConfig
    from sparkrelay.client.kafka_client import KafkaClient

    instance = fleet.ensure_running()
    ledger.write_and_read_half(400, instance.tail)
    with KafkaClient(ClientConfig(bootstrap_servers=kafka.bootstrap_servers)) as client:
        client.bootstrap(30)
        assert "transaction.version" not in Admin(client).features()
        raise_transaction_version(client)
        # The controller has it; the broker knows of it a moment later.
        wait_until(lambda: Admin(client).features().get("transaction.version") == 2, "the broker does not learn of it")
    ledger.wait_for_results(fleet)
    ledger.write(100)
    ledger.wait_for_results(fleet)
    assert instance.alive
    ledger.read_until(lambda: instance.tasks()["state"] == "RUNNING", instance.tail)
    instance.kill()
    # Its successor speaks the newer one, and takes up what the older one left.
    fleet.start(spare=False)
    ledger.write(200)
    ledger.wait_for_results(fleet)
    assert fleet.running.stop() == "stopped NOT_RUNNING"
    ledger.read_again()


def raise_transaction_version(client):
    from kafka.protocol.admin import UpdateFeaturesRequest

    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature="transaction.version", max_version_level=2, allow_downgrade=False, upgrade_type=1
    )
    answer = client.send(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update], validate_only=False))
    client.wait([answer], 30)
    assert answer.result().error_code == 0, answer.result()

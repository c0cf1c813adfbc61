"""The broker goes and returns in the middle of batches: nothing is lost, nothing comes twice, nobody starts anew."""

import time

import pytest

#: Twenty times the session timeout.
OUTAGE_SECONDS = 60

pytestmark = [
    pytest.mark.integration,
    pytest.mark.chaos,
    pytest.mark.in_order,
    pytest.mark.long,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def kafka():
    """A broker of this module's own."""
    from sparkrelay.devkafka import DevKafka

    with DevKafka() as broker:
        yield broker


def complaints(instance):
    return instance.log.read_text(errors="replace").count("the broker closed the connection")


@pytest.mark.parametrize("goes", ["kill", "stop", "pause"])
def test_the_broker_goes_and_returns(goes, kafka, fleet, ledger, wait_until):
    instance = fleet.running or fleet.start(spare=False)
    ledger.wait_for_results(fleet)
    ledger.write_and_read_half(400, instance.tail)
    before = complaints(instance)
    getattr(kafka, goes)()
    if goes != "pause":
        wait_until(lambda: complaints(instance) > before, "the instance does not notice")
        kafka.start()
    else:
        kafka.resume()
    ledger.wait_for_results(fleet)
    ledger.write(100)
    ledger.wait_for_results(fleet)
    assert instance.alive
    wait_until(lambda: instance.ask("status") == "RUNNING", "the trouble is not over")


def test_the_broker_is_gone_for_a_minute(kafka, fleet, ledger, wait_until):
    instance = fleet.ensure_running()
    ledger.wait_for_results(fleet)
    ledger.write_and_read_half(400, instance.tail)
    kafka.kill()
    time.sleep(OUTAGE_SECONDS)
    assert instance.alive, instance.tail()
    kafka.start()
    ledger.wait_for_results(fleet)
    ledger.write(100)
    ledger.wait_for_results(fleet)
    wait_until(lambda: instance.ask("status") == "RUNNING", "the trouble is not over")
    ledger.read_again()


def test_an_instance_stops_while_the_broker_is_away(kafka, fleet, ledger, wait_until):
    instance = fleet.running
    # A late reader finds what the earlier one found.
    ledger.read_again()
    kafka.kill()
    wait_until(lambda: instance.ask("status").startswith("RUNNING: "), "the status does not show the trouble")
    assert instance.stop() == "stopped NOT_RUNNING"

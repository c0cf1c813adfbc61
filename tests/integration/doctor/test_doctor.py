"""The doctor and real brokers: what it finds, and that it waits for nobody without a bound."""

import json

import pytest
from tests.ports import own_port

from sparkrelay.cli import app as command_line
from sparkrelay.devkafka import DevKafka, Listener
from sparkrelay.devkafka.topics import create_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker():
    """One that gives those who come to its second port an address at which nobody listens."""
    away = Listener("AWAY", own_port(), "PLAINTEXT", "localhost", advertised_port=1)
    with DevKafka(listeners=[away]) as running:
        running.away = f"localhost:{away.port}"
        yield running


@pytest.fixture
def doctor(tmp_path, capsys):
    """`doctor(*options)` returns the exit code, and check -> finding."""

    def ask(*options):
        capsys.readouterr()
        code = command_line.run(["doctor", "--state-dir", str(tmp_path / "state"), "--json", *options])
        shown = capsys.readouterr()
        assert shown.err == ""
        return code, {one["check"]: one for one in json.loads(shown.out)["findings"]}

    return ask


def test_a_cluster_that_is_well(broker, doctor):
    servers = broker.bootstrap_servers
    create_topic(servers, "flights", partitions=3)
    create_topic(servers, "delays-sums-changelog", partitions=3, config={"cleanup.policy": "compact"})
    create_topic(servers, "delays-sums-repartition", partitions=3)
    create_topic(servers, "gone-soon", partitions=1, config={"retention.ms": "60000"})
    at = ["--bootstrap-servers", servers, "--application-id", "delays"]
    code, found = doctor(*at, "--sources", "flights", "--sinks", "gone-soon,nowhere")
    assert code == 1
    failed = {check: one for check, one in found.items() if one["verdict"] == "fail"}
    assert set(failed) == {"sink nowhere", "repartition delays-sums-repartition"}
    assert failed["sink nowhere"]["found"] == "it does not exist"
    assert "rows are deleted before they are read" in failed["repartition delays-sums-repartition"]["found"]
    assert found["sink gone-soon"]["verdict"] == "warn"
    assert found["changelog delays-sums-changelog"]["verdict"] == "ok"
    assert found["source flights"]["found"].startswith("3 partitions, 1 replicas, cleanup.policy=delete, kept for")
    assert found[f"address {servers}"]["verdict"] == "ok"
    assert "transaction.version 2" in found["features"]["found"]
    assert found["transactional ids delays-*"]["verdict"] == "ok"
    assert found["clocks of brokers"]["verdict"] == "skip"


def test_an_advertised_address_at_which_nobody_listens(broker, doctor):
    code, found = doctor("--bootstrap-servers", broker.away, "--timeout", "5")
    assert code == 1
    (finding,) = (one for one in found.values() if one["check"].startswith("broker 1 at localhost:"))
    assert finding["verdict"] == "fail"
    assert "advertised.listeners" in finding["remedy"]
    assert found[f"address {broker.away}"]["verdict"] == "ok"


def test_a_broker_that_hangs_is_not_waited_for(broker, doctor):
    broker.pause()
    try:
        code, found = doctor("--bootstrap-servers", broker.bootstrap_servers, "--timeout", "2")
    finally:
        broker.resume()
    assert code == 1
    assert found["brokers"]["verdict"] == "fail"
    assert "within 2 s" in found["brokers"]["found"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ports", "0"], "--ports '0': give numbers from 1 to 65535"),
        (["--timeout", "0"], "--timeout 0: give more than 0"),
        (["--sources", "a"], "give --bootstrap-servers"),
        (["--application-id", "a b"], "--application-id 'a b': use 1 to 200 letters"),
        (["--bootstrap-servers", "x"], "bootstrap.servers"),
    ],
)
def test_wrong_usage_is_one_line(options, words, capsys):
    assert command_line.run(["doctor", *options]) == 1
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.count("\n") == 1


def test_without_a_broker_the_machine_is_looked_at(doctor, capsys):
    code, found = doctor()
    assert found["brokers"]["verdict"] == "skip"
    assert found["java"]["verdict"] == "ok"
    assert code == int(any(one["verdict"] == "fail" for one in found.values()))

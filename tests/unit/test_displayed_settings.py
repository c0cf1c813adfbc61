"""Settings as the live page shows them: no secret, under whatever key it was given."""

import pytest

from sparkrelay.config import HIDDEN, StreamsConfig

LEAST = {"application.id": "delays", "bootstrap.servers": "kafka-1:9092"}


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "sasl.username",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "oauth_cb",
        "consumer.sasl.password",
        "consumer.sasl.username",
        "producer.ssl.key.password",
        "admin.sasl.oauthbearer.config",
        "queries.token",
        "basic.auth.user.info",
    ],
)
def test_what_may_be_a_secret_is_hidden(key):
    shown = StreamsConfig.from_dict({**LEAST, key: "ada:MARKED"}).displayed()
    assert shown[key] == HIDDEN
    assert "MARKED" not in str(shown)


def test_the_others_are_shown_as_they_are():
    given = {
        "num.standby.replicas": 2,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.ca.location": "/etc/ca.pem",
        "client.tag.zone": "b",
        "consumer.fetch.max.bytes": 1000,
        "rack.aware.assignment.tags": "zone",
    }
    shown = StreamsConfig.from_dict({**LEAST, **given}).displayed()
    assert shown["application.id"] == "delays"
    assert shown["num.standby.replicas"] == "2"
    assert shown["client.tag.zone"] == "b"
    assert shown["consumer.fetch.max.bytes"] == "1000"
    assert shown["security.protocol"] == "SASL_SSL"
    assert shown["sasl.mechanism"] == "PLAIN"
    assert shown["ssl.ca.location"] == "/etc/ca.pem"
    assert shown["acceptable.recovery.lag"] == "10000"
    assert "group.instance.id" not in shown, "it is not set"


def test_a_secret_in_an_address_is_hidden():
    shown = StreamsConfig.from_dict({**LEAST, "consumer.proxy": "http://ada:MARKED@proxy"}).displayed()
    assert shown["consumer.proxy"] == HIDDEN

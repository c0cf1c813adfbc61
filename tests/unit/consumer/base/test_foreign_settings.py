"""Whatever setting of the Java client or of librdkafka somebody pastes: it works, is noted, or is refused."""

from pathlib import Path

import pytest

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.foreign_settings import FOREIGN as CLIENT
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.consumer.base.foreign_settings import FOREIGN as CONSUMER
from sparkrelay.errors import ConfigException
from sparkrelay.settings import settings_of

THEIRS = [
    line
    for line in Path(__file__).with_name("other_clients_settings.txt").read_text().splitlines()
    if not line.startswith("#")
]
OURS = ClientConfig.keys() | {
    key for known in settings_of(ConsumerConfig).values() for key in (known.key, *known.aliases)
}
BASE = {"bootstrap.servers": "localhost:9092"}


def test_every_setting_of_other_clients_is_decided():
    undecided = set(THEIRS) - OURS - CLIENT.keys() - CONSUMER.keys()
    assert not undecided


def test_nothing_is_decided_twice():
    assert not OURS & (CLIENT.keys() | CONSUMER.keys())
    assert not CLIENT.keys() & CONSUMER.keys()


@pytest.mark.parametrize("key", sorted(CLIENT.keys() | CONSUMER.keys()))
def test_each_is_noted_or_refused_with_its_reason(key):
    known = CLIENT.get(key) or CONSUMER[key]
    if known.accepted is None:
        ConsumerConfig.from_dict(BASE | {key: "whatever"})
        return
    with pytest.raises(ConfigException) as caught:
        ConsumerConfig.from_dict(BASE | {key: "something else"})
    assert key in str(caught.value)
    assert known.note in str(caught.value)
    for value in known.accepted:
        ConsumerConfig.from_dict(BASE | {key: value})


@pytest.mark.parametrize(
    ("pasted", "remedy"),
    [
        (
            {"sasl.jaas.config": 'PlainLoginModule required username="u" password="hunter2";'},
            "sasl.username and sasl.password",
        ),
        ({"ssl.truststore.location": "/trust.jks"}, "ssl.ca.location"),
        ({"ssl.keystore.location": "/key.p12"}, "openssl pkcs12"),
        (
            {"key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer"},
            "everywhere else keys and values are bytes",
        ),
        ({"interceptor.classes": "com.example.Spy"}, "table that poll"),
        ({"enable.partition.eof": True}, r"end_offsets\(\)"),
        ({"enable.auto.offset.store": False}, "enable.auto.commit to false"),
        ({"allow.auto.create.topics": True}, "create it beforehand"),
        ({"rebalance_cb": print}, "on_assigned"),
        ({"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}, "all addresses of a name are tried"),
        ({"acks": "all"}, "producer's setting"),
    ],
)
def test_well_known_ones_say_what_to_do(pasted, remedy):
    with pytest.raises(ConfigException, match=remedy) as caught:
        ConsumerConfig.from_dict(BASE | pasted)
    assert "hunter2" not in str(caught.value)


def test_a_java_consumers_settings_work_if_they_mean_what_we_do():
    config = ConsumerConfig.from_dict(
        {
            "bootstrap.servers": ["a:1", "b:2"],
            "group.id": "g",
            "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
            "value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
            "client.dns.lookup": "use_all_dns_ips",
            "exclude.internal.topics": True,
            "enable.metrics.push": True,
            "metadata.recovery.strategy": "rebootstrap",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": "-----BEGIN",
            "security.protocol": "SSL",
        }
    )
    assert config.client.ssl_ca_pem == "-----BEGIN"


def test_a_librdkafka_consumers_settings_work_if_they_mean_what_we_do():
    config = ConsumerConfig.from_dict(
        {
            "metadata.broker.list": "a:1",
            "group.id": "g",
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "p",
            "socket.timeout.ms": 60000,
            "topic.metadata.refresh.interval.ms": 300000,
            "queued.max.messages.kbytes": 65536,
            "enable.partition.eof": False,
            "enable.auto.offset.store": True,
            "debug": "cgrp",
            "statistics.interval.ms": 0,
        }
    )
    assert config.client.security_protocol == "SASL_SSL"
    assert (config.client.request_timeout_ms, config.metadata_max_age_ms) == (60000, 300000)

import re

import pytest

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import ConfigException

MINIMAL = {"application.id": "app", "bootstrap.servers": "localhost:9092"}


def config(**changes):
    return StreamsConfig.from_dict(MINIMAL | {key.replace("_", "."): value for key, value in changes.items()})


def test_defaults_are_kafka_streams_own():
    settings = config()
    assert settings.num_standby_replicas == 0
    assert settings.max_warmup_replicas == 2
    assert settings.acceptable_recovery_lag == 10_000
    assert settings.probing_rebalance_interval_ms == 600_000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num.standby.replica": 1},
            "unknown setting num.standby.replica=1 of an instance; did you mean 'num.standby.replicas'",
        ),
        ({"num.standby.replicas": -1}, "num.standby.replicas=-1 is out of range; give 0 to 100"),
        ({"max.task.idle.ms": -1}, "max.task.idle.ms=-1 has Kafka Streams take records in any order.*Leave it at 0"),
        ({"num.standby.replicas": 10**5000}, "num.standby.replicas=an int that cannot be shown is out of range"),
        ({"client.id": 10**5000}, "client.id=an int that cannot be shown is not a valid string"),
        ({"state.dir": "a\0b"}, "no path has a zero byte"),
        ({"max.task.idle.ms": -2}, "max.task.idle.ms=-2 is out of range; give 0 to"),
        ({"num.standby.replicas": "many"}, "num.standby.replicas='many' is not a valid whole number"),
        ({"probing.rebalance.interval.ms": 10}, "probing.rebalance.interval.ms=10 is out of range; give 60000 to"),
        ({"bootstrap.servers": "localhost"}, "bootstrap.servers='localhost': 'localhost' is not HOST:PORT"),
        ({"application.id": "a b"}, "application.id='a b': use 1 to 200 letters"),
        (
            {"processing.guarantee": "exactly_once"},
            "processing.guarantee='exactly_once' is not a setting of an instance: every instance is exactly once",
        ),
        ({"internal.task.assignor.class": "x"}, "use 'task.assignor.class'"),
        ({"session.timeout.ms": 1000, "heartbeat.interval.ms": 900}, "at most a third"),
        ({7: 1}, "setting names are strings"),
        ({"checkpointLocation": "/x"}, "checkpointLocation='/x' of an instance; leave it out: docs/settings.md"),
        ({"state.dir": ""}, "state.dir='': it must not be empty"),
        ({"replication.factor": 0}, "replication.factor=0: give 1 or more, or -1"),
        ({"replication.factor": 40_000}, "replication.factor=40000 is out of range"),
        ({"transaction.timeout.ms": 1 << 40}, "transaction.timeout.ms=1099511627776 is out of range"),
        ({"client.tag.zone": 5}, "client.tag.zone=5 is not a valid string"),
    ],
)
def test_bad_settings_name_key_value_and_remedy(changes, message):
    with pytest.raises(ConfigException, match=message):
        StreamsConfig.from_dict(MINIMAL | changes)


@pytest.mark.parametrize("key", ["sasl_password", "sasl_plain_password", "SSL.key.password"])
def test_a_secret_under_a_misspelt_key_is_not_shown(key):
    with pytest.raises(ConfigException, match="unknown setting") as refused:
        StreamsConfig.from_dict(MINIMAL | {key: "hunter2"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("settings", [None, "application.id=app", [("application.id", "app")]])
def test_settings_that_are_no_dictionary_are_refused(settings):
    with pytest.raises(ConfigException, match=re.escape(f"not a {type(settings).__name__}")):
        StreamsConfig.from_dict(settings)


def test_a_missing_key_is_named():
    with pytest.raises(ConfigException, match="application.id is required: names the group"):
        StreamsConfig.from_dict({"bootstrap.servers": "localhost:9092"})


def test_prefixes_tags_and_security_are_kept_apart():
    settings = StreamsConfig.from_dict(
        MINIMAL
        | {
            "consumer.fetch.max.bytes": 1,
            "producer.compression.type": "zstd",
            "client.tag.zone": "a",
            "security.protocol": "SSL",
        }
    )
    assert settings.consumer == {"fetch.max.bytes": 1}
    assert settings.producer == {"compression.type": "zstd"}
    assert settings.client_tags == {"zone": "a"}
    assert settings.security == {"security.protocol": "SSL"}


def test_servers_may_be_a_list():
    assert config(bootstrap_servers=["a:1", "b:2"]).bootstrap_servers == "a:1,b:2"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"application.server": "nonsense"}, "application.server='nonsense': 'nonsense' is not"),
        ({"application.server": "host:0"}, "'host:0' is not HOST:PORT"),
        ({"application.server": "host:http"}, "'host:http' is not HOST:PORT"),
        ({f"client.tag.t{n}": "x" for n in range(6)}, "at most 5 tags"),
        ({"client.tag." + "k" * 21: "x"}, "is too long: a key has at most 20 characters"),
        ({"client.tag.zone": "v" * 31}, "a value 30"),
        ({"client.tag.sparkrelay.topology": "x"}, "SparkRelay's own"),
        ({"rack.aware.assignment.strategy": "all"}, "must be one of none, min_traffic, balance_subtopology"),
        ({"internal.task.assignor.class": "x"}, "use 'task.assignor.class' instead"),
    ],
)
def test_assignment_settings_that_cannot_be(settings, message):
    with pytest.raises(ConfigException, match=re.escape(message)):
        StreamsConfig.from_dict({"application.id": "app", "bootstrap.servers": "localhost:1"} | settings)


@pytest.mark.parametrize("tags", ["zone, cluster", ["zone", "cluster"], ("zone", "cluster")])
def test_tags_come_as_a_list_or_as_kafka_writes_lists(tags):
    config = StreamsConfig.from_dict(
        {
            "application.id": "app",
            "bootstrap.servers": "localhost:1",
            "rack.aware.assignment.tags": tags,
            "client.tag.zone": "a",
            "client.tag.cluster": "b",
        }
    )
    assert config.rack_aware_assignment_tags == ("zone", "cluster")


@pytest.mark.parametrize(
    ("value", "reuses"), [("none", False), ("all", True), ("reuse.ktable.source.topics", True), (None, False)]
)
def test_an_optimization_is_one_that_there_is(value, reuses):
    assert StreamsConfig.from_dict({**MINIMAL, "topology.optimization": value}).reuses_source_topics == reuses


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("some", "use one of none, all, reuse.ktable.source.topics"),
        ("merge.repartition.topics", "merge.repartition.topics is not needed here, as one repartition"),
        ("single.store.self.join, reuse.ktable.source.topics", "both sides of a join keep one store; use one of none"),
    ],
)
def test_other_optimizations_are_refused_in_words(value, words):
    with pytest.raises(ConfigException, match=words):
        StreamsConfig.from_dict({**MINIMAL, "topology.optimization": value})


@pytest.mark.parametrize("handler", ["deserialization", "processing", "production"])
def test_a_dead_letter_topic_needs_a_handler_that_continues(handler):
    given = {**MINIMAL, "errors.dead.letter.queue.topic.name": "letters"}
    with pytest.raises(ConfigException, match="nothing would be written to 'letters': the exception handlers all fail"):
        StreamsConfig.from_dict(given)
    config = StreamsConfig.from_dict({**given, f"{handler}.exception.handler": "log-and-continue"})
    assert config.skips_records
    assert not StreamsConfig.from_dict(MINIMAL).skips_records


@pytest.mark.parametrize("name", ["a b", "..", "", "ä", "x" * 250])
def test_a_dead_letter_topic_has_a_name_that_kafka_takes(name):
    with pytest.raises(ConfigException, match=r"errors\.dead\.letter\.queue\.topic\.name"):
        StreamsConfig.from_dict({**MINIMAL, "errors.dead.letter.queue.topic.name": name})

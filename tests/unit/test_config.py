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
    assert settings.processing_guarantee == "exactly_once_v2"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num.standby.replica": 1},
            "unknown setting 'num.standby.replica' .*did you mean 'num.standby.replicas'",
        ),
        ({"num.standby.replicas": -1}, "'num.standby.replicas' has the value -1"),
        ({"num.standby.replicas": "many"}, "'num.standby.replicas' has the value 'many'"),
        ({"probing.rebalance.interval.ms": 10}, "'probing.rebalance.interval.ms' has the value 10"),
        ({"bootstrap.servers": "localhost"}, "'localhost' is not HOST:PORT"),
        ({"application.id": "a b"}, "'application.id' has the value 'a b'"),
        ({"processing.guarantee": "exactly_once"}, "'processing.guarantee'"),
        ({"internal.task.assignor.class": "x"}, "use 'task.assignor.class'"),
        ({"session.timeout.ms": 1000, "heartbeat.interval.ms": 900}, "at most a third"),
        ({7: 1}, "setting names are strings"),
    ],
)
def test_bad_settings_name_key_value_and_remedy(changes, message):
    with pytest.raises(ConfigException, match=message):
        StreamsConfig.from_dict(MINIMAL | changes)


def test_a_missing_key_is_named():
    with pytest.raises(ConfigException, match="'application.id' is required"):
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

from __future__ import annotations

import time

import pytest

from sparkrelay.consumer.assignors.built_in import offered
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.errors import ConfigException

BASE = {"bootstrap.servers": "localhost:9092"}
MODERN = {"group.protocol": "consumer"}


def test_defaults_are_kafkas():
    config = ConsumerConfig.from_dict(BASE)
    assert (config.session_timeout_ms, config.heartbeat_interval_ms, config.max_poll_interval_ms) == (
        45000,
        3000,
        300000,
    )
    assert (config.auto_offset_reset, config.isolation_level, config.enable_auto_commit) == (
        "latest",
        "read_uncommitted",
        True,
    )
    assert config.strategies == ("range", "cooperative-sticky")


def test_values_may_be_text_and_keys_librdkafkas():
    config = ConsumerConfig.from_dict(
        BASE | {"fetch.wait.max.ms": "7", "enable.auto.commit": "false", "sasl.mechanisms": "PLAIN", "client.id": "x"}
    )
    assert (config.fetch_max_wait_ms, config.enable_auto_commit, config.client.client_id) == (7, False, "x")


def test_given_values_win_over_other_defaults():
    defaults = {"isolation.level": "read_committed", "fetch.max.bytes": 5}
    config = ConsumerConfig.from_dict(BASE | {"fetch.max.bytes": 6}, defaults=defaults)
    assert config.read_committed
    assert config.fetch_max_bytes == 6


def test_the_broker_assigns_under_kip_848():
    config = ConsumerConfig.from_dict(BASE | {"group.protocol": "CONSUMER", "group.remote.assignor": "range"})
    assert (config.group_protocol, config.group_remote_assignor) == ("consumer", "range")
    assert config.choose_assignors((), offered) == ()
    with pytest.raises(ConfigException, match=r"assignors=round-?robin with group\.protocol='consumer'"):
        config.choose_assignors(offered(("roundrobin",), ()), offered)


def test_members_assign_under_the_classic_protocol():
    config = ConsumerConfig.from_dict(BASE | {"partition.assignment.strategy": "roundrobin"})
    assert [a.name for a in config.choose_assignors((), offered)] == ["roundrobin"]
    given = offered(("range",), ())
    assert config.choose_assignors(given, offered) == given


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"sesion.timeout.ms": 1}, r"sesion\.timeout\.ms.*did you mean 'session\.timeout\.ms'"),
        ({"session_timeout_ms": 1}, "session_timeout_ms"),
        ({"auto.offset.reset": "smallest"}, r"auto\.offset\.reset='smallest'.*did you mean 'earliest'"),
        ({"auto.offset.reset": "beginning"}, r"auto\.offset\.reset='beginning'.*did you mean 'earliest'"),
        ({"auto.offset.reset": "largest"}, r"auto\.offset\.reset='largest'.*did you mean 'latest'"),
        ({"auto.offset.reset": "end"}, r"auto\.offset\.reset='end'.*did you mean 'latest'"),
        ({"auto.offset.reset": "error"}, r"auto\.offset\.reset='error'.*did you mean 'none'"),
        ({"client.id": "c" * 32_768}, r"client\.id='c+\.\.\..*32768 bytes.*32767"),
        ({"client.rack": "\ud800"}, r"client\.rack='\\ud800'.*UTF-8"),
        ({"client.rack": "ä" * 16_384}, r"client\.rack=.*32768 bytes.*32767"),
        ({"group.id": "g" * 32_768}, r"group\.id=.*32768 bytes.*32767"),
        ({"group.instance.id": "g" * 32_768}, r"group\.instance\.id=.*32768 bytes.*32767"),
        ({"request.timeout.ms": 0}, r"request\.timeout\.ms=0 is out of range; give 1 to"),
        ({"socket.connection.setup.timeout.ms": 0}, r"socket\.connection\.setup\.timeout\.ms=0 is out of range"),
        ({"isolation.level": "serializable"}, r"isolation\.level='serializable'"),
        ({"heartbeat.interval.ms": 45000}, r"heartbeat\.interval\.ms=45000 must be less than"),
        ({"max.poll.records": 0}, r"max\.poll\.records=0"),
        ({"fetch.max.bytes": "lots"}, r"fetch\.max\.bytes='lots'.*whole number"),
        ({"enable.auto.commit": 1}, r"enable\.auto\.commit=1.*boolean"),
        ({"group.id": ""}, r"group\.id is empty"),
        ({"group.instance.id": ""}, r"group\.instance\.id is empty"),
        ({"group.protocol": "raft"}, r"group\.protocol='raft'.*classic, consumer"),
        (MODERN | {"session.timeout.ms": 6000}, r"session\.timeout\.ms=6000.*group\.consumer\.session\.timeout\.ms"),
        (MODERN | {"heartbeat.interval.ms": "500"}, r"heartbeat\.interval\.ms='500'.*group\.protocol='classic'"),
        (MODERN | {"partition.assignment.strategy": "range"}, r"strategy='range'.*group\.remote\.assignor"),
        ({"group.remote.assignor": "range"}, r"group\.remote\.assignor='range'.*partition\.assignment\.strategy"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, text):
    with pytest.raises(ConfigException, match=text):
        ConsumerConfig.from_dict(BASE | settings)


@pytest.mark.parametrize(
    ("setting", "seconds"),
    [("by_duration:PT1H", 3600), ("by_duration:P7DT1H30M0.5S", 7 * 86400 + 5400.5), ("by_duration:P1D", 86400)],
)
def test_a_consumer_may_start_so_long_ago(setting, seconds):
    """KIP-1106."""
    before = time.time()
    timestamp = ConsumerConfig.from_dict(BASE | {"auto.offset.reset": setting}).reset_timestamp()
    assert before - seconds - 1 <= timestamp / 1000 <= time.time() - seconds + 1


def test_the_other_starts_are_what_list_offsets_calls_them():
    starts = {"earliest": -2, "latest": -1, "none": None, "by_duration:P99999D": 0}
    for setting, timestamp in starts.items():
        assert ConsumerConfig.from_dict(BASE | {"auto.offset.reset": setting}).reset_timestamp() == timestamp


@pytest.mark.parametrize("text", ["", "P", "PT", "1h", "-PT1H", "PT1H2D", "PT9" + "9" * 30 + "H", "P1M"])
def test_a_duration_that_is_none_is_named(text):
    with pytest.raises(ConfigException, match=r"auto\.offset\.reset='by_duration:.*by_duration:PT1H30M"):
        ConsumerConfig.from_dict(BASE | {"auto.offset.reset": f"by_duration:{text}"})

from pathlib import Path

import pytest
from bench.systems import NO_CACHE, RELAY, STREAMS, STREAMS_EXACTLY_ONCE, STRUCTURED, Variant


def orders(variant):
    return variant.orders(bootstrap_servers="b:1", source="in", sink="out-1", folder=Path("/state"))


def test_what_runs_on_spark_gets_the_same_spark():
    assert orders(Variant(RELAY))["spark"] == orders(Variant(STRUCTURED))["spark"]


def test_kafka_streams_is_given_its_guarantee_and_threads_and_nothing_else():
    assert orders(STREAMS_EXACTLY_ONCE) == {
        "source": "in",
        "sink": "out-1",
        "look_s": 0.25,
        "config": {
            "application.id": "bench-out-1",
            "bootstrap.servers": "b:1",
            "state.dir": "/state",
            "num.stream.threads": 2,
            "processing.guarantee": "exactly_once_v2",
        },
    }


def test_settings_of_a_variant_come_last():
    config = orders(Variant(STREAMS, summary="one", settings=(*NO_CACHE, ("num.stream.threads", "1"))))["config"]
    assert (config["statestore.cache.max.bytes"], config["num.stream.threads"]) == ("0", "1")


def test_a_bound_on_batches_is_shared_among_partitions():
    assert orders(Variant(RELAY, 400_000))["config"]["max.batch.records"] == 100_000


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        (Variant(RELAY), "SparkRelay"),
        (Variant(RELAY, 400_000), "SparkRelay, 400 k a batch"),
        (Variant(STRUCTURED, 2_000_000), "Structured Streaming, 2 M a batch"),
        (STREAMS_EXACTLY_ONCE, "Kafka Streams, exactly once"),
    ],
)
def test_a_variant_is_named_after_its_summary(variant, name):
    assert variant.name == name

"""What is said of topics."""

import pytest

from sparkrelay.doctor.brokers import check_features, check_versions
from sparkrelay.doctor.topics import TopicFacts, check_topic

COMPACT = {"cleanup.policy": "compact", "retention.ms": "604800000", "retention.bytes": "-1"}
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
WEEK = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}


def found(role, *, brokers=1, **facts):
    facts = {"replicas": (1, 1), "operations": None} | facts
    return list(check_topic(TopicFacts("t", role, **facts), brokers=brokers, servers="b:1"))


@pytest.mark.parametrize(
    ("role", "configs"),
    [
        ("source", WEEK),
        ("sink", WEEK),
        ("changelog", COMPACT),
        ("changelog", KEPT | {"cleanup.policy": "compact,delete"}),
        ("repartition", KEPT),
    ],
)
def test_topics_that_are_as_they_should_be(role, configs):
    (finding,) = found(role, configs=configs)
    assert finding.verdict == "ok"
    assert "2 partitions, 1 replicas" in finding.found


@pytest.mark.parametrize(
    ("role", "configs", "words"),
    [
        ("changelog", WEEK, "cleanup.policy=compact"),
        ("changelog", WEEK | {"cleanup.policy": "compact,delete"}, "retention.ms=-1"),
        ("changelog", KEPT | {"cleanup.policy": "compact,delete", "retention.bytes": "9"}, "retention.bytes=-1"),
        ("repartition", COMPACT, "cleanup.policy=delete"),
        ("repartition", WEEK, "retention.ms=-1"),
        ("source", KEPT | {"min.insync.replicas": "2"}, "min.insync.replicas=1"),
    ],
)
def test_settings_that_lose_rows(role, configs, words):
    finding = found(role, configs=configs)[0]
    assert finding.verdict == "fail"
    assert "kafka-configs.sh --bootstrap-server b:1 --alter --entity-type topics --entity-name t" in finding.remedy
    assert words in finding.remedy


def test_sinks_that_delete_soon_are_named():
    (finding,) = found("sink", configs=WEEK | {"retention.ms": "3600000"})
    assert finding.verdict == "warn"
    assert "1 h after their timestamps" in finding.found


def test_a_topic_that_is_not_there_or_not_to_be_seen():
    (missing,) = found("source", error=3)
    assert "kafka-topics.sh --bootstrap-server b:1 --create --topic t" in missing.remedy
    (hidden,) = found("sink", error=29)
    assert hidden.remedy.endswith("--operation WRITE --topic t")


def test_what_is_not_permitted_is_named():
    finding = found("repartition", operations=frozenset({"READ", "DESCRIBE"}))[0]
    assert finding.found == "this user lacks WRITE, DELETE"


def test_partitions_in_trouble():
    assert found("source", leaderless=(1,))[0].found == "partitions 1 have no leader"
    assert found("source", behind=tuple(range(12)))[0].found.startswith("partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...")
    assert "one copy, on a cluster of 3 brokers" in found("source", brokers=3)[0].found


def test_versions_and_features():
    assert check_versions("broker 1", {10: 4, 9: 9}) is None
    assert check_versions("broker 1", {10: 3, 9: 9}).verdict == "fail"
    assert check_features({"transaction.version": 2, "metadata.version": 29}).verdict == "ok"
    assert "--feature transaction.version=2" in check_features({}).remedy

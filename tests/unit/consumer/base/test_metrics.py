import math
from types import SimpleNamespace

import pytest

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import (
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from sparkrelay.consumer.base.metrics import ConsumerMetrics, Window
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.types import TopicPartition


def test_a_window_is_of_two_samples_of_thirty_seconds():
    window = Window()
    window.add(2.0, 100.0)
    window.add(4.0, 110.0)
    assert (window.average(111), window.largest(111)) == (3.0, 4.0)
    # In its first half minute a rate is of half a minute, as in Kafka.
    assert window.rate(111) == 2 / 30
    window.add(9.0, 131.0)
    assert (window.average(131), window.largest(131), window.recent(131)[1]) == (5.0, 9.0, 3)
    assert window.sum_rate(140) == 15 / 40
    # The first sample began at 100: it counts until 160.
    assert (window.average(161), window.largest(161)) == (9.0, 9.0)
    assert math.isnan(window.average(200))
    assert math.isnan(window.largest(200))
    assert window.rate(200) == 0
    assert (window.count, window.total) == (3, 15.0)


def test_a_silent_hour_is_forgotten_by_the_next_value():
    window = Window()
    window.add(50.0, 0.0)
    window.add(1.0, 3600.0)
    assert (window.average(3601), window.largest(3601)) == (1.0, 1.0)


@pytest.fixture
def subscription():
    state = SubscriptionState()
    state.assign_by_hand([TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)])
    return state


def test_nothing_has_happened(subscription):
    values = ConsumerMetrics().snapshot(subscription, 5.0)
    assert values["last-poll-seconds-ago"] == values["last-heartbeat-seconds-ago"] == -1
    assert values["last-rebalance-seconds-ago"] == -1
    assert math.isnan(values["fetch-latency-avg"])
    assert math.isnan(values["records-lag-max"])
    assert values["assigned-partitions"] == 3
    assert values["records-consumed-rate"] == 0
    with pytest.raises(TypeError):
        values["x"] = 1


def test_polls(subscription):
    metrics = ConsumerMetrics()
    metrics.poll_began(10.0)
    metrics.poll_ended(11.0)
    metrics.poll_began(14.0)
    metrics.consumed(500, 14.5)
    metrics.poll_ended(15.0)
    values = metrics.snapshot(subscription, 16.0)
    assert values["time-between-poll-avg"] == values["time-between-poll-max"] == 4000
    assert values["poll-idle-ratio-avg"] == 0.25
    assert values["last-poll-seconds-ago"] == 2
    assert values["records-consumed-total"] == 500


def answer(*sizes):
    parts = [SimpleNamespace(records=None if size is None else b"x" * size) for size in sizes]
    return SimpleNamespace(responses=[SimpleNamespace(partitions=parts)], throttle_time_ms=3)


def test_requests(subscription):
    metrics = ConsumerMetrics()
    fetch = FetchRequest(topics=[])
    metrics.answered(fetch, answer(100, None, 50), None, sent_at=1.0, now=1.5)
    metrics.answered(fetch, answer(), None, sent_at=2.0, now=2.1)
    metrics.answered(fetch, None, RuntimeError("lost"), sent_at=2.0, now=9.0)
    metrics.consumed(30, 3.0)
    metrics.answered(HeartbeatRequest(), SimpleNamespace(error_code=0), None, sent_at=4.0, now=4.2)
    metrics.answered(OffsetCommitRequest(), SimpleNamespace(topics=[]), None, sent_at=4.0, now=4.25)
    values = metrics.snapshot(subscription, 5.2)
    assert (values["fetch-total"], values["bytes-consumed-total"], values["fetch-size-max"]) == (2, 150, 150)
    assert values["fetch-latency-avg"] == pytest.approx(300)
    assert values["fetch-throttle-time-max"] == 3
    assert values["records-per-request-avg"] == 15
    assert (values["heartbeat-total"], values["commit-total"]) == (1, 1)
    assert values["last-heartbeat-seconds-ago"] == pytest.approx(1.0)
    assert values["commit-latency-max"] == pytest.approx(250)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_heartbeat_that_no_coordinator_took_does_not_count(subscription, code):
    metrics = ConsumerMetrics()
    metrics.answered(HeartbeatRequest(), SimpleNamespace(error_code=code), None, sent_at=4.0, now=4.2)
    values = metrics.snapshot(subscription, 5.2)
    assert (values["heartbeat-total"], values["last-heartbeat-seconds-ago"]) == (0, -1)


def test_lag_is_what_is_left_now(subscription):
    for number, position, end in ((0, 10, 25), (1, 7, -1), (2, 9, 9)):
        partition = TopicPartition("t", number)
        subscription.seek(partition, position)
        subscription.get(partition).end = end
    values = ConsumerMetrics().snapshot(subscription, 0.0)
    assert (values["t-0.records-lag"], values["t-2.records-lag"], values["records-lag-max"]) == (15, 0, 15)
    assert "t-1.records-lag" not in values


def test_rebalances(subscription):
    metrics = ConsumerMetrics()
    metrics.rebalance_failed(1.0)
    metrics.rebalanced(2.0, 3.0)
    values = metrics.snapshot(subscription, 13.0)
    assert (values["rebalance-total"], values["failed-rebalance-total"]) == (1, 1)
    assert values["rebalance-latency-total"] == 2000
    assert values["rebalance-rate-per-hour"] == 120
    assert values["last-rebalance-seconds-ago"] == 10


@pytest.mark.parametrize(("make", "name"), [(JoinGroupRequest, "join"), (SyncGroupRequest, "sync")])
def test_a_refused_join_is_none(subscription, make, name):
    metrics = ConsumerMetrics()
    metrics.answered(make(), SimpleNamespace(error_code=79), None, sent_at=1.0, now=1.5)
    metrics.answered(make(), SimpleNamespace(error_code=0), None, sent_at=2.0, now=5.0)
    values = metrics.snapshot(subscription, 5.0)
    assert (values[f"{name}-total"], values[f"{name}-time-avg"]) == (1, 3000)

"""A consumer's metrics, under Kafka's names; see docs/consumer-metrics.md.

Counters are plain numbers, each written by one thread (``poll``'s by the application thread, requests' by the network
thread) and read by any thread: no locks, and a reading may be one event late. Averages, maxima and rates cover the last
30 to 60 seconds, as Kafka's do: two samples of 30 seconds. Callers pass the time.
"""

from __future__ import annotations

import functools
import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import NOT_COORDINATING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.errors import KafkaException

_SAMPLE_SECONDS: Final = 30.0
_MS: Final = 1000.0
_HOUR: Final = 3600.0


class Window:
    """Values of the last 30 to 60 seconds, with their total number and sum since the beginning."""

    __slots__ = ("_before", "_count", "_largest", "_start", "_sum", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._start = -math.inf
        self._count, self._sum, self._largest = 0, 0.0, -math.inf
        #: Start, count, sum and maximum of the sample before.
        self._before = (-math.inf, 0, 0.0, -math.inf)

    def add(self, value: float, now: float) -> None:
        """Add a value."""
        if now - self._start >= _SAMPLE_SECONDS:
            self._before = (self._start, self._count, self._sum, self._largest)
            self._start, self._count, self._sum, self._largest = now, 0, 0.0, -math.inf
        self.count += 1
        self.total += value
        self._count += 1
        self._sum += value
        self._largest = max(self._largest, value)

    def recent(self, now: float) -> tuple[float, int, float, float]:
        """Return start, count, sum and maximum of the recent values."""
        samples = [
            sample
            for sample in ((self._start, self._count, self._sum, self._largest), self._before)
            if now - sample[0] < 2 * _SAMPLE_SECONDS
        ]
        if not samples:
            return now, 0, 0.0, -math.inf
        starts, counts, sums, maxima = zip(*samples, strict=True)
        return min(starts), sum(counts), sum(sums), max(maxima)

    def average(self, now: float) -> float:
        """Return the mean, NaN without values."""
        _, count, total, _ = self.recent(now)
        return total / count if count else math.nan

    def largest(self, now: float) -> float:
        """Return the maximum, NaN without values."""
        _, count, _, largest = self.recent(now)
        return largest if count else math.nan

    def rate(self, now: float) -> float:
        """Return the number of values per second."""
        start, count, _, _ = self.recent(now)
        return count / max(now - start, _SAMPLE_SECONDS)

    def sum_rate(self, now: float) -> float:
        """Return the sum of values per second."""
        start, _, total, _ = self.recent(now)
        return total / max(now - start, _SAMPLE_SECONDS)


class ConsumerMetrics:
    """The counters of one consumer."""

    def __init__(self) -> None:
        # The application's thread.
        self._poll_began = self._poll_ended = -math.inf
        self._between_polls = Window()
        self._idle = Window()
        self._consumed = Window()
        self.commit_sync_seconds = 0.0
        self.committed_seconds = 0.0
        # The network thread.
        self._fetch_latency = Window()
        self._fetch_size = Window()
        self._fetch_throttle = Window()
        self._commits = Window()
        self._heartbeats = Window()
        self._beat_at = -math.inf
        self._joins = Window()
        self._syncs = Window()
        self._rebalances = Window()
        self._failed_rebalances = Window()
        self._rebalanced_at = -math.inf
        self._requests: dict[str, Callable[[Any, float, float], None]] = {
            "FetchRequest": self._fetched,
            "HeartbeatRequest": self._beaten,
            "ConsumerGroupHeartbeatRequest": self._beaten,
            "OffsetCommitRequest": lambda _, took, now: self._commits.add(took, now),
            "JoinGroupRequest": functools.partial(self._granted, self._joins),
            "SyncGroupRequest": functools.partial(self._granted, self._syncs),
        }

    def poll_began(self, now: float) -> None:
        """Record a call of ``poll``."""
        if self._poll_began > -math.inf:
            self._between_polls.add(now - self._poll_began, now)
        self._poll_began = now

    def poll_ended(self, now: float) -> None:
        """Record the return of ``poll``; its share of the time since the last return is idle time."""
        if self._poll_ended > -math.inf:
            self._idle.add((now - self._poll_began) / max(now - self._poll_ended, 1e-9), now)
        self._poll_ended = now

    def consumed(self, records: int, now: float) -> None:
        """Record the rows that ``poll`` returns."""
        self._consumed.add(records, now)

    def answered(self, request: Any, message: Any, error: KafkaException | None, *, sent_at: float, now: float) -> None:
        """Record the answer to a request."""
        note = self._requests.get(type(request).__name__)
        if note is not None and error is None:
            note(message, now - sent_at, now)

    def rebalanced(self, took: float, now: float) -> None:
        """Record a finished rebalance."""
        self._rebalances.add(took, now)
        self._rebalanced_at = now

    def rebalance_failed(self, now: float) -> None:
        """Record a rebalance that began anew or was given up."""
        self._failed_rebalances.add(1, now)

    def _fetched(self, message: Any, took: float, now: float) -> None:
        parts = (part for topic in message.responses for part in topic.partitions)
        self._fetch_latency.add(took, now)
        self._fetch_size.add(sum(len(part.records) for part in parts if part.records is not None), now)
        self._fetch_throttle.add(message.throttle_time_ms, now)

    def _beaten(self, message: Any, took: float, now: float) -> None:
        if message.error_code not in NOT_COORDINATING:
            self._heartbeats.add(took, now)
            self._beat_at = now

    @staticmethod
    def _granted(window: Window, message: Any, took: float, now: float) -> None:
        if not message.error_code:
            window.add(took, now)

    def snapshot(self, subscription: SubscriptionState, now: float) -> Mapping[str, float]:
        """Return all values by Kafka's names; times in milliseconds unless the name says otherwise."""

        def spread(name: str, window: Window, scale: float = _MS) -> dict[str, float]:
            return {f"{name}-avg": window.average(now) * scale, f"{name}-max": window.largest(now) * scale}

        def counted(name: str, window: Window) -> dict[str, float]:
            return {f"{name}-rate": window.rate(now), f"{name}-total": window.count}

        _, fetches, _, _ = self._fetch_latency.recent(now)
        values = {
            **spread("time-between-poll", self._between_polls),
            "last-poll-seconds-ago": _ago(self._poll_began, now),
            "poll-idle-ratio-avg": self._idle.average(now),
            "commit-sync-time-ns-total": self.commit_sync_seconds * 1e9,
            "committed-time-ns-total": self.committed_seconds * 1e9,
            **spread("commit-latency", self._commits),
            **counted("commit", self._commits),
            **counted("heartbeat", self._heartbeats),
            "heartbeat-response-time-max": self._heartbeats.largest(now) * _MS,
            "last-heartbeat-seconds-ago": _ago(self._beat_at, now),
            **counted("join", self._joins),
            **spread("join-time", self._joins),
            **counted("sync", self._syncs),
            **spread("sync-time", self._syncs),
            **spread("rebalance-latency", self._rebalances),
            "rebalance-latency-total": self._rebalances.total * _MS,
            "rebalance-total": self._rebalances.count,
            "rebalance-rate-per-hour": self._rebalances.rate(now) * _HOUR,
            "failed-rebalance-total": self._failed_rebalances.count,
            "failed-rebalance-rate-per-hour": self._failed_rebalances.rate(now) * _HOUR,
            "last-rebalance-seconds-ago": _ago(self._rebalanced_at, now),
            "assigned-partitions": len(subscription.assigned),
            **spread("fetch-latency", self._fetch_latency),
            **counted("fetch", self._fetch_latency),
            **spread("fetch-size", self._fetch_size, 1),
            **spread("fetch-throttle-time", self._fetch_throttle, 1),
            "bytes-consumed-rate": self._fetch_size.sum_rate(now),
            "bytes-consumed-total": self._fetch_size.total,
            "records-consumed-rate": self._consumed.sum_rate(now),
            "records-consumed-total": self._consumed.total,
            "records-per-request-avg": self._consumed.recent(now)[2] / fetches if fetches else math.nan,
        }
        lags = {}
        for partition in sorted(subscription.assigned):
            standing = subscription.get(partition)
            if standing is not None and standing.position is not None and standing.end >= 0:
                lags[f"{partition}.records-lag"] = max(0, standing.end - standing.position)
        values["records-lag-max"] = max(lags.values(), default=math.nan)
        return MappingProxyType({name: float(value) for name, value in (values | lags).items()})


def _ago(then: float, now: float) -> float:
    """Return seconds since then, -1 for never: as Kafka has it."""
    return -1.0 if then == -math.inf else max(0.0, now - then)

"""What a consumer counts, under Kafka's names; see docs/consumer-metrics.md.

Counters are plain numbers, each written by one thread (``poll``'s by the application's, requests' by the network
thread) and read by whoever asks: no locks, and a reading may be one event behind. Averages, maxima and rates look at
the last 30 to 60 seconds, as Kafka's do: two samples of 30 seconds. Whoever counts gives the time.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import NOT_COORDINATING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.errors import KafkaException

__all__ = ["ConsumerMetrics", "Window"]

_SAMPLE_SECONDS: Final = 30.0
_MS: Final = 1000.0
_HOUR: Final = 3600.0


class Window:
    """Values of the last 30 to 60 seconds, and their number and sum since the beginning."""

    __slots__ = ("_before", "_count", "_largest", "_start", "_sum", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self._start = -math.inf
        self._count, self._sum, self._largest = 0, 0.0, -math.inf
        #: Start, count, sum and maximum of the sample before.
        self._before = (-math.inf, 0, 0.0, -math.inf)

    def add(self, value: float, now: float) -> None:
        """Note a value."""
        if now - self._start >= _SAMPLE_SECONDS:
            self._roll(now)
        self.count += 1
        self.total += value
        self._count += 1
        self._sum += value
        self._largest = max(self._largest, value)

    def _roll(self, now: float) -> None:
        self._before = (self._start, self._count, self._sum, self._largest)
        self._start, self._count, self._sum, self._largest = now, 0, 0.0, -math.inf

    def _recent(self, now: float) -> tuple[float, int, float, float]:
        """Return start, count, sum and maximum of what counts still."""
        samples = [(self._start, self._count, self._sum, self._largest), self._before]
        copy_of = [sample for sample in samples if now - sample[0] < 2 * _SAMPLE_SECONDS]
        if not copy_of:
            return now, 0, 0.0, -math.inf
        starts, counts, sums, maxima = zip(*copy_of, strict=True)
        return min(starts), sum(counts), sum(sums), max(maxima)

    def average(self, now: float) -> float:
        """Return the mean; not a number if there was nothing."""
        _, count, total, _ = self._recent(now)
        return total / count if count else math.nan

    def largest(self, now: float) -> float:
        """Return the maximum; not a number if there was nothing."""
        _, count, _, largest = self._recent(now)
        return largest if count else math.nan

    def rate(self, now: float) -> float:
        """Return how many values a second."""
        start, count, _, _ = self._recent(now)
        return count / max(now - start, _SAMPLE_SECONDS)

    def sum_rate(self, now: float) -> float:
        """Return the sum of values a second."""
        start, _, total, _ = self._recent(now)
        return total / max(now - start, _SAMPLE_SECONDS)

    def recent_count(self, now: float) -> int:
        """Return how many values count still."""
        return self._recent(now)[1]


class ConsumerMetrics:
    """See the module."""

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
            "OffsetCommitRequest": self._committed,
            "JoinGroupRequest": self._joined,
            "SyncGroupRequest": self._synced,
        }

    # -- the application's thread ------------------------------------------------------------------------------------

    def poll_began(self, now: float) -> None:
        """Note that ``poll`` was called."""
        if self._poll_began > -math.inf:
            self._between_polls.add(now - self._poll_began, now)
        self._poll_began = now

    def poll_ended(self, now: float) -> None:
        """Note that ``poll`` returns; its share of the time since it returned before is called idle."""
        if self._poll_ended > -math.inf:
            self._idle.add((now - self._poll_began) / max(now - self._poll_ended, 1e-9), now)
        self._poll_ended = now

    def consumed(self, records: int, now: float) -> None:
        """Note what ``poll`` is about to return."""
        self._consumed.add(records, now)

    # -- the network thread ------------------------------------------------------------------------------------------

    def answered(self, request: Any, message: Any, error: KafkaException | None, *, sent_at: float, now: float) -> None:
        """Note the answer to a request."""
        note = self._requests.get(type(request).__name__)
        if note is not None and error is None:
            note(message, now - sent_at, now)

    def rebalanced(self, took: float, now: float) -> None:
        """Note a rebalance that was finished."""
        self._rebalances.add(took, now)
        self._rebalanced_at = now

    def rebalance_failed(self, now: float) -> None:
        """Note a rebalance that had to begin anew, or was given up."""
        self._failed_rebalances.add(1, now)

    def _fetched(self, message: Any, took: float, now: float) -> None:
        size = 0
        for topic in message.responses:
            for part in topic.partitions:
                if part.records is not None:
                    size += len(part.records)
        self._fetch_latency.add(took, now)
        self._fetch_size.add(size, now)
        self._fetch_throttle.add(message.throttle_time_ms, now)

    def _beaten(self, message: Any, took: float, now: float) -> None:
        if message.error_code in NOT_COORDINATING:
            return
        self._heartbeats.add(took, now)
        self._beat_at = now

    def _committed(self, message: Any, took: float, now: float) -> None:
        del message
        self._commits.add(took, now)

    def _joined(self, message: Any, took: float, now: float) -> None:
        if not message.error_code:
            self._joins.add(took, now)

    def _synced(self, message: Any, took: float, now: float) -> None:
        if not message.error_code:
            self._syncs.add(took, now)

    # -- anybody -----------------------------------------------------------------------------------------------------

    def snapshot(self, subscription: SubscriptionState, now: float) -> Mapping[str, float]:
        """Return all values by Kafka's names; times in milliseconds where the name does not say otherwise."""
        fetches = self._fetch_latency
        values = {
            "time-between-poll-avg": self._between_polls.average(now) * _MS,
            "time-between-poll-max": self._between_polls.largest(now) * _MS,
            "last-poll-seconds-ago": _ago(self._poll_began, now),
            "poll-idle-ratio-avg": self._idle.average(now),
            "commit-sync-time-ns-total": self.commit_sync_seconds * 1e9,
            "committed-time-ns-total": self.committed_seconds * 1e9,
            "commit-latency-avg": self._commits.average(now) * _MS,
            "commit-latency-max": self._commits.largest(now) * _MS,
            "commit-rate": self._commits.rate(now),
            "commit-total": self._commits.count,
            "heartbeat-rate": self._heartbeats.rate(now),
            "heartbeat-total": self._heartbeats.count,
            "heartbeat-response-time-max": self._heartbeats.largest(now) * _MS,
            "last-heartbeat-seconds-ago": _ago(self._beat_at, now),
            "join-rate": self._joins.rate(now),
            "join-total": self._joins.count,
            "join-time-avg": self._joins.average(now) * _MS,
            "join-time-max": self._joins.largest(now) * _MS,
            "sync-rate": self._syncs.rate(now),
            "sync-total": self._syncs.count,
            "sync-time-avg": self._syncs.average(now) * _MS,
            "sync-time-max": self._syncs.largest(now) * _MS,
            "rebalance-latency-avg": self._rebalances.average(now) * _MS,
            "rebalance-latency-max": self._rebalances.largest(now) * _MS,
            "rebalance-latency-total": self._rebalances.total * _MS,
            "rebalance-total": self._rebalances.count,
            "rebalance-rate-per-hour": self._rebalances.rate(now) * _HOUR,
            "failed-rebalance-total": self._failed_rebalances.count,
            "failed-rebalance-rate-per-hour": self._failed_rebalances.rate(now) * _HOUR,
            "last-rebalance-seconds-ago": _ago(self._rebalanced_at, now),
            "assigned-partitions": len(subscription.assigned),
            "fetch-latency-avg": fetches.average(now) * _MS,
            "fetch-latency-max": fetches.largest(now) * _MS,
            "fetch-rate": fetches.rate(now),
            "fetch-total": fetches.count,
            "fetch-size-avg": self._fetch_size.average(now),
            "fetch-size-max": self._fetch_size.largest(now),
            "fetch-throttle-time-avg": self._fetch_throttle.average(now),
            "fetch-throttle-time-max": self._fetch_throttle.largest(now),
            "bytes-consumed-rate": self._fetch_size.sum_rate(now),
            "bytes-consumed-total": self._fetch_size.total,
            "records-consumed-rate": self._consumed.sum_rate(now),
            "records-consumed-total": self._consumed.total,
            "records-per-request-avg": self._per_request(now),
        }
        lags = {}
        for partition in sorted(subscription.assigned):
            standing = subscription.get(partition)
            if standing is not None and standing.position is not None and standing.end >= 0:
                lags[f"{partition}.records-lag"] = max(0, standing.end - standing.position)
        values["records-lag-max"] = max(lags.values(), default=math.nan)
        return MappingProxyType({name: float(value) for name, value in (values | lags).items()})

    def _per_request(self, now: float) -> float:
        fetches = self._fetch_latency.recent_count(now)
        if not fetches:
            return math.nan
        consumed = self._consumed
        return consumed.average(now) * consumed.recent_count(now) / fetches if consumed.recent_count(now) else 0.0


def _ago(then: float, now: float) -> float:
    """Return seconds since then, -1 for never: as Kafka has it."""
    return -1.0 if then == -math.inf else max(0.0, now - then)

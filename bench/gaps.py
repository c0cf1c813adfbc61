"""How long a topic was silent: the arrivals of each partition's records, and the longest time between two of them."""

from __future__ import annotations

import bisect
import itertools
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Consumer, TopicPartition

from bench.children import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.feed import Feed

__all__ = ["Watch", "longest_gap"]

_TIMEOUT_S = 30.0


def longest_gap(arrivals: Sequence[float], since: float, until: float) -> float:
    """Return the longest time between two consecutive arrivals, as far as it lies between two moments.

    A silence that begins before ``since`` or ends after ``until`` counts with the part that lies between them: a
    partition that has not come back is silent until ``until``.

    Args:
        arrivals: moments in ascending order, seconds.
        since: from here on.
        until: up to here.
    """
    inside = arrivals[bisect.bisect_left(arrivals, since) : bisect.bisect_right(arrivals, until)]
    moments = [since, *inside, until]
    return max(later - earlier for earlier, later in itertools.pairwise(moments))


class Watch:
    """Reads a result topic from its end on, ``read_committed``, on a thread of its own, while the context is open.

    Args:
        bootstrap_servers: the broker.
        topic: the result topic; users have the same partitions as in the source.
        feed: what is fed, to say how long each record took.

    Attributes:
        arrivals: partition -> when records of it arrived, ascending (``time.perf_counter``).
        waits: how long each remembered record took from produce to output, and when it arrived.
        repeats: rows that do not say more than an earlier row of the same user.
    """

    def __init__(self, bootstrap_servers: str, topic: str, feed: Feed) -> None:
        self._feed = feed
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "bench-watch",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
        self._counts: dict[str, int] = {}
        self._failed: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-watch", daemon=True)
        self.arrivals: dict[int, list[float]] = {}
        self.waits: list[tuple[float, float]] = []
        self.repeats = 0

    def __enter__(self) -> Self:
        places = []
        for partition in self._consumer.list_topics(self._topic, timeout=_TIMEOUT_S).topics[self._topic].partitions:
            place = TopicPartition(self._topic, partition)
            # An offset, not "the end": what is fed from now on is behind it, however late the reader asks.
            place.offset = self._consumer.get_watermark_offsets(place, timeout=_TIMEOUT_S)[1]
            places.append(place)
            self.arrivals[partition] = []
        self._consumer.assign(places)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def gaps(self, since: float, until: float) -> dict[int, float]:
        """Return each partition's longest silence between two moments, in seconds."""
        return {partition: longest_gap(list(seen), since, until) for partition, seen in sorted(self.arrivals.items())}

    def check(self) -> None:
        """Raise what ended the reading, if something did."""
        if self._failed is not None:
            raise BenchError(f"reading {self._topic} failed: {self._failed}") from self._failed

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                # poll() wakes up with the first row, where consume() would wait for more.
                first = self._consumer.poll(0.1)
                if first is not None:
                    self._take([first, *self._consumer.consume(1000, 0.0)], time.perf_counter())
        except Exception as error:  # noqa: BLE001 - the bench raises it
            self._failed = error

    def _take(self, messages: list[Any], now: float) -> None:
        for message in messages:
            if (error := message.error()) is not None:
                if error.fatal():
                    raise BenchError(str(error))
                continue
            seen = self.arrivals[message.partition()]
            if not seen or seen[-1] != now:
                seen.append(now)
            row = json.loads(message.value())
            user, count = row["user"], row["orders"]
            self.repeats += count <= self._counts.get(user, 0)
            self._counts[user] = count
            sent = self._feed.unseen.get(user, ())
            while sent and sent[0][0] <= count:
                self.waits.append((now, now - sent.popleft()[1]))

"""A steady producer for latency and steady runs: so many records a second, each one remembered.

The n-th record of a user that the query keeps is inside the first output row of that user with ``orders >= n``: counts
say for every single record when its effect became visible, without a mark in the records.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Producer

from bench.children import BenchError

if TYPE_CHECKING:
    from bench.results import Totals

__all__ = ["Feed", "Sent"]

_PERIOD_S = 0.005
#: Beyond this rate records go out some milliseconds' together, as those of any producer that is so busy.
_SINGLE_RATE = 20_000
_ACTIONS = ("buy", "view", "sell", "return")
_NOTE = "." * 32

Sent = dict[str, deque[tuple[int, float]]]
"""User -> (its count with this record, or the record's number, when it was handed to the producer), for records that
nobody has seen yet."""


class Feed:
    """Produces from a thread of its own while the context is open.

    Args:
        bootstrap_servers: the broker.
        topic: where to.
        rate: records a second.
        keys: distinct users.
        before: what the topic holds of each user already.
        every: the query keeps every record and writes a row of its own for it, with its number ``n``.

    Attributes:
        unseen: records the query keeps, by user, oldest first; the reader takes them out.
        counts: user -> how many of its records the query keeps.
        sums: user -> what their amounts add up to.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        rate: int,
        keys: int,
        before: Totals | None = None,
        every: bool = False,
    ) -> None:
        # Each record goes out at once: what is measured is the query, not the producer's linger.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "linger.ms": 0 if rate <= _SINGLE_RATE else 5,
                "partitioner": "murmur2_random",
                # What is not delivered is reported by it; a broker that ends before it is no news.
                "log_level": 2,
            }
        )
        self._topic = topic
        self._rate = rate
        self._keys = keys
        self._every = every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-feed", daemon=True)
        self._failed: list[str] = []
        self._remember = False
        self.sent = 0
        self.unseen: Sent = {}
        self.counts: dict[str, int] = {user: count for user, (count, _) in (before or {}).items()}
        self.sums: dict[str, float] = {user: total for user, (_, total) in (before or {}).items()}

    def remember(self) -> None:
        """From now on note when each record is sent."""
        self._remember = True

    def totals(self) -> Totals:
        """Return what the last row of each user must say, once stopped."""
        return {user: (count, self.sums[user]) for user, count in self.counts.items()}

    def stop(self) -> None:
        """Stop producing and wait until all is acknowledged.

        Raises:
            BenchError: a record was not.
        """
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(30)
        if left or self._failed:
            raise BenchError(f"{left} records were not acknowledged within 30 s; errors: {self._failed[:3]}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.perf_counter()
        while not self._stopping.wait(_PERIOD_S):
            due = int((time.perf_counter() - began) * self._rate)
            while self.sent < due:
                self._send(self.sent)
                self.sent += 1
            self._producer.poll(0)

    def _send(self, number: int) -> None:
        # A stride that has no factor in common with the keys visits all of them in an order that looks random.
        user = f"u{number * 7919 % self._keys:06d}"
        action = _ACTIONS[number // self._keys * 3 + number & 3]
        amount = (number % 400 + 1) / 4
        value = json.dumps(
            {"user": user, "amount": amount, "action": action, "n": number, "note": _NOTE}, separators=(",", ":")
        )
        if self._every or action != "view":
            count = self.counts[user] = self.counts.get(user, 0) + 1
            self.sums[user] = self.sums.get(user, 0.0) + amount
            if self._remember:
                self.unseen.setdefault(user, deque()).append((number if self._every else count, time.perf_counter()))
        while True:
            try:
                self._producer.produce(self._topic, key=user, value=value, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.01)
            else:
                return

    def _delivered(self, error: Any, message: Any) -> None:
        del message
        if error is not None:
            self._failed.append(str(error))

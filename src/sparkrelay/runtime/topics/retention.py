"""Warnings about sink topics that delete records soon after they were written.

A row's event time becomes its record's timestamp, and brokers delete by timestamps. So results of old events may be
gone after minutes, without any error.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from sparkrelay.errors import KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sparkrelay.runtime.contract.commands import LegReport

log = logging.getLogger(__name__)

#: The settings of a topic with younger rows only are not looked up.
_YOUNG_MS: Final = 60_000


def retention_ms(configs: Mapping[str, str | None]) -> int | None:
    """Return how many milliseconds after its timestamp a topic deletes a record, by its settings; None if never."""
    kept = int(configs.get("retention.ms") or -1)
    deletes = "delete" in (configs.get("cleanup.policy") or "delete")
    # With LogAppendTime the broker sets the timestamps.
    arrival = configs.get("message.timestamp.type") == "LogAppendTime"
    return kept if kept >= 0 and deletes and not arrival else None


class RetentionWatch:
    """Warns, once for each topic, of rows older than its retention."""

    def __init__(self, retention: Callable[[str], int | None]) -> None:
        """Start; ``retention`` looks up a topic's :func:`retention_ms`, once."""
        self._retention = retention
        self._known: dict[str, int | None] = {}

    def note(self, reports: Iterable[LegReport]) -> None:
        """Check the rows of a batch."""
        now_ms = int(time.time() * 1000)
        for report in reports:
            for topic, oldest_ms in report.oldest_out.items():
                if now_ms - oldest_ms > _YOUNG_MS:
                    self._check(topic, oldest_ms, now_ms)

    def _check(self, topic: str, oldest_ms: int, now_ms: int) -> None:
        if topic not in self._known:
            try:
                self._known[topic] = self._retention(topic)
            except KafkaException as error:
                # Such as a missing ACL; the warning is optional.
                log.debug("retention of topic %r is unknown: %s", topic, error)
                self._known[topic] = None
        kept = self._known[topic]
        if kept is None or now_ms - oldest_ms <= kept:
            return
        self._known[topic] = None
        log.warning(
            "topic %r deletes records %s after their timestamps (retention.ms=%d), and rows of %s UTC are written to "
            "it. They will soon be deleted, because a row's event time is its record's timestamp. To keep them: "
            "kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic %s --add-config retention.ms=-1",
            topic,
            dt.timedelta(milliseconds=kept),
            kept,
            # Timestamps may be beyond the years of a datetime.
            np.datetime64(oldest_ms, "ms").astype("datetime64[s]"),
            topic,
        )

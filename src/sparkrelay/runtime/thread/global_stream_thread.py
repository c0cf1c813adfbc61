"""Kafka Streams' ``GlobalStreamThread``: keeps the global tables of a process.

It fills them before any stream thread of the process joins the group, so that tasks can look rows up from their first
record on, and then follows their topics. If it dies, the process's stream threads die of the same error: tables that
nobody updates would become more and more outdated.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from sparkrelay.client.backoff import Backoff
from sparkrelay.errors import (
    KafkaException,
    SparkRelayError,
    StreamsException,
    UnknownTopicException,
    WakeupException,
)
from sparkrelay.runtime.spark.executor_target import ExecutorLost
from sparkrelay.runtime.spark.jobs import JobFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.batch.global_tables import GlobalTables
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.topics.topics import Topics

log = logging.getLogger(__name__)

#: Small micro-batches cost as much as large ones, and take a Spark slot that tasks may need.
_SPACING_SECONDS: Final = 0.2
#: Interval of progress reports until the tables are complete.
_REPORT_SECONDS: Final = 10.0
#: How soon new partitions of a topic are noticed.
_TOPICS_SECONDS: Final = 30.0


class GlobalStreamThread:
    """Keeps the global tables of one process."""

    def __init__(
        self,
        *,
        name: str,
        config: StreamsConfig,
        tables: GlobalTables,
        topics: Topics,
        on_end: Callable[[], None],
    ) -> None:
        """Prepare the thread; it calls ``on_end`` when it ends. ``topics`` must be its own, since it waits on them."""
        self.name = name
        self._config = config
        self._tables = tables
        self._topics = topics
        self._on_end = on_end
        self._stopping = threading.Event()
        #: Set once the tables are complete or the thread has ended.
        self._complete_or_ended = threading.Event()
        self._failure: Exception | None = None
        self._backoff = Backoff.for_brokers()
        #: Consecutive failures of Spark jobs outside of micro-batches.
        self._job_failures = 0
        #: Since when a topic has been unknown to the brokers (monotonic seconds); None while all are known.
        self._unknown_since: float | None = None
        self._opened = False
        self._topics_due = self._report_due = 0.0
        #: True once the thread has ended and its stores are closed.
        self.ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after its current micro-batch; returns at once."""
        self._stopping.set()
        self._topics.interrupt()

    def give_up_unstarted(self) -> None:
        """Mark a thread that never ran as ended."""
        if self._thread.ident is None:
            self.ended = True

    @property
    def tasks(self) -> list[Task]:
        """Tasks of the global tables, once these are complete. Thread-safe, read-only."""
        return self._tables.tasks if self._complete_or_ended.is_set() and not self.ended else []

    @property
    def failed(self) -> bool:
        """True if the thread died of an error."""
        return self._failure is not None

    def wait_complete(self, seconds: float) -> bool:
        """Wait until the tables are complete; return False on timeout. Raises as :meth:`check` does."""
        done = self._complete_or_ended.wait(seconds)
        self.check()
        return done

    def check(self) -> None:
        """Raise the error that ended the thread, if any, as a SparkRelayError."""
        if self._failure is None:
            return
        if isinstance(self._failure, SparkRelayError):
            raise self._failure
        raise StreamsException(f"{self.name} died: {type(self._failure).__name__}: {self._failure}") from self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._stopping.wait(self._turn())
        except WakeupException:
            pass  # stop() calls
        except Exception as error:  # noqa: BLE001 - the stream threads raise it
            self._failure = error
        finally:
            try:
                self._tables.close()
            except Exception as error:  # noqa: BLE001 - what was not saved is read again
                level = logging.DEBUG if isinstance(error, ExecutorLost) else logging.WARNING
                log.log(level, "%s: global tables could not be closed: %s", self.name, error)
            self._complete_or_ended.set()
            self.ended = True
            self._on_end()

    def _turn(self) -> float:
        """Read what is available; return how many seconds to pause. Raises errors that a retry cannot fix."""
        try:
            pause = self._advance()
        except KafkaException as error:
            # A restarted broker may not know its topics for a moment.
            if not error.retriable and not (isinstance(error, UnknownTopicException) and self._may_come_back()):
                raise
            failure: SparkRelayError = error
        except JobFailed as error:
            self._job_failures += 1
            if self._job_failures > self._config.max_batch_retries:
                raise
            failure = error
        else:
            self._job_failures, self._unknown_since = 0, None
            return pause
        pause = self._backoff.next()
        log.warning("%s: %s; trying again in %.1f s", self.name, failure, pause)
        return pause

    def _may_come_back(self) -> bool:
        """Return whether a topic that was known has been unknown for less than ``default.api.timeout.ms``."""
        now = time.monotonic()
        self._unknown_since = self._unknown_since or now
        return (
            self._complete_or_ended.is_set() and now - self._unknown_since < self._config.default_api_timeout_ms / 1000
        )

    def _advance(self) -> float:
        if not self._opened:
            self._tables.open()
            self._opened = True
        if (now := time.monotonic()) >= self._topics_due:
            self._tables.widen()
            self._topics_due = now + _TOPICS_SECONDS
        outcome = self._tables.advance()
        if outcome is not None and outcome.again:
            return self._backoff.next()
        self._backoff.reset()
        if self._tables.complete and not self._complete_or_ended.is_set():
            log.info("%s: the global tables are complete", self.name)
            self._complete_or_ended.set()
        elif not self._complete_or_ended.is_set() and now >= self._report_due:
            self._report_due = now + _REPORT_SECONDS
            log.info("%s: reading the global tables, %d offsets to go", self.name, self._tables.left)
        if outcome is not None:
            return _SPACING_SECONDS if self._complete_or_ended.is_set() else 0.0
        self._topics.await_records(
            self._tables.positions, timeout=self._config.poll_ms / 1000, over=self._stopping.is_set
        )
        return 0.0

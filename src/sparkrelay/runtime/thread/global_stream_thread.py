"""The thread that keeps a process's global tables, under the name that Kafka Streams has for its own.

It fills them before any stream thread of the process joins the group, so that a task may look into them from its first
row on, and follows their topics from then on. If it dies, the stream threads beside it die of the same error: what they
would find in a table that nobody follows gets older and older.
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

__all__ = ["GlobalStreamThread"]

log = logging.getLogger(__name__)

_SHORTEST_BACKOFF: Final = 0.1
#: A broker that is back is noticed within this.
_LONGEST_BACKOFF: Final = 5.0
#: A micro-batch of a few changes costs as much as one of thousands, and takes a Spark slot that tasks may want.
_SPACING_SECONDS: Final = 0.2
#: How often it says how far it is, before tasks are taken.
_REPORT_SECONDS: Final = 10.0
#: Partitions that a topic gets are noticed within this.
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
        """Prepare the thread.

        Args:
            name: the thread's.
            config: the instance's settings.
            tables: what it keeps.
            topics: its own: it waits for the broker on it.
            on_end: called on the thread when it ends.
        """
        self.name = name
        self._config = config
        self._tables = tables
        self._topics = topics
        self._on_end = on_end
        self._stopping = threading.Event()
        #: Set once the tables are complete, or never will be.
        self._settled = threading.Event()
        self._failure: Exception | None = None
        self._backoff = Backoff(_SHORTEST_BACKOFF, _LONGEST_BACKOFF, jitter=0)
        #: Spark jobs outside of micro-batches that have failed in a row; those have a count of their own.
        self._job_failures = 0
        #: Since when brokers do not know a topic (monotonic seconds); None while they do.
        self._unknown_since: float | None = None
        self._opened = False
        self._topics_due = self._report_due = 0.0
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after its current micro-batch; returns at once."""
        self._stopping.set()
        self._topics.interrupt()

    def give_up_unstarted(self) -> None:
        """Count as ended if the thread never ran."""
        if self._thread.ident is None:
            self._ended = True

    @property
    def ended(self) -> bool:
        """True once the thread has ended, and its stores are closed."""
        return self._ended

    @property
    def tasks(self) -> list[Task]:
        """The tables' tasks, once they are complete. Any thread may ask, and not touch them."""
        return self._tables.tasks if self._settled.is_set() and not self._ended else []

    @property
    def failed(self) -> bool:
        """True if something has ended the thread."""
        return self._failure is not None

    def wait_complete(self, seconds: float) -> bool:
        """Wait until the tables are filled; return False if that takes longer.

        Raises:
            Exception: what ended the thread, if something did.
        """
        settled = self._settled.wait(seconds)
        self.check()
        return settled

    def check(self) -> None:
        """Raise what ended the thread, if something did.

        Raises:
            StreamsException: naming it.
        """
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
            except Exception as error:  # noqa: BLE001 - what they have read is kept, or read once more
                level = logging.DEBUG if isinstance(error, ExecutorLost) else logging.WARNING
                log.log(level, "%s: global tables could not be closed: %s", self.name, error)
            self._settled.set()
            self._ended = True
            self._on_end()

    def _turn(self) -> float:
        """Take in what is there; return for how many seconds to rest.

        Raises:
            SparkRelayError: what trying again cannot mend.
        """
        try:
            pause = self._advance()
        except KafkaException as error:
            # A broker that has just come back may not know its topics for a moment.
            if not error.retriable and not (isinstance(error, UnknownTopicException) and self._may_come_back()):
                raise
            pause = self._backoff.next()
            log.warning("%s: %s; trying again in %.1f s", self.name, error, pause)
        except JobFailed as error:
            self._job_failures += 1
            if self._job_failures > self._config.max_batch_retries:
                raise
            pause = self._backoff.next()
            log.warning("%s: %s; trying again in %.1f s", self.name, error, pause)
        else:
            self._job_failures, self._unknown_since = 0, None
        return pause

    def _may_come_back(self) -> bool:
        """Return whether a topic has been unknown for no longer than any call may take; one that never was is not."""
        now = time.monotonic()
        self._unknown_since = self._unknown_since or now
        return self._settled.is_set() and now - self._unknown_since < self._config.default_api_timeout_ms / 1000

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
        if self._tables.complete and not self._settled.is_set():
            log.info("%s: the global tables are complete", self.name)
            self._settled.set()
        elif not self._settled.is_set() and now >= self._report_due:
            self._report_due = now + _REPORT_SECONDS
            log.info("%s: reading the global tables, %d offsets to go", self.name, self._tables.left)
        if outcome is not None:
            return _SPACING_SECONDS if self._settled.is_set() else 0.0
        self._topics.await_records(
            self._tables.positions, timeout=self._config.poll_ms / 1000, over=self._stopping.is_set
        )
        return 0.0

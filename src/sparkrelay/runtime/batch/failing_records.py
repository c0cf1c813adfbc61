"""Finds the record that makes micro-batches fail, so that the pipeline can continue without it (KIP-1033, KIP-1034).

A failed Spark job reports the exception, but not the record, because user code is not wrapped. So the batch is halved
until one record is left; batches that pass meanwhile are committed. This takes about 2 log2(n) jobs. If several tasks
have one record each, they run one by one. A record that fails twice alone is left out, or once if the same search has
left another one out for the same exception; then the batches double again. A batch that fails even without the record
ends the instance: it would fail forever.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sparkrelay.config import CONTINUE
from sparkrelay.errors import (
    RecordRefusedException,
    RecordTooLargeException,
    SerializationException,
    StreamsException,
)
from sparkrelay.runtime.contract.commands import LeftOut
from sparkrelay.runtime.spark.jobs import JobFailed, UserCodeFailed
from sparkrelay.runtime.tasks.ranges import count_records

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.tasks.task import Task, Work
    from sparkrelay.types import TaskId, TopicPartition

log = logging.getLogger(__name__)

#: Raised if the output of a record cannot be written; other records are not affected.
_NOT_WRITABLE: Final = (SerializationException, RecordTooLargeException, RecordRefusedException)


class FailingRecords:
    """The search for a failing record. Pure; the batch thread owns it.

    ``processing`` and ``production`` choose whether to leave out records for which a step fails, or whose output cannot
    be written; with neither, a failure is never searched for. ``most`` is ``max.batch.records``.
    """

    def __init__(self, *, processing: bool = False, production: bool = False, most: int = 0) -> None:
        self._processing = processing
        self._production = production
        self._most = most
        #: Most records of a task in the next batch; None: no search is under way.
        self._limit: int | None = None
        #: The failing record is among this many next records of a task; 0 if unknown.
        self._within = 0
        #: True while tasks run one by one, as several of them have a single record left.
        self._one_by_one = False
        #: A record that failed alone once.
        self._suspect: tuple[TopicPartition, int] | None = None
        #: Exceptions for which this search has left records out. The next search runs a record twice again: an outage
        #: of a service that a step calls may raise the same exception as a record that the service refuses.
        self._known: set[str] = set()

    @classmethod
    def of(cls, config: StreamsConfig) -> FailingRecords:
        """Return the search for an instance."""
        return cls(
            processing=config.processing_exception_handler == CONTINUE,
            production=config.production_exception_handler == CONTINUE,
            most=config.max_batch_records,
        )

    # -- before a batch ---------------------------------------------------------------------------------------------

    @property
    def searching(self) -> bool:
        """True while batches are limited."""
        return self._limit is not None

    def limited(self, records: int) -> int:
        """Return how many of these records a task may take in a new batch."""
        return records if self._limit is None else min(records, self._limit)

    def chosen(self, work: Work) -> Work:
        """Return the work to run now: a single task if they run one by one."""
        if self._one_by_one:
            for id_, (task, ranges) in work.items():
                if task.attempt.ranges is not None:
                    return {id_: (task, ranges)}
            self._one_by_one = False
        return work

    # -- after a batch ----------------------------------------------------------------------------------------------

    def passed(self, tasks: Collection[Task], counts: Mapping[TaskId, int]) -> None:
        """Record a committed batch; ``counts`` are the records that each task took."""
        if self._limit is None or self._one_by_one:
            return
        self._suspect = None
        most = max((counts[task.id] for task in tasks), default=0)
        self._within = max(0, self._within - most)
        if self._within:
            self._limit = max(1, self._within // 2)
        elif most < self._limit or self._limit * 2 >= self._most:
            # A batch below the limit took all input: the search has ended.
            self._limit = None
            self._known.clear()
        else:
            self._limit *= 2

    def expects(self, error: Exception) -> bool:
        """Return whether this failure belongs to the search, so that the batch is not retried."""
        return self.searching and self._is_of_a_record(error)

    def failed(self, error: Exception, tasks: Collection[Task], *, resident: bool) -> bool:
        """Handle a permanent failure of tasks; return True to run the batch again, smaller or without a record.

        Raises:
            StreamsException: the record was already left out: its dead letter is too large, say.
        """
        counts = {task.id: count_records(task.attempt.ranges or {}) for task in tasks}
        most = max(counts.values(), default=0)
        if not most:
            return False
        if resident and self._processing and isinstance(error, JobFailed):
            # The resident job does not report exceptions: the same batch runs in a job of its own.
            self._limit = self._limit or most
        elif self._is_of_a_record(error):
            self._narrow(error, [task for task in tasks if counts[task.id]], most)
        else:
            return False
        for task in tasks:
            # Failures unrelated to records keep their full number of retries.
            task.attempt.failures = 0
        return True

    def _is_of_a_record(self, error: Exception) -> bool:
        """Return whether leaving a record out can help, and is wanted."""
        if isinstance(error, UserCodeFailed):
            return self._processing
        return self._production and isinstance(error, _NOT_WRITABLE)

    def _narrow(self, error: Exception, suspects: list[Task], most: int) -> None:
        """Run the batch again: halved, task by task, or without the record that is left."""
        if most > 1:
            self._within, self._limit = most, most // 2
            for task in suspects:
                task.batch_narrowed(self._limit)
            log.info("looking for the record that fails: up to %d records a task in the next batch", self._limit)
            return
        self._limit = 1
        if len(suspects) > 1:
            self._one_by_one = True
        else:
            self._failed_alone(error, suspects[0])

    def _failed_alone(self, error: Exception, task: Task) -> None:
        """Suspect the only record of a batch, or leave it out if it has failed before."""
        assert task.attempt.ranges is not None, "a batch that has failed has its ranges"
        [(partition, offset)] = [(p, start) for p, (start, stop) in task.attempt.ranges.items() if stop > start]
        if offset in task.attempt.left_out.get(partition, ()):
            raise StreamsException(
                f"the batch of record {partition} at offset {offset} fails although the record is left out: {error}"
            ) from error
        reason = _left_out(error)
        if self._suspect != (partition, offset) and reason.exception not in self._known:
            self._suspect = partition, offset
            return
        self._suspect, self._within, self._one_by_one = None, 0, False
        self._known.add(reason.exception)
        task.attempt.go_without(partition, offset, reason)
        log.warning(
            "skipped: record %s at offset %d, which fails each time: %s: %s",
            partition,
            offset,
            reason.exception,
            reason.message,
        )


def _left_out(error: Exception) -> LeftOut:
    if isinstance(error, UserCodeFailed):
        return LeftOut(error.exception, error.message, error.trace)
    return LeftOut(f"{type(error).__module__}.{type(error).__name__}", str(error))

"""Finds the record that makes micro-batches fail, so that the pipeline can go on without it (KIP-1033, KIP-1034).

A Spark job that fails says what was raised, and not by which record: user code is not wrapped for that. So the batch is
halved until one record is left; what passes meanwhile is committed. About 2 log2(n) jobs lead there. Where several
tasks have one record each, they run one by one. A record that fails twice alone is left out, or once where another one
has failed in the same way before; the batches grow again from there, twice as large with each that passes. A batch that
fails without the record as well ends the instance: it would fail for ever.
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

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.tasks.task import Ranges, Task
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["FailingRecords"]

log = logging.getLogger(__name__)

#: What is raised if something cannot be written that comes of a record: other records can.
_NOT_WRITABLE: Final = (SerializationException, RecordTooLargeException, RecordRefusedException)


class FailingRecords:
    """What is known of the record that makes micro-batches fail. Pure; the batch thread owns it.

    Args:
        processing: True to leave out records that make a step fail.
        production: True to leave out records of which something comes that cannot be written.
        most: ``max.batch.records``.
    """

    def __init__(self, *, processing: bool, production: bool, most: int) -> None:
        self._processing = processing
        self._production = production
        self._most = most
        #: Records that a task may take in the next batch, while one is looked for.
        self._records: int | None = None
        #: It is among so many, the next ones of some task; 0 if nothing is known of the next ones.
        self._within = 0
        self._one_by_one = False
        #: It has failed alone once.
        self._suspect: tuple[TopicPartition, int] | None = None
        #: The exceptions for which records were left out.
        self._known: set[str] = set()

    @classmethod
    def of(cls, config: StreamsConfig) -> FailingRecords | None:
        """Return what an instance needs; None if each such record is to end it."""
        processing, production = (
            handler == CONTINUE
            for handler in (config.processing_exception_handler, config.production_exception_handler)
        )
        if not processing and not production:
            return None
        return cls(processing=processing, production=production, most=config.max_batch_records)

    @property
    def searching(self) -> bool:
        """True while batches are smaller than they might be."""
        return self._records is not None

    def limited(self, records: int) -> int:
        """Return how many records a task may take in a new batch, of so many."""
        return records if self._records is None else min(records, self._records)

    def chosen(self, work: Mapping[TaskId, tuple[Task, Ranges]]) -> dict[TaskId, tuple[Task, Ranges]]:
        """Return what of the work is run now: one task, where they run one by one."""
        if self._one_by_one:
            unfinished = [id_ for id_, (task, _) in work.items() if task.attempt.ranges is not None]
            if unfinished:
                return {unfinished[0]: work[unfinished[0]]}
            self._one_by_one = False
        return dict(work)

    def expects(self, error: Exception) -> bool:
        """Return whether a batch that fails so is one of those by which a record is found: it is not tried again."""
        return self.searching and self._meant(error)

    def failed(self, error: Exception, tasks: Collection[Task], *, resident: bool) -> bool:
        """Take it that a batch has failed for good; return True if it is to run again, smaller or without a record.

        Args:
            error: what has failed it.
            tasks: those that may be to blame. Their transactions are aborted.
            resident: True if it passed through a job that stays, which does not say what was raised.

        Raises:
            StreamsException: the record is left out already: its letter is too large for the dead letter topic, say.
        """
        counts = {task.id: sum(stop - start for start, stop in (task.attempt.ranges or {}).values()) for task in tasks}
        most = max(counts.values(), default=0)
        if not most:
            return False
        if resident and self._processing and isinstance(error, JobFailed):
            self._records = self._records or most
        elif self._meant(error):
            self._narrow(error, tasks, counts)
        else:
            return False
        for task in tasks:
            # What has nothing to do with records may fail meanwhile, too, and is tried again as often as ever.
            task.attempt.failures = 0
        return True

    def _narrow(self, error: Exception, tasks: Collection[Task], counts: Mapping[TaskId, int]) -> None:
        """Have the batch run again with fewer records, or without one."""
        most = max(counts.values())
        suspects = [task for task in tasks if counts[task.id]]
        if most > 1:
            self._within, self._records = most, most // 2
            for task in suspects:
                task.batch_narrowed(self._records)
            log.info("looking for the record that fails: up to %d records a task in the next batch", self._records)
            return
        self._records = 1
        if len(suspects) > 1:
            self._one_by_one = True
        else:
            self._failed_alone(error, suspects[0])

    def passed(self, tasks: Collection[Task], counts: Mapping[TaskId, int]) -> None:
        """Take it that a batch of those tasks was committed; ``counts`` says how many records each has taken."""
        if self._records is None or self._one_by_one:
            return
        self._suspect = None
        most = max((counts[task.id] for task in tasks), default=0)
        self._within = max(0, self._within - most)
        # One that was not full has taken all that there was.
        ended = not self._within and (most < self._records or self._records * 2 >= self._most)
        self._records = None if ended else max(1, self._within // 2) if self._within else self._records * 2

    def _meant(self, error: Exception) -> bool:
        if isinstance(error, UserCodeFailed):
            return self._processing
        return self._production and isinstance(error, _NOT_WRITABLE)

    def _failed_alone(self, error: Exception, task: Task) -> None:
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

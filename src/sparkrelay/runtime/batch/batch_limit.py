"""How many records a task takes in one micro-batch: fewer after batches that took too long, or too much memory.

The broker aborts a transaction that is open for longer than ``transaction.timeout.ms``. Run again as it was, such a
batch would be aborted for ever. So each time takes half as many records as the last one had; and if that does not help,
because the time goes elsewhere, the instance ends with what to do about it.

How many bytes records take shows only once they are fetched. A batch with more than ``max.batch.bytes`` is aborted as
soon as it has read so many, and runs again with the records that fit. The next ones take no more, but for a try now and
then.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import ProducerFencedException, StreamsException
from sparkrelay.runtime.contract.failure_marks import BatchTooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.runtime.batch.batch_runner import BatchOutcome, Ranges
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.types import TaskId

__all__ = ["BatchLimit"]

log = logging.getLogger(__name__)

#: A batch that took no more than this share of the time may be followed by one of twice the records.
_EASY: Final = 0.25
#: What is left for records that are larger than those before.
_FILLED: Final = 0.8
#: After so many full batches twice as many records may fit.
_FULL_BATCHES: Final = 50


class BatchLimit:
    """Decides, from each batch's outcome, how large the next one may be. Does no I/O.

    Args:
        records: ``max.batch.records``.
        transaction_timeout_ms: ``transaction.timeout.ms``.
        tries: how many batches in a row may outlast their transactions.
    """

    def __init__(self, records: int, transaction_timeout_ms: int, tries: int) -> None:
        self._most = records
        self._timeout_ms = transaction_timeout_ms
        self._tries = tries
        self._outlasted = 0
        #: Records that fit, by the last batch that was too large, and how many full batches there were since.
        self._fitting = records
        self._full = 0
        #: Records that a task may take in the next batch.
        self.records = records

    def note_batch(self, outcome: BatchOutcome, work: Mapping[TaskId, tuple[Task, Ranges]]) -> None:
        """Take the outcome of a batch, and have its tasks take fewer records where they took too many bytes.

        Args:
            outcome: of the batch.
            work: its tasks, and the ranges that each had.

        Raises:
            StreamsException: as :meth:`note` does.
        """
        taken = {id_: sum(stop - start for start, stop in ranges.values()) for id_, (_, ranges) in work.items()}
        free = [id_ for id_, (task, _) in work.items() if not task.attempt.fixed]
        self.note(outcome, max(taken[id_] for id_ in free or work))
        for id_ in free:
            if isinstance(outcome.again.get(id_), BatchTooLarge):
                work[id_][0].batch_narrowed(self.records)

    def note(self, outcome: BatchOutcome, taken: int) -> None:
        """Take what became of a batch.

        Args:
            outcome: of the batch.
            taken: how many records the task had that had the most.

        Raises:
            StreamsException: batches outlast their transactions however few records they take.
        """
        if self._too_large(outcome, taken):
            return
        seconds = outcome.seconds.get("total", 0.0)
        timeout_seconds = self._timeout_ms / 1000
        fenced = [error for error in outcome.reinitialize.values() if isinstance(error, ProducerFencedException)]
        if not fenced or seconds < timeout_seconds:
            if outcome.committed:
                self._outlasted = 0
                self._full += taken >= self._fitting
                if self._full >= _FULL_BATCHES:
                    self._fitting, self._full = min(self._most, self._fitting * 2), 0
                if seconds <= _EASY * timeout_seconds:
                    self.records = min(self._fitting, self.records * 2)
            return
        self._outlasted += 1
        if self._outlasted > self._tries:
            raise StreamsException(
                f"{self._outlasted} batches in a row took longer than transaction.timeout.ms={self._timeout_ms}, and "
                f"the broker aborted them; the last one took {seconds:.1f} s with at most {taken} records a "
                "task. Raise transaction.timeout.ms (and the broker's transaction.max.timeout.ms, if that is lower), "
                "lower max.batch.records, or make the pipeline's steps faster"
            ) from fenced[0]
        # Half of what may be taken would be no less where there was little to take.
        before = min(self.records, taken or self.records)
        self.records = max(1, before // 2)
        log.warning(
            "a batch took %.1f s, longer than transaction.timeout.ms=%d, and was aborted by the broker: the next one "
            "takes %d records a task instead of %d; raise transaction.timeout.ms or lower max.batch.records",
            seconds,
            self._timeout_ms,
            self.records,
            before,
        )

    def _too_large(self, outcome: BatchOutcome, taken: int) -> bool:
        """Take fewer records from now on if a batch was aborted for its bytes; return whether it was."""
        errors = [error for error in outcome.again.values() if isinstance(error, BatchTooLarge)]
        if not errors:
            return False
        share = min(error.share for error in errors) / 1_000_000
        self.records = self._fitting = max(1, min(taken - 1, int(taken * share * _FILLED)))
        self._full = 0
        log.info("%s: the next batches take %d records a task instead of %d", errors[0], self.records, taken)
        return True

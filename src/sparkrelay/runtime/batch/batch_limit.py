"""The number of records that a task takes in one micro-batch: fewer after batches took too long or too much memory.

The broker aborts a transaction that is open for longer than ``transaction.timeout.ms``. Run again unchanged, such a
batch would be aborted forever. So each attempt takes half the records of the last one; if that does not help, the
instance ends with advice.

The bytes of records are only known once they are fetched (``worker.fetch`` counts them). A batch beyond
``max.batch.bytes`` is aborted as soon as it has read that many, and runs again with the records that fit. Later batches
take no more, except for an occasional try.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import ProducerFencedException, StreamsException
from sparkrelay.runtime.contract.failure_marks import BatchTooLarge
from sparkrelay.runtime.tasks.ranges import count_records

if TYPE_CHECKING:
    from sparkrelay.runtime.batch.micro_batch import BatchOutcome
    from sparkrelay.runtime.tasks.task import Work

log = logging.getLogger(__name__)

#: After a batch that took at most this share of the time, the next one may take twice the records.
_EASY: Final = 0.25
#: The rest is reserved for larger records.
_FILLED: Final = 0.8
#: After this many full batches, twice the records are tried.
_FULL_BATCHES: Final = 50


class BatchLimit:
    """Sizes the next batch by the outcome of each; ``tries`` batches in a row may outlast their transactions. Pure."""

    def __init__(self, records: int, transaction_timeout_ms: int, tries: int) -> None:
        self._most = records
        self._timeout_ms = transaction_timeout_ms
        self._tries = tries
        self._outlasted = 0
        #: Records that fit, by the last batch that was too large, and the full batches since.
        self._fitting = records
        self._full = 0
        #: Most records of a task in the next batch.
        self.records = records

    def note_batch(self, outcome: BatchOutcome, work: Work) -> None:
        """Record a batch, narrowing tasks that took too many bytes; raises like :meth:`note`."""
        taken = {id_: count_records(ranges) for id_, (_, ranges) in work.items()}
        free = [id_ for id_, (task, _) in work.items() if not task.attempt.fixed]
        self.note(outcome, max(taken[id_] for id_ in free or work))
        for id_ in free:
            if isinstance(outcome.again.get(id_), BatchTooLarge):
                work[id_][0].batch_narrowed(self.records)

    def note(self, outcome: BatchOutcome, taken: int) -> None:
        """Record a batch; ``taken`` is the largest number of records of a task.

        Raises StreamsException if batches outlast their transactions however few records they take.
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
        # With little input, half of the limit would not be less.
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
        """Take fewer records if a batch was aborted for its bytes; return whether it was."""
        errors = [error for error in outcome.again.values() if isinstance(error, BatchTooLarge)]
        if not errors:
            return False
        share = min(error.share for error in errors) / 1_000_000
        self.records = self._fitting = max(1, min(taken - 1, int(taken * share * _FILLED)))
        self._full = 0
        log.info("%s: the next batches take %d records a task instead of %d", errors[0], self.records, taken)
        return True

"""The transactions of a stream thread: one for each subtopology and Spark partition. ``batch_runner`` ends them.

All tasks of a Spark partition write a micro-batch in one transaction, so neither its requests nor their cost grow with
the tasks. Each subtopology has its own: legs of one that run at the same time write to different topics
(``assign_waves``), but those of two may not, and the records of a producer id in a partition have one sequence.

Three things keep former owners of a task out (docs/internals/exactly-once.md, "How former owners are kept out"):

- Offsets are committed as the group's member, in its current generation (KIP-447). An expelled member cannot commit.
- The new owner of a task initializes the transactional ids of its former owner, which the group's offsets name: this
  aborts open transactions and fences the old epoch.
- A task's changelogs only count once no transaction is open in them.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from sparkrelay.errors import CommitFailedException, KafkaException, SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.client.transactions import ProducerIdentity, TransactionCoordinator
    from sparkrelay.runtime.contract.owners import Owner
    from sparkrelay.runtime.tasks.in_service import InService
    from sparkrelay.types import TopicPartition

log = logging.getLogger(__name__)

#: From the start of a generation on the broker to the leader's assignment.
_GENERATION_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, order=True)
class TransactionKey:
    """One of a thread's transactions: of the tasks of a subtopology in a Spark partition."""

    subtopology: int
    spark_partition: int


class Transactions(Protocol):
    """Lends and ends transactions: :class:`ThreadTransactions`, or a stand-in without a broker."""

    def lend(self, keys: Collection[TransactionKey], /) -> Mapping[TransactionKey, ProducerIdentity]:
        """Return the transactions for workers."""

    def commit(
        self, offsets: Mapping[TransactionKey, Mapping[TopicPartition, int]], /, *, notes: Mapping[TopicPartition, str]
    ) -> Mapping[TransactionKey, SparkRelayError | None]:
        """Commit transactions with their offsets and notes; return the errors."""

    def abort(self, keys: Collection[TransactionKey], /) -> Mapping[TransactionKey, SparkRelayError | None]:
        """Abort transactions; return the errors."""


class ThreadTransactions:
    """Initializes, lends, commits and aborts them. Belongs to the batch thread."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        group_id: str,
        owner: Owner,
        members: InService,
        *,
        timeout_ms: int,
    ) -> None:
        self._coordinator = coordinator
        self._group_id = group_id
        self._owner = owner
        self._members = members
        self._timeout_ms = timeout_ms
        self._open: dict[TransactionKey, ProducerIdentity] = {}
        #: Those whose last transaction may still be open.
        self._unknown: set[TransactionKey] = set()

    def open(self, subtopologies: Collection[int]) -> None:
        """Initialize all ids, before the thread has tasks: aborts what it left when it last died. May be retried."""
        partitions = range(self._owner.spark_partitions)
        self._open_anew([TransactionKey(subtopology, number) for subtopology in subtopologies for number in partitions])

    def lend(self, keys: Collection[TransactionKey]) -> Mapping[TransactionKey, ProducerIdentity]:
        """Return the transactions for workers, until :meth:`commit` or :meth:`abort`. Raises KafkaException."""
        self._open_anew(sorted({*self._unknown, *(key for key in keys if key not in self._open)}))
        return {key: self._open[key] for key in keys}

    def commit(
        self, offsets: Mapping[TransactionKey, Mapping[TopicPartition, int]], *, notes: Mapping[TopicPartition, str]
    ) -> Mapping[TransactionKey, SparkRelayError | None]:
        """Commit transactions with the next offsets of the tasks that wrote in them, and the offsets' notes.

        Returns the errors. After CommitFailedException the transaction was aborted: others may own the tasks. After any
        other error the outcome is unknown.
        """
        outcomes: dict[TransactionKey, SparkRelayError | None] = {}
        left = dict(offsets)
        refused: SparkRelayError = CommitFailedException(
            f"the group {self._group_id!r} has expelled this member since the micro-batch began; others may have its "
            "tasks by now"
        )
        deadline = time.monotonic() + _GENERATION_SECONDS
        member = self._members.member()
        while left and member is not None:
            answers = self._coordinator.commit(
                {self._open[key]: some for key, some in left.items()}, self._group_id, member=member, notes=notes
            )
            for key in list(left):
                answer = answers[self._open[key].transactional_id]
                if isinstance(answer, CommitFailedException):
                    # The transaction is open. A member that is still in the group soon gets its new generation.
                    refused = answer
                    continue
                del left[key]
                outcomes[key] = self._taken(key, answer)
            if left:
                member = self._members.member(but=member, seconds=deadline - time.monotonic())
        if left:
            self._end(left)
            outcomes |= dict.fromkeys(left, refused)
        self._recover()
        return outcomes

    def abort(self, keys: Collection[TransactionKey]) -> Mapping[TransactionKey, SparkRelayError | None]:
        """Abort transactions, even empty ones; errors are as in :meth:`commit`."""
        outcomes = self._end(keys)
        self._recover()
        return outcomes

    def _end(self, keys: Collection[TransactionKey]) -> dict[TransactionKey, SparkRelayError | None]:
        answers = self._coordinator.abort([self._open[key] for key in keys], self._group_id)
        return {key: self._taken(key, answers[self._open[key].transactional_id]) for key in keys}

    def _taken(self, key: TransactionKey, answer: ProducerIdentity | SparkRelayError) -> SparkRelayError | None:
        """Record how a transaction ended; if that is unknown, its id must be initialized again."""
        if isinstance(answer, SparkRelayError):
            del self._open[key]
            self._unknown.add(key)
            return answer
        self._open[key] = answer
        return None

    def _recover(self) -> None:
        """Initialize ids again whose transactions may be open: the tasks' initialization waits for that."""
        if not self._unknown:
            return
        try:
            self._open_anew(self._unknown)
        except KafkaException as error:
            log.warning("transactions of %s may still be open: %s", self._owner.thread, error)

    def _open_anew(self, keys: Collection[TransactionKey]) -> None:
        names = {self._name(key): key for key in keys}
        found = self._coordinator.init(list(names), transaction_timeout_ms=self._timeout_ms)
        self._open |= {names[name]: identity for name, identity in found.items()}
        self._unknown.difference_update(names.values())

    def _name(self, key: TransactionKey) -> str:
        return self._owner.transactional_id(self._group_id, key.subtopology, key.spark_partition)

"""The transactions of a stream thread: one for each subtopology and Spark partition.

What a micro-batch writes for all tasks of a Spark partition becomes visible in one transaction. So neither its requests
nor their cost grow with the tasks. Each subtopology has transactions of its own: its legs that run at the same time
write to different topics (``assign_waves``), and those of two subtopologies need not; but the records of one producer
id to a partition are numbered in one row.

Three things keep former owners of a task out (docs/internals/exactly-once.md, "How former owners are kept out"):

- Offsets are committed by the group's member, under its present generation (KIP-447). Who was expelled cannot commit.
- Whoever takes a task over opens the transactional ids of its former owner, which the group's offsets name: what that
  one has left is aborted, and it writes no more under the old epoch.
- A task's changelogs count only once no transaction is open in them.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from sparkrelay.errors import CommitFailedException, KafkaException, SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.client.transaction_calls import GroupMember
    from sparkrelay.client.transactions import ProducerIdentity, TransactionCoordinator
    from sparkrelay.runtime.contract.owners import Owner
    from sparkrelay.types import TopicPartition

__all__ = ["Members", "ThreadTransactions", "TransactionKey"]

log = logging.getLogger(__name__)

#: From the moment when the broker begins a generation until the leader has said what comes of it.
_GENERATION_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, order=True)
class TransactionKey:
    """Which of a thread's transactions.

    Attributes:
        subtopology: whose tasks write in it.
        spark_partition: in which they are worked on.
    """

    subtopology: int
    spark_partition: int


class Members(Protocol):
    """Says as whom the thread is in the group: ``InService``."""

    def member(self, but: GroupMember | None = None, *, seconds: float = 0.0) -> GroupMember | None:
        """Return as whom offsets may be committed, another one than ``but``; None if there is none."""


class ThreadTransactions:
    """Opens, lends, commits and aborts them. Belongs to the batch thread.

    Args:
        coordinator: asks the brokers.
        group_id: the application's id, with which the transactional ids begin.
        owner: names the thread.
        members: says as whom it is in the group.
        timeout_ms: ``transaction.timeout.ms``.
    """

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        group_id: str,
        owner: Owner,
        members: Members,
        *,
        timeout_ms: int,
    ) -> None:
        self._coordinator = coordinator
        self._group_id = group_id
        self._owner = owner
        self._members = members
        self._timeout_ms = timeout_ms
        self._open: dict[TransactionKey, ProducerIdentity] = {}
        #: Those whose last transaction may not have ended yet.
        self._unknown: set[TransactionKey] = set()

    def open(self, subtopologies: Collection[int]) -> None:
        """Open all transactional ids, before the thread has tasks: what it left when it last died is aborted.

        Raises:
            KafkaException: that failed; it may be tried again.
        """
        partitions = range(self._owner.spark_partitions)
        self._open_anew([TransactionKey(subtopology, number) for subtopology in subtopologies for number in partitions])

    def lend(self, keys: Collection[TransactionKey]) -> Mapping[TransactionKey, ProducerIdentity]:
        """Return what workers are to write under; it ends with :meth:`commit` or :meth:`abort`.

        Raises:
            KafkaException: one could not be opened.
        """
        self._open_anew(sorted({*self._unknown, *(key for key in keys if key not in self._open)}))
        return {key: self._open[key] for key in keys}

    def commit(
        self, offsets: Mapping[TransactionKey, Mapping[TopicPartition, int]], *, notes: Mapping[TopicPartition, str]
    ) -> Mapping[TransactionKey, SparkRelayError | None]:
        """Commit transactions with the offsets of the tasks that have written in them.

        Args:
            offsets: of each transaction, by input partition: the next one to read.
            notes: what is noted with the offset of a partition.

        Returns:
            What went wrong, if anything did. After CommitFailedException it is aborted: the tasks may be others' by
            now. After anything else the outcome is not known.
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
                    # Nothing has ended. A member that is still in the group learns of its new generation soon.
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
        """Abort transactions; what went wrong is as for :meth:`commit`. Nothing need have been written."""
        outcomes = self._end(keys)
        self._recover()
        return outcomes

    def _end(self, keys: Collection[TransactionKey]) -> dict[TransactionKey, SparkRelayError | None]:
        answers = self._coordinator.abort([self._open[key] for key in keys], self._group_id)
        return {key: self._taken(key, answers[self._open[key].transactional_id]) for key in keys}

    def _taken(self, key: TransactionKey, answer: ProducerIdentity | SparkRelayError) -> SparkRelayError | None:
        """Take how a transaction has ended; where that is not known, its id must be opened anew."""
        if isinstance(answer, SparkRelayError):
            del self._open[key]
            self._unknown.add(key)
            return answer
        self._open[key] = answer
        return None

    def _recover(self) -> None:
        """Open anew what may not have ended: who initializes the tasks again waits until that is decided."""
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

"""Adding partitions to transactions before they are written to, as transaction versions 0 and 1 require.

Only the worker that writes knows which partitions it hits; the driver would have to add all partitions of every sink,
and each commit would write a marker to each of them. Partitions are collected while a request is under way, so a batch
costs about two round trips however many partitions it hits, for all transactions at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sparkrelay.client.exchanges import ExchangeSet
from sparkrelay.client.transaction_calls import TransactionCalls
from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.client.transaction_calls import ProducerIdentity
    from sparkrelay.types import TopicPartition

#: A broker handles one request of a connection at a time.
_LANES: Final = 4


@dataclass(slots=True)
class _Joining:
    """A transaction; its partitions are first wanted, then requested (``asked``), then members."""

    identity: ProducerIdentity
    lane: str
    wanted: set[TopicPartition] = field(default_factory=set)
    asked: set[TopicPartition] = field(default_factory=set)
    members: set[TopicPartition] = field(default_factory=set)


class Joins:
    """The partitions of each transaction. Belongs to the thread of its client, which others poll."""

    def __init__(self, client: KafkaClient) -> None:
        self._calls = TransactionCalls(client)
        self._exchanges: ExchangeSet[str, None] = ExchangeSet()
        self._transactions: dict[str, _Joining] = {}

    def begin(self, identity: ProducerIdentity) -> None:
        """Register a transaction without partitions, unless it is known already."""
        if identity.transactional_id in self._transactions:
            return
        lane = f"joining-{len(self._transactions) % _LANES}"
        self._transactions[identity.transactional_id] = _Joining(identity, lane)

    def has(self, transactional_id: str | None) -> bool:
        """Return whether partitions must be added to the transaction by request."""
        return transactional_id in self._transactions

    def may_write(self, transactional_id: str | None, partition: TopicPartition) -> bool:
        """Return whether a partition may be written to; if not yet, the next step requests it."""
        joining = self._transactions.get(transactional_id) if transactional_id is not None else None
        if joining is None or partition in joining.members:
            return True
        if partition not in joining.asked:
            joining.wanted.add(partition)
        return False

    def step(self) -> tuple[dict[str, SparkRelayError], float]:
        """Send requests and take answers.

        Returns:
            Transactions whose partitions cannot be added, and why; and for how many seconds there is nothing to do
            unless an answer arrives.
        """
        for name, joining in self._transactions.items():
            if joining.wanted and name not in self._exchanges:
                joining.asked, joining.wanted = joining.wanted, set()
                request = self._calls.add_partitions(joining.identity, sorted(joining.asked), joining.lane)
                self._exchanges.add(name, request)
        done, idle_seconds = self._exchanges.step()
        failed: dict[str, SparkRelayError] = {}
        for name, outcome in done.items():
            joining = self._transactions[name]
            if isinstance(outcome, SparkRelayError):
                failed[name] = outcome
            else:
                joining.members |= joining.asked
            joining.asked = set()
        return failed, idle_seconds

    def last_error(self, transactional_id: str | None) -> SparkRelayError | None:
        """Return the last error of a transaction's pending request."""
        return None if transactional_id is None else self._exchanges.last_error(transactional_id)

    def forget(self) -> None:
        """Drop all transactions; they may begin again under the same identities."""
        self._exchanges.give_up(0.0)
        self._transactions.clear()

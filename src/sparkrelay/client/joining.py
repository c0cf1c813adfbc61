"""Adding partitions to transactions before they are written to, as transaction versions 0 and 1 want it.

The worker that writes knows which partitions it hits; the driver could only add all partitions of every sink, and
each of them would then get a marker from each commit. Partitions are collected while a request is under way, so that
a batch costs about two round trips however many partitions it hits, side by side for all transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sparkrelay.client.exchanges import ExchangeSet
from sparkrelay.client.transaction_calls import TransactionCalls
from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.client.transaction_calls import ProducerIdentity
    from sparkrelay.types import TopicPartition

__all__ = ["Joins"]

#: A broker works on one request of a connection at a time.
_LANES: Final = 4


@dataclass(slots=True)
class _Joining:
    """One transaction: partitions are wanted, then asked for, then in it."""

    identity: ProducerIdentity
    lane: str
    wanted: set[TopicPartition] = field(default_factory=set)
    asked: set[TopicPartition] = field(default_factory=set)
    members: set[TopicPartition] = field(default_factory=set)


class Joins:
    """Which partitions are in which transaction. Belongs to the thread of its client, which others poll."""

    def __init__(self, client: KafkaClient) -> None:
        self._calls = TransactionCalls(client)
        self._exchanges: ExchangeSet[str, None] = ExchangeSet()
        self._transactions: dict[str, _Joining] = {}

    def begin(self, identity: ProducerIdentity) -> None:
        """Take a transaction on, once; nothing is known of what it has."""
        if identity.transactional_id in self._transactions:
            return
        lane = f"joining-{len(self._transactions) % _LANES}"
        self._transactions[identity.transactional_id] = _Joining(identity, lane)

    def has(self, transactional_id: str | None) -> bool:
        """Return whether the transaction's partitions are added by request."""
        return transactional_id in self._transactions

    def may_write(self, transactional_id: str | None, partition: TopicPartition) -> bool:
        """Return whether a partition may be written to; if not yet, it is asked for with the next step."""
        joining = self._transactions.get(transactional_id) if transactional_id is not None else None
        if joining is None or partition in joining.members:
            return True
        if partition not in joining.asked:
            joining.wanted.add(partition)
        return False

    def step(self) -> tuple[dict[str, SparkRelayError], float]:
        """Send what is wanted, take what is answered.

        Returns:
            Transactions whose partitions cannot be added, and why; and for how many seconds there is nothing to do
            even if nothing is answered.
        """
        for name, joining in self._transactions.items():
            if joining.wanted and name not in self._exchanges:
                joining.asked, joining.wanted = joining.wanted, set()
                self._exchanges.add(name, self._join(joining))
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
        """Return what hinders a transaction that waits for its partitions."""
        return None if transactional_id is None else self._exchanges.last_error(transactional_id)

    def forget(self) -> None:
        """Drop all transactions: the next ones begin anew, also under the same identity."""
        self._exchanges.give_up(0.0)
        self._transactions.clear()

    def _join(self, joining: _Joining) -> Exchange[None]:
        return self._calls.add_partitions(joining.identity, sorted(joining.asked), joining.lane)

"""The driver's side of the tasks' transactions, for all tasks concurrently: open, commit offsets, end.

A task's producer id and epoch are lent to the worker that writes for the task. An old epoch can never write into a
newer transaction, which makes lending safe. Two protocols guarantee that:

- Transaction version 2 (Kafka 4.0, KIP-890): writing adds partitions and groups to a transaction, and ending it returns
  the next epoch, in which sequences start at 0 again.
- Versions 0 and 1: workers add partitions (``joining``), the driver adds the group, and InitProducerId renews the
  epoch, after a commit as well. Kafka's own producer keeps the epoch and continues its sequences. Then a delayed copy
  of an EndTxn, still in some connection's buffer, could end a later transaction; and the next writer would have to know
  all earlier sequences. One round trip a batch buys the same rule for all versions: an epoch lasts one transaction.

The cluster's version is requested whenever an id is opened and is kept until it is opened again: brokers of a cluster
whose version is raised still accept the older requests.
"""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from sparkrelay.client.exchanges import results, run_exchange, run_exchanges
from sparkrelay.client.features import TRANSACTION_VERSION, finalized_features
from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.client.transaction_calls import ProducerIdentity, TransactionCalls

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.errors import SparkRelayError
    from sparkrelay.types import TopicPartition

__all__ = ["ProducerIdentity", "TransactionCoordinator"]

#: A broker handles one request of a connection at a time, and each of ours waits for its log: use a few connections.
_LANES: Final = 4
_NO_NOTES: Final[Mapping[TopicPartition, str]] = MappingProxyType({})

Outcome: TypeAlias = "ProducerIdentity | SparkRelayError"


class TransactionCoordinator:
    """Opens and ends transactions of many transactional ids over one client.

    Every method blocks until all are done, or for ``timeout`` seconds. Belongs to the thread of its client, which must
    be bootstrapped.
    """

    def __init__(self, client: KafkaClient, *, timeout: float = 60.0) -> None:
        self._client = client
        self._timeout = timeout
        self._calls = TransactionCalls(client)

    def init(self, transactional_ids: Collection[str], *, transaction_timeout_ms: int) -> dict[str, ProducerIdentity]:
        """Open transactional ids: fence their former owners, abort open transactions, get new epochs.

        Returns once the aborted transactions have ended, so that offsets listed afterwards are final.

        Raises:
            SparkRelayError: the first failure; ids that were opened may be opened again.
        """
        ids = tuple(dict.fromkeys(transactional_ids))
        if not ids:
            return {}
        version = run_exchange(
            self._client, f"preparing to open {len(ids)} transactional ids", self._prepare(ids), self._timeout
        )
        exchanges = {
            name: self._calls.init(name, transaction_timeout_ms, lane, version=version)
            for name, lane in zip(ids, _lanes(), strict=False)
        }
        return results(run_exchanges(self._client, exchanges, self._timeout))

    def commit(
        self,
        offsets: Mapping[ProducerIdentity, Mapping[TopicPartition, int]],
        group_id: str,
        *,
        member: GroupMetadata | None = None,
        notes: Mapping[TopicPartition, str] = _NO_NOTES,
    ) -> dict[str, Outcome]:
        """Commit each transaction together with its input offsets.

        Kafka refuses to commit a transaction without any writes or offsets (INVALID_TXN_STATE): leave it out or abort
        it.

        Args:
            offsets: for each transaction the next offset to read of each input partition.
            group_id: whose offsets they are.
            member: fences by group generation; None relies on the transactional id's epoch alone.
            notes: metadata to store with the offset of a partition, at most ``offset.metadata.max.bytes``.

        Returns:
            For each transactional id the identity of its next transaction, or its error. After CommitFailedException
            nothing was ended: abort it. After ProducerFencedException another owner has the id. After TimeoutException
            the outcome is unknown: open the id again and look.
        """
        group = member or GroupMetadata(group_id)

        def commit_one(
            identity: ProducerIdentity, positions: Mapping[TopicPartition, int], lane: str
        ) -> Exchange[ProducerIdentity]:
            if positions:
                if identity.joins_by_request:
                    yield from self._calls.add_offsets(identity, group_id, lane)
                yield from self._calls.commit_offsets(identity, positions, group, notes=notes, lane=lane)
            following = yield from self._calls.end(identity, lane, committed=True)
            if identity.joins_by_request:
                following = yield from self._renew(identity, identity.epoch, lane)
            return following

        exchanges = {
            identity.transactional_id: commit_one(identity, positions, lane)
            for (identity, positions), lane in zip(offsets.items(), _lanes(), strict=False)
        }
        return dict(run_exchanges(self._client, exchanges, self._timeout))

    def abort(self, identities: Collection[ProducerIdentity], group_id: str) -> dict[str, Outcome]:
        """Abort each transaction (one without writes too); the result is like ``commit``'s.

        ``group_id`` is the group whose offsets would have been committed.
        """
        exchanges = {
            identity.transactional_id: self._abort_one(identity, group_id, lane)
            for identity, lane in zip(identities, _lanes(), strict=False)
        }
        return dict(run_exchanges(self._client, exchanges, self._timeout))

    # -- exchanges --------------------------------------------------------------------------------------------------

    def _prepare(self, transactional_ids: Collection[str]) -> Exchange[int]:
        yield from self._calls.locate(transactional_ids)
        features = yield from finalized_features(self._client)
        return features.get(TRANSACTION_VERSION, 0)

    def _abort_one(self, identity: ProducerIdentity, group_id: str, lane: str) -> Exchange[ProducerIdentity]:
        if not identity.joins_by_request:
            return (yield from self._calls.end(identity, lane, committed=False))
        # Some worker of the failed attempt may still write, so EndTxn is not enough: its markers carry the very epoch
        # that must be fenced. Those of InitProducerId carry the next one, but it also aborts a new owner's transaction
        # before it checks the epoch. Adding the group first reports a fenced epoch. After that the open transaction is
        # ours, its epoch is fenced by the next one, and that one is ours to give up for the one after it, however often
        # the request must be repeated.
        yield from self._calls.add_offsets(identity, group_id, lane)
        return (yield from self._renew(identity, identity.epoch + 1, lane))

    def _renew(self, identity: ProducerIdentity, newest: int, lane: str) -> Exchange[ProducerIdentity]:
        """Get a new epoch, unless there is one newer than ``newest``."""
        return (
            yield from self._calls.init(
                identity.transactional_id,
                identity.timeout_ms,
                lane,
                version=identity.version,
                expected=(identity.producer_id, newest),
            )
        )


def _lanes() -> Iterator[str]:
    return itertools.cycle(f"transactions-{i}" for i in range(_LANES))

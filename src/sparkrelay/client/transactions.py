"""The driver's side of the tasks' transactions: open them, commit offsets into them, end them; all tasks at once.

A task's producer id and epoch are lent to whichever worker writes for the task. An old epoch can never write into a
newer transaction, which is what makes lending safe. Two protocols give that:

- Transaction version 2 (Kafka 4.0, KIP-890): partitions and groups join a transaction by being written to, and ending
  it hands back the next epoch, under which sequences start at 0 again.
- Versions 0 and 1: workers add partitions (``joining``), the driver adds the group, and the epoch is renewed by
  InitProducerId, after a commit as well. Kafka's own producer keeps it and lets sequences go on. Then a copy of an
  EndTxn whose answer was lost, still in some connection's buffer, could end a later transaction; and whoever writes
  next must know every sequence that the last ones used. One round trip a batch buys the same rule for all versions:
  an epoch lasts one transaction.

Which one a cluster speaks is asked whenever an id is opened, and stays with what was opened: brokers of a cluster
whose version is raised go on taking the older requests.
"""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from sparkrelay.client.exchanges import results, run_exchange, run_exchanges
from sparkrelay.client.features import TRANSACTION_VERSION, finalized_features
from sparkrelay.client.transaction_calls import GroupMember, ProducerIdentity, TransactionCalls

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.errors import SparkRelayError
    from sparkrelay.types import TopicPartition

__all__ = ["GroupMember", "ProducerIdentity", "TransactionCoordinator"]

#: A broker works on one request of a connection at a time, and each of ours waits for its log: a few connections.
_LANES: Final = 4

Outcome: TypeAlias = "ProducerIdentity | SparkRelayError"


class TransactionCoordinator:
    """Opens and ends transactions of many transactional ids over one client.

    Every method blocks until all is done or ``timeout`` is over. Belongs to the thread of its client.

    Args:
        client: must be bootstrapped.
        timeout: seconds that one call may take in all.
        metadata: topic -> what is noted with each offset that is committed of it, for whoever reads the group's
            offsets.
    """

    def __init__(
        self, client: KafkaClient, *, timeout: float = 60.0, metadata: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._client = client
        self._timeout = timeout
        self._calls = TransactionCalls(client, metadata)

    def init(self, transactional_ids: Collection[str], *, transaction_timeout_ms: int) -> dict[str, ProducerIdentity]:
        """Open transactional ids: fence whoever held them, abort what they left, get new epochs.

        Waits until what the former holder left is decided, so that ends listed afterwards are final.

        Raises:
            SparkRelayError: the first failure; those that were opened may simply be opened again.
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
        member: GroupMember | None = None,
    ) -> dict[str, Outcome]:
        """Commit each transaction together with its input offsets.

        A transaction into which nothing was written, not even offsets, cannot be committed: Kafka refuses that as
        INVALID_TXN_STATE. Leave it out, or abort it.

        Args:
            offsets: for each transaction the next offset to read of each input partition.
            group_id: whose offsets they are.
            member: fences by group generation; None relies on the transactional id's epoch alone.

        Returns:
            For each transactional id the identity of its next transaction, or what went wrong. After
            CommitFailedException nothing was ended: abort it. After ProducerFencedException the id is somebody else's.
            After TimeoutException the outcome is unknown: open it again and look.
        """
        exchanges = {
            identity.transactional_id: self._commit_one(identity, positions, group_id, member or GroupMember(), lane)
            for (identity, positions), lane in zip(offsets.items(), _lanes(), strict=False)
        }
        return dict(run_exchanges(self._client, exchanges, self._timeout))

    def abort(self, identities: Collection[ProducerIdentity], group_id: str) -> dict[str, Outcome]:
        """Abort each transaction; results as for ``commit``. One into which nothing was written may be aborted too.

        Args:
            identities: what to abort.
            group_id: whose offsets would have been committed.
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

    def _commit_one(
        self,
        identity: ProducerIdentity,
        offsets: Mapping[TopicPartition, int],
        group_id: str,
        member: GroupMember,
        lane: str,
    ) -> Exchange[ProducerIdentity]:
        if offsets:
            if identity.joins_by_request:
                yield from self._calls.add_offsets(identity, group_id, lane)
            yield from self._calls.commit_offsets(identity, offsets, group_id, member, lane)
        following = yield from self._calls.end(identity, lane, committed=True)
        if identity.joins_by_request:
            following = yield from self._renew(identity, identity.epoch, lane)
        return following

    def _abort_one(self, identity: ProducerIdentity, group_id: str, lane: str) -> Exchange[ProducerIdentity]:
        if not identity.joins_by_request:
            return (yield from self._calls.end(identity, lane, committed=False))
        # Some worker of the failed try may still write, so EndTxn will not do: its markers carry the very epoch that is
        # to be shut out. InitProducerId's carry the next one, but it aborts a new owner's transaction too, before it
        # looks at the epoch. So the group is added first: who is fenced learns it from that, and whose transaction is
        # open afterwards has its epoch fenced by the next one, which is then ours to give up for the one after it,
        # however often the request must be repeated.
        yield from self._calls.add_offsets(identity, group_id, lane)
        return (yield from self._renew(identity, identity.epoch + 1, lane))

    def _renew(self, identity: ProducerIdentity, newest: int, lane: str) -> Exchange[ProducerIdentity]:
        """Get a new epoch, unless there is a newer one than ``newest``."""
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

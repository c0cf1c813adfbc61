"""The driver's side of the tasks' transactions: open them, commit offsets into them, end them; all tasks at once.

A task's producer id and epoch are lent to whichever worker writes for the task; workers only send Produce requests.
This module speaks transaction version 2 only (Kafka 4.0, KIP-890): partitions and groups join a transaction when they
are first written to, and ending it hands back the next epoch, under which sequences start at 0 again. An old epoch can
then never write into a newer transaction, which is what makes lending safe.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sparkrelay.client.broker_errors import ErrorCode, broker_error, is_retriable
from sparkrelay.client.coordinators import CoordinatorCache, CoordinatorKind, is_moved
from sparkrelay.client.flows import Backoff, results, run_flow, run_flows
from sparkrelay.client.messages import EndTxnRequest, InitProducerIdRequest, TxnOffsetCommitRequest
from sparkrelay.errors import CommitFailedException, ProducerFencedException, SparkRelayError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sparkrelay.client.flows import Flow
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.errors import KafkaException
    from sparkrelay.types import TopicPartition

__all__ = ["GroupMember", "ProducerIdentity", "TransactionCoordinator"]

#: A broker works on one request of a connection at a time, and each of ours waits for its log: a few connections.
_LANES: Final = 4
#: The former transaction's markers are still being written: a matter of milliseconds, so do not wait for 100.
_CONCURRENT_BACKOFF_S: Final = 0.005
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_NOT_A_MEMBER: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
)


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The right to write one transaction: who (transactional id), and which opening of it (producer id and epoch)."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """Membership under which offsets are committed; the default is nobody's, which classic groups accept."""

    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


Outcome: TypeAlias = "ProducerIdentity | SparkRelayError"


class TransactionCoordinator:
    """Opens and ends transactions of many transactional ids over one client.

    Every method blocks until all is done or ``timeout`` is over. Belongs to the thread of its client.

    Args:
        client: must be bootstrapped.
        timeout: seconds that one call may take in all.
    """

    def __init__(self, client: KafkaClient, *, timeout: float = 60.0) -> None:
        self._client = client
        self._timeout = timeout
        self._coordinators = CoordinatorCache(client)

    def init(self, transactional_ids: Collection[str], *, transaction_timeout_ms: int) -> dict[str, ProducerIdentity]:
        """Open transactional ids: fence whoever held them, abort what they left, get new epochs.

        Waits until what the former holder left is decided, so that ends listed afterwards are final.

        Raises:
            SparkRelayError: the first failure; those that were opened may simply be opened again.
        """
        ids = tuple(dict.fromkeys(transactional_ids))
        run_flow(
            self._client,
            f"finding the transaction coordinators of {len(ids)} ids",
            self._coordinators.locate(CoordinatorKind.TRANSACTION, ids),
            self._timeout,
        )
        flows = {
            name: self._init_one(name, transaction_timeout_ms, lane) for name, lane in zip(ids, _lanes(), strict=False)
        }
        return results(run_flows(self._client, flows, self._timeout))

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
        return self._end_all(offsets, group_id, member or GroupMember(), committed=True)

    def abort(self, identities: Collection[ProducerIdentity]) -> dict[str, Outcome]:
        """Abort each transaction; results as for ``commit``. One into which nothing was written may be aborted too."""
        return self._end_all({identity: {} for identity in identities}, "", GroupMember(), committed=False)

    # -- flows ------------------------------------------------------------------------------------------------------

    def _end_all(
        self,
        offsets: Mapping[ProducerIdentity, Mapping[TopicPartition, int]],
        group_id: str,
        member: GroupMember,
        *,
        committed: bool,
    ) -> dict[str, Outcome]:
        flows = {
            identity.transactional_id: self._end_one(identity, positions, group_id, member, lane, committed=committed)
            for (identity, positions), lane in zip(offsets.items(), _lanes(), strict=False)
        }
        return dict(run_flows(self._client, flows, self._timeout))

    def _init_one(self, transactional_id: str, timeout_ms: int, lane: str) -> Flow[ProducerIdentity]:
        backoff = Backoff(self._client.config)
        while True:
            answer = yield from self._ask(
                CoordinatorKind.TRANSACTION,
                transactional_id,
                InitProducerIdRequest(
                    transactional_id=transactional_id,
                    transaction_timeout_ms=timeout_ms,
                    producer_id=-1,
                    producer_epoch=-1,
                ),
                lane,
                backoff,
            )
            if not answer.error_code:
                return ProducerIdentity(transactional_id, answer.producer_id, answer.producer_epoch)
            yield from self._retry_or_raise(
                CoordinatorKind.TRANSACTION,
                transactional_id,
                broker_error(answer.error_code, f"opening transactional.id {transactional_id}"),
                answer.error_code,
                backoff,
            )

    def _end_one(
        self,
        identity: ProducerIdentity,
        offsets: Mapping[TopicPartition, int],
        group_id: str,
        member: GroupMember,
        lane: str,
        *,
        committed: bool,
    ) -> Flow[ProducerIdentity]:
        if offsets:
            yield from self._commit_offsets(identity, offsets, group_id, member, lane)
        backoff = Backoff(self._client.config)
        verb = "committing" if committed else "aborting"
        what = f"{verb} the transaction of {identity.transactional_id} (epoch {identity.epoch})"
        while True:
            # Repeating it after a lost connection is safe: the coordinator knows the epoch it has just ended and gives
            # the same answer again (KIP-890), so the outcome never stays unknown while the broker can be reached.
            answer = yield from self._ask(
                CoordinatorKind.TRANSACTION,
                identity.transactional_id,
                EndTxnRequest(
                    transactional_id=identity.transactional_id,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.epoch,
                    committed=committed,
                    min_version=5,
                ),
                lane,
                backoff,
            )
            if not answer.error_code:
                return ProducerIdentity(identity.transactional_id, answer.producer_id, answer.producer_epoch)
            yield from self._retry_or_raise(
                CoordinatorKind.TRANSACTION,
                identity.transactional_id,
                broker_error(answer.error_code, what),
                answer.error_code,
                backoff,
            )

    def _commit_offsets(
        self,
        identity: ProducerIdentity,
        offsets: Mapping[TopicPartition, int],
        group_id: str,
        member: GroupMember,
        lane: str,
    ) -> Flow[None]:
        backoff = Backoff(self._client.config)
        what = f"committing offsets of group {group_id} in the transaction of {identity.transactional_id}"
        while True:
            answer = yield from self._ask(
                CoordinatorKind.GROUP, group_id, _offsets_request(identity, offsets, group_id, member), lane, backoff
            )
            codes = {
                (topic.name, part.partition_index): part.error_code
                for topic in answer.topics
                for part in topic.partitions
                if part.error_code
            }
            if not codes:
                return
            # A fatal code must not hide behind a retriable one of another partition.
            (topic, partition), code = min(codes.items(), key=lambda item: is_retriable(item[1]))
            if code in _NOT_A_MEMBER:
                raise CommitFailedException(
                    f"{what}: group generation {member.generation} of member {member.member_id!r} is over "
                    f"({ErrorCode(code).name}); abort the transaction"
                )
            error = broker_error(code, f"{what}, {topic}-{partition}")
            yield from self._retry_or_raise(CoordinatorKind.GROUP, group_id, error, code, backoff)

    def _ask(self, kind: CoordinatorKind, key: str, request: object, lane: str, backoff: Backoff) -> Flow[Any]:
        """Send to a coordinator, found anew for each attempt if it moved or could not be reached."""
        yield from self._coordinators.locate(kind, (key,))
        while True:
            response = self._client.send(request, node=self._coordinators.get(kind, key), lane=lane)
            yield response
            if response.error is None:
                return response.result()
            if not response.error.retriable:
                raise response.error
            self._coordinators.forget(kind, key)
            yield backoff.next(response.error)
            yield from self._coordinators.locate(kind, (key,))

    def _retry_or_raise(
        self, kind: CoordinatorKind, key: str, error: KafkaException, code: int, backoff: Backoff
    ) -> Flow[None]:
        if code in _FENCED:
            raise ProducerFencedException(
                f"{error}: another owner opened {key}, or it stayed open for longer than transaction.timeout.ms; "
                "drop the task, or open it again if it is still ours"
            )
        if is_moved(code):
            self._coordinators.forget(kind, key)
        elif not is_retriable(code):
            raise error
        first = _CONCURRENT_BACKOFF_S if code == ErrorCode.CONCURRENT_TRANSACTIONS else None
        yield backoff.next(error, first=first)


def _lanes() -> Iterator[str]:
    return itertools.cycle(f"transactions-{i}" for i in range(_LANES))


def _offsets_request(
    identity: ProducerIdentity, offsets: Mapping[TopicPartition, int], group_id: str, member: GroupMember
) -> object:
    topics: dict[str, list[object]] = {}
    for tp, offset in offsets.items():
        topics.setdefault(tp.topic, []).append(
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition(
                partition_index=tp.partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=identity.transactional_id,
        group_id=group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=[
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=name, partitions=parts)
            for name, parts in topics.items()
        ],
        min_version=5,
    )

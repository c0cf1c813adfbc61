"""The requests of Kafka's transaction protocol, each as an exchange that finds its coordinator and repeats what passes.

Which requests make up a transaction is decided elsewhere (``transactions`` for the driver, ``joining`` for workers);
here is what they have in common, and the identity under which all of them are sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error, fenced_reason, is_retriable
from sparkrelay.client.coordinators import CoordinatorCache, CoordinatorKind, is_moved
from sparkrelay.client.exchanges import Pause
from sparkrelay.client.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from sparkrelay.errors import CommitFailedException, ProducerFencedException

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from sparkrelay.client.backoff import Backoff
    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.errors import KafkaException
    from sparkrelay.types import TopicPartition

__all__ = ["GroupMember", "ProducerIdentity", "TransactionCalls", "offsets_by_request"]

#: From this version of a cluster's transactions on, writing adds to a transaction and ending it renews the epoch.
_IMPLICIT: Final = 2
#: The former transaction's markers are still being written: a matter of milliseconds, so do not wait for 100, and look
#: often also where it takes longer.
_CONCURRENT_FIRST_S: Final = 0.005
_CONCURRENT_LONGEST_S: Final = 0.05
#: What a transaction takes on what is protected.
_NEEDS: Final[dict[int, str]] = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "WRITE",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "READ",
}
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_NOT_A_MEMBER: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
)


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The right to write one transaction: who (transactional id), and which opening of it (producer id and epoch).

    Attributes:
        transactional_id: of the task.
        producer_id: as the broker gave it out.
        epoch: a smaller one than the coordinator's is refused everywhere.
        version: the cluster's ``transaction.version`` when it was opened.
        timeout_ms: its ``transaction.timeout.ms``, which lasts as long as it is renewed.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    version: int = _IMPLICIT
    timeout_ms: int = field(default=60_000, compare=False)

    @property
    def joins_by_request(self) -> bool:
        """True if partitions and groups must be added to the transaction before they are written to."""
        return self.version < _IMPLICIT


@dataclass(frozen=True, slots=True)
class GroupMember:
    """Membership under which offsets are committed; the default is nobody's, which classic groups accept."""

    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


#: What an offset takes beside its topic's name and its note, about; and all of a request. Kafka's own topic for them
#: takes batches of 1 MiB.
_OFFSET_BYTES: Final = 100
_REQUEST_BYTES: Final = 500_000


class TransactionCalls:
    """Sends to coordinators. Belongs to the thread of its client."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._coordinators = CoordinatorCache(client)

    def locate(self, transactional_ids: Collection[str]) -> Exchange[None]:
        """Find the coordinators of many transactional ids with one request."""
        yield from self._coordinators.locate(CoordinatorKind.TRANSACTION, transactional_ids)

    def init(
        self,
        transactional_id: str,
        transaction_timeout_ms: int,
        lane: str,
        *,
        version: int,
        expected: tuple[int, int] = (-1, -1),
    ) -> Exchange[ProducerIdentity]:
        """Get a new epoch; what is open is aborted first, with markers that carry a newer epoch than the writers'.

        Args:
            transactional_id: of the task.
            transaction_timeout_ms: for the transactions to come.
            lane: which connection.
            version: the cluster's transaction version.
            expected: producer id and epoch that must be the newest (KIP-360); the default takes over from anybody.
        """
        what = f"opening transactional.id {transactional_id}"
        if expected[0] >= 0:
            what = f"renewing epoch {expected[1]} of {transactional_id}"
        answer = yield from self._until_done(
            transactional_id,
            lambda: InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                producer_id=expected[0],
                producer_epoch=expected[1],
                min_version=3,
            ),
            lane,
            what,
        )
        return ProducerIdentity(
            transactional_id, answer.producer_id, answer.producer_epoch, version, transaction_timeout_ms
        )

    def add_partitions(
        self, identity: ProducerIdentity, partitions: Collection[TopicPartition], lane: str
    ) -> Exchange[None]:
        """Add partitions to the transaction; those that are in it already may be named again."""
        key = identity.transactional_id
        backoff = self._client.config.retry_backoff()
        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        while True:
            one = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=key,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=[one(name=name, partitions=numbers) for name, numbers in topics.items()],
                # From 4 on it is spoken between brokers.
                max_version=3,
            )
            answer = yield from self._coordinators.ask(
                CoordinatorKind.TRANSACTION, key, request, lane=lane, backoff=backoff
            )
            codes = {
                (topic.name, part.partition_index): part.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
                if part.partition_error_code
            }
            # Of one bad partition all others say that they were not tried.
            codes = {k: c for k, c in codes.items() if c != ErrorCode.OPERATION_NOT_ATTEMPTED} or codes
            if not codes:
                return
            (topic, partition), code = _worst(codes)
            what = f"adding {topic}-{partition} to the transaction of {key} (epoch {identity.epoch})"
            yield from self._retry_or_raise(CoordinatorKind.TRANSACTION, key, what, code, backoff)

    def add_offsets(self, identity: ProducerIdentity, group_id: str, lane: str) -> Exchange[None]:
        """Add a group's offsets to the transaction."""
        key = identity.transactional_id
        yield from self._until_done(
            key,
            lambda: AddOffsetsToTxnRequest(
                transactional_id=key,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                group_id=group_id,
            ),
            lane,
            f"adding group {group_id} to the transaction of {key} (epoch {identity.epoch})",
        )

    def commit_offsets(
        self,
        identity: ProducerIdentity,
        offsets: Mapping[TopicPartition, int],
        group_id: str,
        *,
        member: GroupMember,
        notes: Mapping[TopicPartition, str],
        lane: str,
    ) -> Exchange[None]:
        """Make offsets part of the transaction, with what is noted of their partitions."""
        for some in offsets_by_request(offsets, notes):
            yield from self._commit_some(identity, some, group_id, member=member, notes=notes, lane=lane)

    def _commit_some(
        self,
        identity: ProducerIdentity,
        offsets: Mapping[TopicPartition, int],
        group_id: str,
        *,
        member: GroupMember,
        notes: Mapping[TopicPartition, str],
        lane: str,
    ) -> Exchange[None]:
        backoff = self._client.config.retry_backoff()
        what = f"committing offsets of group {group_id} in the transaction of {identity.transactional_id}"
        while True:
            request = _offsets_request(identity, offsets, group_id, member, notes)
            answer = yield from self._coordinators.ask(
                CoordinatorKind.GROUP, group_id, request, lane=lane, backoff=backoff
            )
            codes = {
                (topic.name, part.partition_index): part.error_code
                for topic in answer.topics
                for part in topic.partitions
                if part.error_code
            }
            if not codes:
                return
            (topic, partition), code = _worst(codes)
            if code in _NOT_A_MEMBER:
                raise CommitFailedException(
                    f"{what}: group generation {member.generation} of member {member.member_id!r} is over "
                    f"({ErrorCode(code).name}); abort the transaction"
                )
            what = f"{what}, {topic}-{partition}"
            yield from self._retry_or_raise(
                CoordinatorKind.GROUP, group_id, what, code, backoff, transactional_id=identity.transactional_id
            )

    def end(self, identity: ProducerIdentity, lane: str, *, committed: bool) -> Exchange[ProducerIdentity]:
        """Commit or abort; return what the next transaction is written under, as far as the broker renews it.

        Repeating it after a lost connection is safe: the coordinator knows the epoch it has just ended and gives the
        same answer again (KIP-890; before that, an epoch that has nothing open may be ended again the same way).
        """
        verb = "committing" if committed else "aborting"
        what = f"{verb} the transaction of {identity.transactional_id} (epoch {identity.epoch})"
        key = identity.transactional_id
        bounds = {"max_version": 4} if identity.joins_by_request else {"min_version": 5}
        answer = yield from self._until_done(
            key,
            lambda: EndTxnRequest(
                transactional_id=key,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=committed,
                **bounds,
            ),
            lane,
            what,
        )
        if identity.joins_by_request:
            return identity
        return replace(identity, producer_id=answer.producer_id, epoch=answer.producer_epoch)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _until_done(self, key: str, make: Callable[[], object], lane: str, what: str) -> Exchange[Any]:
        """Ask the transaction coordinator, with a new request each time, until it answers without an error."""
        backoff = self._client.config.retry_backoff()
        while True:
            answer = yield from self._coordinators.ask(
                CoordinatorKind.TRANSACTION, key, make(), lane=lane, backoff=backoff
            )
            if not answer.error_code:
                return answer
            yield from self._retry_or_raise(CoordinatorKind.TRANSACTION, key, what, answer.error_code, backoff)

    def _retry_or_raise(
        self,
        kind: CoordinatorKind,
        key: str,
        what: str,
        code: int,
        backoff: Backoff,
        *,
        transactional_id: str | None = None,
    ) -> Exchange[None]:
        """Pause before the next attempt, or raise.

        Args:
            kind: the coordinator that was asked.
            key: what it coordinates: a transactional id, or a group.
            what: what was asked of it, for messages.
            code: its answer.
            backoff: of the attempts so far.
            transactional_id: the one that was written under, where ``key`` is a group.
        """
        error: KafkaException = broker_error(code, what, needs=_NEEDS.get(code, ""))
        if code in _FENCED:
            raise ProducerFencedException(f"{error}: {fenced_reason(transactional_id or key)}")
        if is_moved(code):
            self._coordinators.forget(kind, key)
        elif not is_retriable(code):
            raise error
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            yield Pause(backoff.next(first=_CONCURRENT_FIRST_S, longest=_CONCURRENT_LONGEST_S), error)
        else:
            yield Pause(backoff.next(), error)


def offsets_by_request(
    offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, str]
) -> Iterator[Mapping[TopicPartition, int]]:
    """Yield offsets by the request that they fit into: a broker writes those of one together, as one batch."""
    some: dict[TopicPartition, int] = {}
    size = 0
    for partition, offset in offsets.items():
        takes = _OFFSET_BYTES + len(partition.topic) + len(notes.get(partition, ""))
        if some and size + takes > _REQUEST_BYTES:
            yield some
            some, size = {}, 0
        some[partition] = offset
        size += takes
    if some:
        yield some


def _worst(codes: Mapping[tuple[str, int], int]) -> tuple[tuple[str, int], int]:
    """Return a fatal code before a retriable one, behind which it must not hide."""
    return min(codes.items(), key=lambda item: is_retriable(item[1]))


def _offsets_request(
    identity: ProducerIdentity,
    offsets: Mapping[TopicPartition, int],
    group_id: str,
    member: GroupMember,
    notes: Mapping[TopicPartition, str],
) -> object:
    topics: dict[str, list[object]] = {}
    for tp, offset in offsets.items():
        topics.setdefault(tp.topic, []).append(
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=offset,
                committed_leader_epoch=-1,
                committed_metadata=notes.get(tp, ""),
            )
        )
    # 3 brought the membership; from 5 on it adds the group to the transaction.
    bounds = {"min_version": 3, "max_version": 4} if identity.joins_by_request else {"min_version": 5}
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
        **bounds,
    )

"""The requests of Kafka's transaction protocol, as exchanges with the coordinators, and the identity that they carry.

Which requests make up a transaction is decided by ``transactions`` for the driver and ``joining`` for workers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error, fenced_reason, is_retriable
from sparkrelay.client.coordinators import CoordinatorCache, CoordinatorKind, is_moved
from sparkrelay.client.exchanges import Pause
from sparkrelay.client.group_requests import OffsetAndMetadata, commit_part
from sparkrelay.client.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from sparkrelay.client.messages.per_topic import each_partition, listed
from sparkrelay.errors import CommitFailedException, ProducerFencedException

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.types import TopicPartition

#: The first ``transaction.version`` in which writing adds to a transaction and ending it renews the epoch.
_IMPLICIT: Final = 2
#: The previous transaction's markers are still being written, which takes milliseconds: retry soon and often.
_CONCURRENT_FIRST_S: Final = 0.005
_CONCURRENT_LONGEST_S: Final = 0.05
#: The ACL operations that a transaction needs.
_NEEDS: Final[dict[int, str]] = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "WRITE",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "READ",
}
#: The group has another generation, or another member with the same name.
NOT_A_MEMBER: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
)


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """The right to write one transaction of a task.

    Attributes:
        transactional_id: of the task.
        producer_id: given out by the broker.
        epoch: refused by all brokers once the coordinator's is higher.
        version: the cluster's ``transaction.version`` when the id was opened.
        timeout_ms: its ``transaction.timeout.ms``, kept at renewals.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    version: int = _IMPLICIT
    timeout_ms: int = field(default=60_000, compare=False)

    @property
    def joins_by_request(self) -> bool:
        """Whether partitions and groups must be added to the transaction before they are written to."""
        return self.version < _IMPLICIT


#: Approximate size of an offset besides its topic's name and its metadata, and the maximum size of a request. Kafka's
#: own topic for them takes batches of 1 MiB.
_OFFSET_BYTES: Final = 100
_REQUEST_BYTES: Final = 500_000


class TransactionCalls:
    """Requests to coordinators. Belongs to the thread of its client."""

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
        """Get a new epoch. An open transaction is aborted first, with markers of a newer epoch than its writers'.

        Args:
            transactional_id: of the task.
            transaction_timeout_ms: for the following transactions.
            lane: which connection.
            version: the cluster's transaction version.
            expected: producer id and epoch that must be the newest (KIP-360); the default takes over from any owner.
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
        """Add partitions to the transaction; it may contain some of them."""
        yield from self._until_done(
            identity.transactional_id,
            lambda: add_partitions_request(identity, partitions),
            lane,
            f"adding partitions to the transaction of {identity.transactional_id} (epoch {identity.epoch})",
            codes=lambda answer: (
                (part.partition_error_code, f", {topic.name}-{part.partition_index}")
                for topic in answer.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            ),
        )

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
        group: GroupMetadata,
        *,
        notes: Mapping[TopicPartition, str],
        lane: str,
    ) -> Exchange[None]:
        """Add offsets, with their ``notes`` as metadata, to the transaction.

        A ``group`` without a member id is nobody's, which classic groups without members accept.

        Raises:
            CommitFailedException: the member is no longer in the group; abort the transaction.
        """
        what = f"committing offsets of group {group.group_id} in the transaction of {identity.transactional_id}"

        def codes(answer: Any) -> Iterator[tuple[int, str]]:
            for partition, part in each_partition(answer.topics):
                yield part.error_code, f", {partition}"

        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        # 3 introduced the membership; since 5 it adds the group to the transaction.
        bounds = {"min_version": 3, "max_version": 4} if identity.joins_by_request else {"min_version": 5}

        def request(some: Mapping[TopicPartition, OffsetAndMetadata]) -> object:
            make = topic.TxnOffsetCommitRequestPartition
            parts = ((tp.topic, commit_part(make, tp, commit)) for tp, commit in some.items())
            return TxnOffsetCommitRequest(
                transactional_id=identity.transactional_id,
                group_id=group.group_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                generation_id=group.generation,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=listed(topic, parts),
                **bounds,
            )

        for some in offsets_by_request(offsets, notes):
            make = functools.partial(request, some)
            yield from self._until_done(identity.transactional_id, make, lane, what, codes=codes, group=group)

    def end(self, identity: ProducerIdentity, lane: str, *, committed: bool) -> Exchange[ProducerIdentity]:
        """Commit or abort; return the next transaction's identity, as far as the broker renews it.

        A retry after a lost connection is safe: the coordinator knows the epoch that it has just ended and repeats its
        answer (KIP-890; before that, an epoch without an open transaction may be ended again).
        """
        verb = "committing" if committed else "aborting"
        what = f"{verb} the transaction of {identity.transactional_id} (epoch {identity.epoch})"
        answer = yield from self._until_done(
            identity.transactional_id, lambda: end_request(identity, committed=committed), lane, what
        )
        if identity.joins_by_request:
            return identity
        return replace(identity, producer_id=answer.producer_id, epoch=answer.producer_epoch)

    def _until_done(
        self,
        transactional_id: str,
        make: Callable[[], object],
        lane: str,
        what: str,
        *,
        codes: Callable[[Any], Iterable[tuple[int, str]]] = lambda answer: ((answer.error_code, ""),),
        group: GroupMetadata | None = None,
    ) -> Exchange[Any]:
        """Send a request to a coordinator, made anew for each attempt, until it is answered without an error.

        Args:
            transactional_id: of the transaction.
            make: returns the request.
            lane: which connection.
            what: names the exchange in errors.
            codes: returns the error codes of an answer, and their subjects to append to ``what``.
            group: whose coordinator to ask, as which member; None for the transaction's coordinator.

        Raises:
            CommitFailedException: the member is no longer in the group.
        """
        kind, key = CoordinatorKind.TRANSACTION, transactional_id
        if group is not None:
            kind, key = CoordinatorKind.GROUP, group.group_id
        backoff = self._client.config.retry_backoff()
        while True:
            answer = yield from self._coordinators.ask(kind, key, make(), lane=lane, backoff=backoff)
            refused = [one for one in codes(answer) if one[0]]
            if not refused:
                return answer
            # A fatal code counts before a retriable one, and both before those of partitions that were not tried.
            code, subject = min(
                refused, key=lambda one: (one[0] == ErrorCode.OPERATION_NOT_ATTEMPTED, is_retriable(one[0]))
            )
            if group is not None and code in NOT_A_MEMBER:
                raise CommitFailedException(
                    f"{what}: group generation {group.generation} of member {group.member_id!r} has ended "
                    f"({ErrorCode(code).name}); abort the transaction"
                )
            error = broker_error(code, f"{what}{subject}", needs=_NEEDS.get(code, ""))
            if isinstance(error, ProducerFencedException):
                raise ProducerFencedException(f"{error}: {fenced_reason(transactional_id)}")
            if is_moved(code):
                self._coordinators.forget(kind, key)
            elif not error.retriable:
                raise error
            concurrent = code == ErrorCode.CONCURRENT_TRANSACTIONS
            first, longest = (_CONCURRENT_FIRST_S, _CONCURRENT_LONGEST_S) if concurrent else (None, None)
            yield Pause(backoff.next(first=first, longest=longest), error)


def add_partitions_request(identity: ProducerIdentity, partitions: Collection[TopicPartition]) -> Any:
    """Return AddPartitionsToTxn for one transaction."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=identity.transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=listed(AddPartitionsToTxnRequest.AddPartitionsToTxnTopic, partitions),
        max_version=3,  # newer ones are for brokers
    )


def end_request(identity: ProducerIdentity, *, committed: bool) -> Any:
    """Return EndTxn: commit or abort."""
    bounds = {"max_version": 4} if identity.joins_by_request else {"min_version": 5}
    return EndTxnRequest(
        transactional_id=identity.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=committed,
        **bounds,
    )


def offsets_by_request(
    offsets: Mapping[TopicPartition, int], notes: Mapping[TopicPartition, str]
) -> Iterator[Mapping[TopicPartition, OffsetAndMetadata]]:
    """Split offsets, with ``notes`` as metadata, into requests: a broker writes those of one request as one batch."""
    some: dict[TopicPartition, OffsetAndMetadata] = {}
    size = 0
    for partition, offset in offsets.items():
        commit = OffsetAndMetadata(offset, notes.get(partition, ""))
        takes = _OFFSET_BYTES + len(partition.topic) + len(commit.metadata)
        if some and size + takes > _REQUEST_BYTES:
            yield some
            some, size = {}, 0
        some[partition] = commit
        size += takes
    if some:
        yield some

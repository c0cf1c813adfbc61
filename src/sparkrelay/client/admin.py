"""What SparkRelay asks of a cluster as its administrator: topics, offsets, features.

Every call blocks, repeats what is worth repeating, and is bounded by a timeout. Requests that concern several brokers
go to all of them at once. Offsets of groups and logs are here too, because asking for them needs no membership.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error, is_retriable
from sparkrelay.client.coordinators import CoordinatorCache
from sparkrelay.client.exchanges import Pause, ask, refresh_metadata, run_exchange
from sparkrelay.client.features import finalized_features
from sparkrelay.client.group_requests import offset_fetch
from sparkrelay.client.leader_requests import DeleteRecordsCall, ListOffsetsCall, per_leader
from sparkrelay.client.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
)
from sparkrelay.client.new_records import NewRecords, News
from sparkrelay.errors import TimeoutException, UnknownTopicException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Collection, Iterable, Mapping

    from sparkrelay.client.backoff import Backoff
    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.errors import KafkaException

__all__ = [
    "BROKER_LAG_SECONDS",
    "EARLIEST",
    "LATEST",
    "Admin",
    "CommittedOffset",
    "GroupDescription",
    "GroupMemberDescription",
    "TopicDescription",
    "TopicSpec",
]

#: For ``list_offsets``: the end of the log (read_committed: the last stable offset).
LATEST: Final = -1
#: For ``list_offsets``: the first offset that is still there.
EARLIEST: Final = -2
#: Longest wait for brokers whose metadata lags the controller's; a topic that is still missing counts as deleted.
BROKER_LAG_SECONDS: Final = 15.0
_TOPIC_RESOURCE: Final = 2


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group has committed of a partition: the next offset to read, and what was said with it."""

    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """How to make a topic.

    Attributes:
        partitions: number of partitions, -1 for the broker's default.
        replication_factor: copies, -1 for the broker's default.
        configs: the topic's settings, such as ``{"cleanup.policy": "compact"}``.
    """

    partitions: int
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """What a topic is; ``configs`` has every setting with its value in force."""

    name: str
    topic_id: uuid.UUID | None
    partitions: tuple[int, ...]
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class GroupMemberDescription:
    """One member of a group; its bytes are there only while the group is stable.

    Attributes:
        metadata: what it said when it joined (for consumers: a subscription).
        assignment: what the leader gave it.
    """

    member_id: str
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group of the classic protocol.

    Attributes:
        state: ``Stable``, ``PreparingRebalance``, ``CompletingRebalance``, ``Empty``, or ``Dead``: there is none.
        protocol_type: ``consumer`` for consumers; empty if the group was never joined.
        protocol: the name of the assignor in force; empty unless the group is stable.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMemberDescription, ...]


class Admin:
    """Administrative requests over a client. Belongs to the client's thread.

    Args:
        client: must be bootstrapped.
        timeout: seconds that one call may take.
    """

    def __init__(self, client: KafkaClient, *, timeout: float = 60.0) -> None:
        self._client = client
        self._timeout = timeout
        self._coordinators = CoordinatorCache(client)
        self._new_records = NewRecords(client)

    # -- topics -----------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Break off the call under way, and every later one, with WakeupException. May be called from any thread."""
        self._client.interrupt()

    def wakeup(self) -> None:
        """Have the call under way that waits for records look whether it is to end. May be called from any thread."""
        self._client.wakeup()

    def create_topics(self, topics: Mapping[str, TopicSpec], *, exist_ok: bool = False) -> frozenset[str]:
        """Make topics and wait until all their partitions have leaders.

        Args:
            topics: what to make, by name.
            exist_ok: leave topics that exist already as they are instead of raising.

        Returns:
            The names that were made by this call.

        Raises:
            BrokerResponseException: one was refused: TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR, ...
        """
        what = f"creating topics {', '.join(topics)}"
        made = run_exchange(self._client, what, self._create(topics, exist_ok=exist_ok), self._timeout)
        run_exchange(self._client, f"{what}: waiting for leaders", self._await_leaders(topics), self._timeout)
        return made

    def delete_topics(self, names: Collection[str], *, missing_ok: bool = False) -> None:
        """Delete topics and wait until the broker no longer lists them.

        Raises:
            UnknownTopicException: one does not exist, and ``missing_ok`` is false.
        """
        what = f"deleting topics {', '.join(names)}"
        run_exchange(self._client, what, self._delete(names, missing_ok=missing_ok), self._timeout)
        run_exchange(self._client, f"{what}: waiting until they are gone", self._await_gone(names), self._timeout)

    def list_topics(self) -> frozenset[str]:
        """Return the names of all topics, Kafka's internal ones left out."""
        run_exchange(self._client, "listing topics", refresh_metadata(self._client, None), self._timeout)
        return frozenset(name for name, topic in self._client.metadata.topics().items() if not topic.is_internal)

    def partitions(self, names: Collection[str]) -> dict[str, tuple[int, ...] | None]:
        """Return each topic's partition numbers, or None for a topic that does not exist.

        Raises:
            AuthorizationException: this user may not know whether one exists.
        """
        run_exchange(
            self._client, f"describing topics {', '.join(names)}", refresh_metadata(self._client, names), self._timeout
        )
        for name in names:
            if (code := self._client.metadata.topic_error(name)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                what = f"looking for topic {name!r}"
                raise broker_error(code, what, needs="DESCRIBE (READ and WRITE imply it)")
        return {name: self._client.metadata.partitions(name) for name in names}

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the ids of those topics that exist, where the broker has them (Kafka 2.8)."""
        self.partitions(names)
        return self._known_ids(names)

    def await_topic_ids(
        self, names: Collection[str], wanted: Callable[[Mapping[str, str]], bool], seconds: float = BROKER_LAG_SECONDS
    ) -> dict[str, str]:
        """Return the topics' ids as soon as ``wanted`` accepts them; after ``seconds``, the last ids that are known.

        Brokers whose metadata lags the controller's do not list a new topic.

        Args:
            names: the topics.
            wanted: takes the ids of the topics that exist, and returns whether to stop asking.
            seconds: how long to ask.
        """
        what = f"waiting for the ids of topics {', '.join(names)}"
        try:
            return run_exchange(self._client, what, self._await_ids(names, wanted), seconds)
        except TimeoutException:
            return self._known_ids(names)

    def _known_ids(self, names: Collection[str]) -> dict[str, str]:
        metadata = self._client.metadata
        found = {name: metadata.topic_id(name) for name in names if metadata.partitions(name)}
        return {name: str(id_) for name, id_ in found.items() if id_ is not None}

    def _await_ids(
        self, names: Collection[str], wanted: Callable[[Mapping[str, str]], bool]
    ) -> Exchange[dict[str, str]]:
        backoff = self._client.config.retry_backoff()
        while True:
            yield from refresh_metadata(self._client, names)
            if wanted(found := self._known_ids(names)):
                return found
            yield Pause(backoff.next(first=0.01))

    def replica_racks(self, names: Collection[str]) -> dict[TopicPartition, frozenset[str]]:
        """Return the racks of each partition's replicas; partitions with a replica of unknown rack are left out."""
        known = self._client.metadata
        return {
            at: frozenset(rack for rack in racks if rack)
            for name, numbers in self.partitions(names).items()
            for at in (TopicPartition(name, number) for number in numbers or ())
            for info in (known.partition(at),)
            if info is not None and info.replicas
            for racks in ([known.brokers[node].rack if node in known.brokers else None for node in info.replicas],)
            if all(racks)
        }

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """Return partitions and settings of topics.

        Raises:
            UnknownTopicException: one does not exist.
        """
        partitions = self.partitions(names)
        for name, numbers in partitions.items():
            if numbers is None:
                code = self._client.metadata.topic_error(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                what = f"topic {name} cannot be described; is its name right, and was it created"
                raise broker_error(code, what, needs="DESCRIBE")
        configs = run_exchange(
            self._client, f"describing topics {', '.join(names)}", self._describe_configs(names), self._timeout
        )
        return {
            name: TopicDescription(name, self._client.metadata.topic_id(name), numbers or (), configs[name])
            for name, numbers in partitions.items()
        }

    # -- offsets ----------------------------------------------------------------------------------------------------

    def list_offsets(
        self, partitions: Mapping[TopicPartition, int], *, read_committed: bool = True, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return an offset of each partition; one round trip to each leader.

        Args:
            partitions: for each ``EARLIEST``, ``LATEST``, or a time in milliseconds since 1970: the first offset whose
                record is not older (-1 if there is none).
            read_committed: ``LATEST`` is then the last stable offset, before which every transaction is decided.
            timeout: seconds; None for what every call may take.

        Raises:
            UnknownTopicException: a partition does not exist (after waiting for it until the timeout).
        """
        call = ListOffsetsCall(read_committed=read_committed)
        return per_leader(self._client, call, partitions, self._timeout if timeout is None else timeout)

    def await_records(
        self, positions: Mapping[TopicPartition, int], *, timeout: float, over: Callable[[], bool]
    ) -> News:
        """Wait until a partition has records (read_committed) after its position, or there is trouble.

        Args:
            positions: partition -> the next offset that is wanted.
            timeout: seconds to wait at most.
            over: asked at first and whenever :meth:`wakeup` was called; True ends the wait.
        """
        return self._new_records.wait(positions, timeout, over)

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete all records before an offset of each partition; return the first offsets that are left.

        Args:
            before: partition -> the first offset to keep.
            timeout: seconds; None for what every call may take.

        Raises:
            OffsetOutOfRangeException: an offset lies beyond the end of its partition.
            BrokerResponseException: the topic's cleanup policy forbids it (POLICY_VIOLATION).
        """
        return per_leader(self._client, DeleteRecordsCall(), before, self._timeout if timeout is None else timeout)

    def committed_offsets(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return a group's committed offsets; partitions without one are left out.

        Waits for pending transactional commits (KIP-447), so that what is returned is decided.
        """
        found = self.commits(group, partitions, stable=True)
        return {partition: commit.offset for partition, commit in found.items()}

    def commits(
        self, group: str, partitions: Collection[TopicPartition], *, stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return a group's commits; partitions without one are left out.

        Args:
            group: its id.
            partitions: what is asked for.
            stable: True to wait for pending transactional commits (KIP-447); else they do not count.
        """
        found = self._ask_group(
            group,
            f"fetching offsets of group {group}",
            offset_fetch(group, partitions, stable=stable),
            lambda group: (group.error_code, *(part.error_code for topic in group.topics for part in topic.partitions)),
            final=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,),
        )
        return {
            TopicPartition(topic.name, part.partition_index): CommittedOffset(
                part.committed_offset, part.metadata or ""
            )
            for topic in found.topics
            for part in topic.partitions
            if part.committed_offset >= 0
        }

    # -- groups -----------------------------------------------------------------------------------------------------

    def describe_group(self, group: str) -> GroupDescription:
        """Return a group's members and what they said; a group that does not exist has the state ``Dead``."""
        found = self._ask_group(
            group,
            f"describing group {group}",
            DescribeGroupsRequest(groups=[group], include_authorized_operations=False),
            lambda group: () if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND else (group.error_code,),
        )
        if found.error_code:
            # Since version 6 (KIP-1043); older brokers say the same by the state "Dead".
            return GroupDescription(group, "Dead", "", "", ())
        members = tuple(
            GroupMemberDescription(
                m.member_id, m.client_id, m.client_host, bytes(m.member_metadata), bytes(m.member_assignment)
            )
            for m in found.members
        )
        return GroupDescription(group, found.group_state, found.protocol_type, found.protocol_data, members)

    # -- features ---------------------------------------------------------------------------------------------------

    def features(self) -> dict[str, int]:
        """Return the cluster's finalized features and their levels, such as ``{"transaction.version": 2}``."""
        what = "asking for the cluster's features"
        return run_exchange(self._client, what, finalized_features(self._client), self._timeout)

    # -- exchanges --------------------------------------------------------------------------------------------------

    def _ask(self, make: Callable[[], Any], backoff: Backoff) -> Exchange[Any]:
        """Ask the controller (with KRaft any broker passes it on)."""
        return (yield from ask(self._client, make, node=lambda: self._client.metadata.controller, backoff=backoff))

    def _ask_group(
        self,
        group: str,
        what: str,
        request: object,
        codes: Callable[[Any], Iterable[int]],
        *,
        final: Collection[int] = (),
    ) -> Any:
        """Return what the group's coordinator answers about the one group of the request."""
        exchange = self._coordinators.ask_group(
            group, request, what, lambda answer: codes(answer.groups[0]), final=final
        )
        return run_exchange(self._client, what, exchange, self._timeout).groups[0]

    def _create(self, topics: Mapping[str, TopicSpec], *, exist_ok: bool) -> Exchange[frozenset[str]]:
        backoff = self._client.config.retry_backoff()
        left, made, repeated = dict(topics), set(), False
        while left:
            answer = yield from self._ask(lambda: _creation(left, self._client.config.request_timeout_ms), backoff)
            refused: KafkaException | None = None
            for topic in answer.topics:
                code = topic.error_code
                # A repeated request may find what the first one made.
                if code == ErrorCode.TOPIC_ALREADY_EXISTS and (exist_ok or repeated):
                    left.pop(topic.name, None)
                elif code and not is_retriable(code):
                    what = f"creating topic {topic.name} ({topic.error_message})"
                    raise broker_error(code, what, needs="CREATE")
                elif code:
                    refused = broker_error(code, f"creating topic {topic.name}")
                else:
                    made.add(topic.name)
                    left.pop(topic.name, None)
            if left:
                repeated = True
                refused = refused or broker_error(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic was left out")
                yield Pause(backoff.next(), refused)
        return frozenset(made)

    def _await_leaders(self, topics: Mapping[str, TopicSpec]) -> Exchange[None]:
        metadata = self._client.metadata

        def led(name: str) -> bool:
            found = [metadata.leader(TopicPartition(name, p)) for p in metadata.partitions(name) or ()]
            return bool(found) and None not in found

        return self._await_metadata(tuple(topics), led, "is not ready")

    def _await_gone(self, names: Collection[str]) -> Exchange[None]:
        return self._await_metadata(
            names, lambda name: self._client.metadata.partitions(name) is None, "is still listed"
        )

    def _await_metadata(self, names: Collection[str], done: Callable[[str], bool], otherwise: str) -> Exchange[None]:
        """Refresh the metadata of topics until all of them are ``done``."""
        backoff = self._client.config.retry_backoff()
        while True:
            yield from refresh_metadata(self._client, names)
            left = next((name for name in names if not done(name)), None)
            if left is None:
                return
            error = broker_error(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {left} {otherwise}")
            yield Pause(backoff.next(first=0.01), error)

    def _delete(self, names: Collection[str], *, missing_ok: bool) -> Exchange[None]:
        backoff = self._client.config.retry_backoff()
        left, repeated = set(names), False
        while left:
            answer = yield from self._ask(lambda: _deletion(left, self._client.config.request_timeout_ms), backoff)
            refused: KafkaException | None = None
            for topic in answer.responses:
                code = topic.error_code
                gone = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and (missing_ok or repeated)
                if not code or gone:
                    left.discard(topic.name)
                elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopicException(f"topic {topic.name} does not exist, so it cannot be deleted")
                elif not is_retriable(code):
                    what = f"deleting topic {topic.name} ({topic.error_message})"
                    raise broker_error(code, what, needs="DELETE")
                else:
                    refused = broker_error(code, f"deleting topic {topic.name}")
            if left:
                repeated = True
                refused = refused or broker_error(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic was left out")
                yield Pause(backoff.next(), refused)

    def _describe_configs(self, names: Collection[str]) -> Exchange[dict[str, Mapping[str, str | None]]]:
        backoff = self._client.config.retry_backoff()
        resource = DescribeConfigsRequest.DescribeConfigsResource
        while True:
            answer = yield from ask(
                self._client,
                lambda: DescribeConfigsRequest(
                    resources=[
                        resource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
                        for name in names
                    ]
                ),
                node=lambda: None,
                backoff=backoff,
            )
            code, name = next(((r.error_code, r.resource_name) for r in answer.results if r.error_code), (0, ""))
            if not code:
                return {r.resource_name: MappingProxyType({c.name: c.value for c in r.configs}) for r in answer.results}
            error = broker_error(code, f"describing topic {name}", needs="DESCRIBE_CONFIGS")
            if not error.retriable:
                raise error
            yield Pause(backoff.next(), error)


def _creation(topics: Mapping[str, TopicSpec], timeout_ms: int) -> Any:
    topic, config = CreateTopicsRequest.CreatableTopic, CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
    return CreateTopicsRequest(
        topics=[
            topic(
                name=name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication_factor,
                assignments=[],
                configs=[config(name=key, value=value) for key, value in spec.configs.items()],
            )
            for name, spec in topics.items()
        ],
        timeout_ms=timeout_ms,
        validate_only=False,
    )


def _deletion(names: Collection[str], timeout_ms: int) -> Any:
    # Version 5 is the last that names topics by name alone.
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms, max_version=5)

"""Administrative requests to a cluster: topics, offsets, groups, features.

Every call blocks, retries what is worth retrying, and is bounded by a timeout. Requests to several brokers are sent at
once. Offsets of groups and logs are here because asking for them needs no membership.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sparkrelay.client.broker_errors import ErrorCode, broker_error, is_retriable
from sparkrelay.client.coordinators import CoordinatorCache
from sparkrelay.client.exchanges import Pause, ask, refresh_metadata, run_exchange
from sparkrelay.client.features import finalized_features
from sparkrelay.client.group_requests import OffsetAndMetadata, fetch_codes, fetched_offsets, offset_fetch
from sparkrelay.client.leader_requests import EARLIEST, LATEST, delete_records_call, list_offsets_call, per_leader
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

    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.errors import KafkaException

__all__ = [
    "BROKER_LAG_SECONDS", "EARLIEST", "LATEST", "Admin", "GroupDescription",
    "GroupMemberDescription", "TopicDescription", "TopicSpec", "creation_request",
]  # fmt: skip

#: Longest wait for brokers whose metadata lags the controller's; a topic still missing then counts as deleted.
BROKER_LAG_SECONDS: Final = 15.0
_TOPIC_RESOURCE: Final = 2
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The definition of a new topic. -1 partitions or replicas stand for the broker's default."""

    partitions: int
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic; ``configs`` has every setting with its effective value."""

    name: str
    topic_id: uuid.UUID | None
    partitions: tuple[int, ...]
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class GroupMemberDescription:
    """A member of a classic group. Its subscription (``metadata``) and ``assignment`` are empty unless it is stable."""

    member_id: str
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group of the classic protocol.

    Attributes:
        state: ``Stable``, ``PreparingRebalance``, ``CompletingRebalance``, ``Empty``, or ``Dead`` (it does not exist).
        protocol_type: ``consumer`` for consumers; empty if nobody ever joined the group.
        protocol: name of the assignor in use; empty unless the group is stable.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMemberDescription, ...]


class Admin:
    """Administrative requests over a bootstrapped client, on the client's thread; ``timeout`` seconds for each call."""

    def __init__(self, client: KafkaClient, *, timeout: float = 60.0) -> None:
        self._client = client
        self._timeout = timeout
        self._coordinators = CoordinatorCache(client)
        self._new_records = NewRecords(client)

    def _run(self, what: str, exchange: Exchange[_T]) -> _T:
        return run_exchange(self._client, what, exchange, self._timeout)

    # -- topics -----------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Abort the current call and every later one with WakeupException. Thread-safe."""
        self._client.interrupt()

    def wakeup(self) -> None:
        """Have :meth:`await_records` check its ``over`` now. Thread-safe."""
        self._client.wakeup()

    def create_topics(self, topics: Mapping[str, TopicSpec], *, exist_ok: bool = False) -> frozenset[str]:
        """Create topics and wait until all their partitions have leaders; return the names of the new topics.

        With ``exist_ok`` an existing topic is left unchanged.

        Raises:
            BrokerResponseException: one was refused: TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR, ...
        """
        what, timeout_ms = f"creating topics {', '.join(topics)}", self._client.config.request_timeout_ms
        made = self._run(
            what,
            self._change_topics(
                "creating",
                topics,
                lambda left: creation_request({name: topics[name] for name in left}, timeout_ms),
                answers="topics",
                done_code=ErrorCode.TOPIC_ALREADY_EXISTS,
                done_ok=exist_ok,
                needs="CREATE",
            ),
        )
        metadata = self._client.metadata

        def lacking() -> str | None:
            for name in topics:
                found = [metadata.leader(TopicPartition(name, p)) for p in metadata.partitions(name) or ()]
                if not found or None in found:
                    return f"topic {name} is not ready"
            return None

        self._run(f"{what}: waiting for leaders", self._await_metadata(tuple(topics), lacking))
        return made

    def delete_topics(self, names: Collection[str], *, missing_ok: bool = False) -> None:
        """Delete topics and wait until the broker no longer lists them.

        Raises:
            UnknownTopicException: one does not exist, and ``missing_ok`` is false.
        """
        what, timeout_ms = f"deleting topics {', '.join(names)}", self._client.config.request_timeout_ms
        self._run(
            what,
            self._change_topics(
                "deleting",
                names,
                # Version 5 is the last one with topic names only.
                lambda left: DeleteTopicsRequest(topic_names=list(left), timeout_ms=timeout_ms, max_version=5),
                answers="responses",
                done_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                done_ok=missing_ok,
                needs="DELETE",
            ),
        )
        known = self._client.metadata.partitions
        gone = self._await_metadata(
            names, lambda: next((f"topic {name} is still listed" for name in names if known(name) is not None), None)
        )
        self._run(f"{what}: waiting until they are gone", gone)

    def list_topics(self) -> frozenset[str]:
        """Return the names of all topics except Kafka's internal ones."""
        self._run("listing topics", refresh_metadata(self._client, None))
        return frozenset(name for name, topic in self._client.metadata.topics().items() if not topic.is_internal)

    def partitions(self, names: Collection[str]) -> dict[str, tuple[int, ...] | None]:
        """Return each topic's partition numbers, or None for a topic that does not exist.

        Raises:
            AuthorizationException: this user may not DESCRIBE one.
        """
        self._run(f"describing topics {', '.join(names)}", refresh_metadata(self._client, names))
        for name in names:
            if (code := self._client.metadata.topic_error(name)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                what = f"looking for topic {name!r}"
                raise broker_error(code, what, needs="DESCRIBE (READ and WRITE imply it)")
        return {name: self._client.metadata.partitions(name) for name in names}

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the ids of existing topics; none from brokers before Kafka 2.8."""
        self.partitions(names)
        return self._known_ids(names)

    def await_topic_ids(
        self, names: Collection[str], wanted: Callable[[Mapping[str, str]], bool], seconds: float = BROKER_LAG_SECONDS
    ) -> dict[str, str]:
        """Return the ids of existing topics once ``wanted`` accepts them, or the last known ids after ``seconds``.

        Brokers whose metadata lags the controller's do not list a new topic.
        """
        what = f"waiting for the ids of topics {', '.join(names)}"
        found: dict[str, str] = {}

        def lacking() -> str | None:
            nonlocal found
            found = self._known_ids(names)
            return None if wanted(found) else "the ids are not known"

        with contextlib.suppress(TimeoutException):
            run_exchange(self._client, what, self._await_metadata(names, lacking), seconds)
        return found

    def _known_ids(self, names: Collection[str]) -> dict[str, str]:
        metadata = self._client.metadata
        found = {name: metadata.topic_id(name) for name in names if metadata.partitions(name)}
        return {name: str(id_) for name, id_ in found.items() if id_ is not None}

    def replica_racks(self, names: Collection[str]) -> dict[TopicPartition, frozenset[str]]:
        """Return the racks of each partition's replicas, without partitions that have a replica of unknown rack."""
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
        configs = self._run(f"describing topics {', '.join(names)}", self._describe_configs(names))
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
            partitions: partition -> ``EARLIEST``, ``LATEST``, or a timestamp in milliseconds since 1970: the first
                offset of a record that is not older (-1 if there is none).
            read_committed: whether ``LATEST`` is the last stable offset, before which all transactions have ended.
            timeout: seconds; None for this object's.

        Raises:
            UnknownTopicException: a partition still did not exist at the timeout.
        """
        call = list_offsets_call(read_committed=read_committed)
        return per_leader(self._client, call, partitions, self._timeout if timeout is None else timeout)

    def await_records(
        self, positions: Mapping[TopicPartition, int], *, timeout: float, over: Callable[[], bool]
    ) -> News:
        """Wait until a partition has records (read_committed) after its position, or there is trouble.

        Args:
            positions: partition -> the next offset to read.
            timeout: seconds to wait at most.
            over: called first and after every :meth:`wakeup`; True ends the wait.
        """
        return self._new_records.wait(positions, timeout, over)

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete all records before an offset of each partition; return the log start offsets after that.

        Raises:
            OffsetOutOfRangeException: an offset is beyond the end of its partition.
            BrokerResponseException: the topic's cleanup policy forbids it (POLICY_VIOLATION).
        """
        return per_leader(self._client, delete_records_call(), before, self._timeout if timeout is None else timeout)

    def committed_offsets(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return a group's committed offsets, after its pending transactional commits have ended (KIP-447)."""
        found = self.commits(group, partitions, stable=True)
        return {partition: commit.offset for partition, commit in found.items()}

    def commits(
        self, group: str, partitions: Collection[TopicPartition], *, stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's commits; partitions without one are left out.

        ``stable`` waits for pending transactional commits (KIP-447); otherwise they are ignored.
        """
        found = self._ask_group(
            group,
            f"fetching offsets of group {group}",
            offset_fetch(group, partitions, stable=stable),
            fetch_codes,
            final=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,),
        )
        return fetched_offsets(found)

    # -- groups -----------------------------------------------------------------------------------------------------

    def describe_group(self, group: str) -> GroupDescription:
        """Return a group's members, subscriptions and assignments; an unknown group has the state ``Dead``."""
        found = self._ask_group(
            group,
            f"describing group {group}",
            DescribeGroupsRequest(groups=[group], include_authorized_operations=False),
            lambda group: () if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND else (group.error_code,),
        )
        if found.error_code:
            # Since version 6 (KIP-1043); older brokers return the state "Dead".
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
        return self._run("asking for the cluster's features", finalized_features(self._client))

    # -- exchanges --------------------------------------------------------------------------------------------------

    def _ask_group(
        self,
        group: str,
        what: str,
        request: object,
        codes: Callable[[Any], Iterable[int]],
        *,
        final: Collection[int] = (),
    ) -> Any:
        """Return the group of the coordinator's answer; ``codes`` returns its error codes."""
        exchange = self._coordinators.ask_group(
            group, request, what, lambda answer: codes(answer.groups[0]), final=final
        )
        return self._run(what, exchange).groups[0]

    def _change_topics(
        self,
        verb: str,
        names: Iterable[str],
        make: Callable[[Iterable[str]], Any],
        *,
        answers: str,
        done_code: ErrorCode,
        done_ok: bool,
        needs: str,
    ) -> Exchange[frozenset[str]]:
        """Repeat a request until every topic is done; return the topics that were changed.

        Args:
            verb: for messages.
            names: the topics.
            make: returns the request for the remaining topics.
            answers: field of the answer with the topics' outcomes.
            done_code: error code of a topic that needs no change.
            done_ok: whether that is fine at the first attempt. Later it always is: the first may have had its effect.
            needs: the ACL operation.
        """
        client, backoff = self._client, self._client.config.retry_backoff()
        left, changed, repeated = dict.fromkeys(names), set[str](), False
        while left:
            # With KRaft any broker forwards it to the controller.
            answer = yield from ask(
                client, lambda: make(left), node=lambda: client.metadata.controller, backoff=backoff
            )
            refused: KafkaException | None = None
            for topic in getattr(answer, answers):
                code, what = topic.error_code, f"{verb} topic {topic.name}"
                if not code or (code == done_code and (done_ok or repeated)):
                    left.pop(topic.name, None)
                    if not code:
                        changed.add(topic.name)
                elif code == done_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopicException(f"topic {topic.name} does not exist, so it cannot be deleted")
                elif is_retriable(code):
                    refused = broker_error(code, what)
                else:
                    raise broker_error(code, f"{what} ({topic.error_message})", needs=needs)
            if left:
                repeated = True
                refused = refused or broker_error(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic was left out")
                yield Pause(backoff.next(), refused)
        return frozenset(changed)

    def _await_metadata(self, names: Collection[str], lacking: Callable[[], str | None]) -> Exchange[None]:
        """Refresh the metadata of topics until it lacks nothing."""
        backoff = self._client.config.retry_backoff()
        while True:
            yield from refresh_metadata(self._client, names)
            if (what := lacking()) is None:
                return
            yield Pause(backoff.next(first=0.01), broker_error(ErrorCode.LEADER_NOT_AVAILABLE, what))

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
                backoff=backoff,
            )
            code, name = next(((r.error_code, r.resource_name) for r in answer.results if r.error_code), (0, ""))
            if not code:
                return {r.resource_name: MappingProxyType({c.name: c.value for c in r.configs}) for r in answer.results}
            error = broker_error(code, f"describing topic {name}", needs="DESCRIBE_CONFIGS")
            if not error.retriable:
                raise error
            yield Pause(backoff.next(), error)


def creation_request(topics: Mapping[str, TopicSpec], timeout_ms: int, *, validate_only: bool = False) -> Any:
    """Return CreateTopics; with ``validate_only`` the broker only checks it."""
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
        validate_only=validate_only,
    )

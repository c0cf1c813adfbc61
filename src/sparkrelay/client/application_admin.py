"""Administration of one application: the offsets of its group, its transactional ids.

The broker accepts offsets for a group with members only from a member, so nothing here can move a running position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.client.coordinators import CoordinatorCache, is_moved
from sparkrelay.client.exchanges import Pause, ask, refresh_metadata, results, run_exchange, run_exchanges
from sparkrelay.client.group_requests import fetch_codes, fetched_offsets, offset_commit, offset_fetch
from sparkrelay.client.messages import ListGroupsRequest, ListTransactionsRequest, OffsetDeleteRequest
from sparkrelay.client.messages.per_topic import each_partition, listed
from sparkrelay.client.transaction_calls import NOT_A_MEMBER, offsets_by_request
from sparkrelay.errors import AuthorizationException, BrokerResponseException, RebalanceInProgressException

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.errors import KafkaException
    from sparkrelay.types import TopicPartition

_BETWEEN_GENERATIONS: Final = NOT_A_MEMBER | {ErrorCode.REBALANCE_IN_PROGRESS}


class ApplicationAdmin:
    """Requests about one application. Every call blocks; belongs to the client's thread.

    Args:
        client: must be bootstrapped.
        application_id: the group's name, and the prefix of the transactional ids.
        timeout: seconds for one call.
    """

    def __init__(self, client: KafkaClient, application_id: str, *, timeout: float = 60.0) -> None:
        self._client = client
        self._group = application_id
        self._timeout = timeout
        self._coordinators = CoordinatorCache(client)

    def offsets(self) -> dict[TopicPartition, int]:
        """Return every committed offset of the group."""
        found = self._run("fetching all offsets", offset_fetch(self._group, None, stable=False), _fetch_codes)
        return {partition: commit.offset for partition, commit in fetched_offsets(found.groups[0]).items()}

    def set_offsets(
        self,
        offsets: Mapping[TopicPartition, int],
        notes: Mapping[TopicPartition, str] | None = None,
        *,
        member: GroupMetadata | None = None,
    ) -> None:
        """Commit offsets for the group.

        Args:
            offsets: by partition.
            notes: partition -> metadata to store with its offset.
            member: the committing member; None is accepted only from a group without members.

        Raises:
            BrokerResponseException: the group has members (UNKNOWN_MEMBER_ID).
            RebalanceInProgressException: ``member`` is not in the group's generation, or the group is rebalancing.
        """
        requests = [
            offset_commit(self._group, some, member=member) for some in offsets_by_request(offsets, notes or {})
        ]
        refused: list[str] = []

        def codes(answer: Any) -> Iterable[int]:
            refused.extend(at.topic for at, part in each_partition(answer.topics) if part.error_code)
            return _topic_codes(answer)

        try:
            for request in requests:
                self._run("setting offsets", request, codes, final=(ErrorCode.REBALANCE_IN_PROGRESS,))
        except AuthorizationException as error:
            raise AuthorizationException(f"topic {refused[-1]!r}: {error}" if refused else str(error)) from error
        except BrokerResponseException as error:
            if member is None or error.code not in _BETWEEN_GENERATIONS:
                raise
            passing = RebalanceInProgressException(str(error))
            passing.retriable = True
            raise passing from error

    def delete_offsets(self, partitions: Collection[TopicPartition]) -> None:
        """Delete the group's offsets of partitions; missing offsets and topics are ignored.

        Raises:
            AuthorizationException: this user may not DELETE the group (even if there is nothing to delete).
        """
        if partitions:
            topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
            parts = ((name, topic.OffsetDeleteRequestPartition(partition_index=number)) for name, number in partitions)
            request = OffsetDeleteRequest(group_id=self._group, topics=listed(topic, parts))
            self._run("deleting offsets", request, _delete_codes, needs="DELETE")

    def other_groups(self) -> frozenset[str]:
        """Return the names of all other groups of the cluster."""
        answers = self._everywhere("listing groups", lambda: ListGroupsRequest(states_filter=[], types_filter=[]))
        return frozenset(group.group_id for answer in answers for group in answer.groups) - {self._group}

    def transactional_ids(self) -> tuple[str, ...]:
        """Return the application's transactional ids that brokers still remember."""
        answers = self._everywhere(
            "listing transactions",
            lambda: ListTransactionsRequest(state_filters=[], producer_id_filters=[], max_version=1),
        )
        found = {state.transactional_id for answer in answers for state in answer.transaction_states}
        return tuple(sorted(id_ for id_ in found if id_.startswith(f"{self._group}-")))

    def _run(
        self,
        what: str,
        request: object,
        codes: Callable[[Any], Iterable[int]],
        *,
        final: Collection[int] = (),
        needs: str = "READ",
    ) -> Any:
        what = f"{what} of group {self._group}"
        exchange = self._coordinators.ask_group(self._group, request, what, codes, final=final, needs=needs)
        return run_exchange(self._client, what, exchange, self._timeout)

    def _everywhere(self, what: str, make: Callable[[], Any]) -> list[Any]:
        """Ask every broker: each knows only what it coordinates."""
        run_exchange(self._client, what, refresh_metadata(self._client, ()), self._timeout)
        exchanges = {f"{what}: broker {node}": self._of(node, what, make) for node in self._client.metadata.brokers}
        return list(results(run_exchanges(self._client, exchanges, self._timeout)).values())

    def _of(self, node: int, what: str, make: Callable[[], Any]) -> Exchange[Any]:
        backoff = self._client.config.retry_backoff()
        while True:
            answer = yield from ask(self._client, make, node=lambda: node, backoff=backoff)
            if not answer.error_code:
                return answer
            error: KafkaException = broker_error(answer.error_code, what)
            # A coordinator that is loading does not know all of its groups or transactions yet.
            if not error.retriable and not is_moved(answer.error_code):
                raise error
            yield Pause(backoff.next(), error)


def _fetch_codes(answer: Any) -> Iterable[int]:
    (group,) = answer.groups
    # An unknown group has no offsets; version 9 returns an error for it.
    return () if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND else fetch_codes(group)


def _topic_codes(answer: Any) -> Iterable[int]:
    return (part.error_code for _, part in each_partition(answer.topics))


def _delete_codes(answer: Any) -> Iterable[int]:
    gone = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    yield 0 if answer.error_code in gone else answer.error_code
    yield from (code for code in _topic_codes(answer) if code not in gone)

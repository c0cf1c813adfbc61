"""Requests that every broker refuses; the reason shows whether they were permitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.client.admin import TopicSpec, creation_request
from sparkrelay.client.coordinators import CoordinatorKind
from sparkrelay.client.exchanges import ask, results, run_exchanges
from sparkrelay.client.fetch_session import CLOSING_EPOCH, READ_COMMITTED_SINCE, Asked, Change, fetch_request
from sparkrelay.client.leader_requests import delete_records_call
from sparkrelay.client.transaction_calls import ProducerIdentity, add_partitions_request, end_request
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from sparkrelay.client.coordinators import CoordinatorCache
    from sparkrelay.client.exchanges import Exchange
    from sparkrelay.client.kafka_client import KafkaClient


def permitted_on_own_names(
    client: KafkaClient, coordinators: CoordinatorCache, name: str, timeout: float
) -> dict[str, int]:
    """Probe the permissions on a name that no topic and no producer has.

    Args:
        client: bootstrapped.
        coordinators: knows the transactional id's coordinator.
        name: of a topic, and a transactional id.
        timeout: seconds.

    Returns:
        Error codes of ``transactional id``, and of CREATE, READ, WRITE and DELETE of topics.
    """
    timeout_ms = client.config.request_timeout_ms
    partition = TopicPartition(name, 0)
    # No producer has opened it, so there is nothing to end.
    identity = ProducerIdentity(name, 0, 0, version=0)

    def coordinator(request: Any) -> Exchange[Any]:
        backoff = client.config.retry_backoff()
        return coordinators.ask(CoordinatorKind.TRANSACTION, name, request, backoff=backoff)

    found = results(
        run_exchanges(
            client,
            {
                "transactional id": coordinator(end_request(identity, committed=False)),
                "CREATE": ask(client, lambda: creation_request({name: TopicSpec(1)}, timeout_ms, validate_only=True)),
                "READ": ask(client, lambda: _fetch(partition)),
                "WRITE": coordinator(add_partitions_request(identity, [partition])),
                "DELETE": ask(client, lambda: delete_records_call().request({partition: 0}, timeout_ms)),
            },
            timeout,
        )
    )
    return {
        "transactional id": found["transactional id"].error_code,
        "CREATE": found["CREATE"].topics[0].error_code,
        "READ": found["READ"].responses[0].partitions[0].error_code,
        "WRITE": found["WRITE"].results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        "DELETE": found["DELETE"].topics[0].partitions[0].error_code,
    }


def _fetch(partition: TopicPartition) -> Any:
    return fetch_request(
        Change(0, CLOSING_EPOCH, {partition: Asked(0, -1, 1, None)}, {}),
        by_name=True,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        read_committed=True,
        min_version=READ_COMMITTED_SINCE,
    )

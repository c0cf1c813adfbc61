"""Requests that every broker refuses; the reason shows whether they were permitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.client.coordinators import CoordinatorKind
from sparkrelay.client.exchanges import ask, results, run_exchanges
from sparkrelay.client.messages import (
    AddPartitionsToTxnRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    EndTxnRequest,
    FetchRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

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

    def coordinator(request: Any) -> Exchange[Any]:
        backoff = client.config.retry_backoff()
        return coordinators.ask(CoordinatorKind.TRANSACTION, name, request, backoff=backoff)

    def code_of_write(answer: Any) -> Any:
        return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    probes: dict[str, tuple[Exchange[Any], Callable[[Any], Any]]] = {
        "transactional id": (coordinator(_end(name)), lambda answer: answer.error_code),
        "CREATE": (ask(client, lambda: _create(name, timeout_ms)), lambda answer: answer.topics[0].error_code),
        "READ": (ask(client, lambda: _fetch(name)), lambda answer: answer.responses[0].partitions[0].error_code),
        "WRITE": (coordinator(_join(name)), code_of_write),
        "DELETE": (ask(client, lambda: _delete(name, timeout_ms)), lambda a: a.topics[0].partitions[0].error_code),
    }
    answers = results(run_exchanges(client, {one: exchange for one, (exchange, _) in probes.items()}, timeout))
    return {one: code(answers[one]) for one, (_, code) in probes.items()}


def _end(name: str) -> Any:
    # No producer has opened it, so there is nothing to end.
    return EndTxnRequest(transactional_id=name, producer_id=0, producer_epoch=0, committed=False, max_version=4)


def _create(name: str, timeout_ms: int) -> Any:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=-1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=True)


def _fetch(name: str) -> Any:
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[topic(topic=name, partitions=[part])],
        forgotten_topics_data=[],
        rack_id="",
        # The last version with topic names.
        max_version=12,
    )


def _join(name: str) -> Any:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=[0])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=0,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
        max_version=3,
    )


def _delete(name: str, timeout_ms: int) -> Any:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    part = topic.DeleteRecordsPartition(partition_index=0, offset=0)
    return DeleteRecordsRequest(topics=[topic(name=name, partitions=[part])], timeout_ms=timeout_ms)

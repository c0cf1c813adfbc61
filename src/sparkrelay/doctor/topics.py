"""Checks of topics: existence, health, permissions, and settings that would delete needed records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.admin import Admin
from sparkrelay.client.broker_errors import ErrorCode, error_name
from sparkrelay.client.exchanges import ask, run_exchange
from sparkrelay.client.kafka_client import metadata_request
from sparkrelay.doctor.access import Access, permitted
from sparkrelay.doctor.findings import fail, ok, warn
from sparkrelay.errors import KafkaException

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.doctor.findings import Finding

#: Role of a topic -> the operations that the application needs on it.
_NEEDS: Final = {
    "source": ("READ",),
    "sink": ("WRITE",),
    "dead letters": ("WRITE",),
    "changelog": ("READ", "WRITE", "DELETE"),
    "repartition": ("READ", "WRITE", "DELETE"),
}
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Question:
    """What to check of a cluster; ``timeout`` is in seconds for each step.

    Without an ``application_id`` it is the cluster and the named topics alone.
    """

    application_id: str | None = None
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    dead_letters: str | None = None
    timeout: float = 15.0


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the brokers report of a topic.

    Attributes:
        name: its name.
        role: ``source``, ``sink``, ``dead letters``, ``changelog`` or ``repartition``.
        error: error code, instead of all else.
        replicas: number of replicas of each partition.
        leaderless: partitions without a leader.
        behind: partitions with a replica that is not in sync.
        operations: names of the permitted operations; None if not reported.
        configs: effective settings; None if unknown.
    """

    name: str
    role: str
    error: int = 0
    replicas: tuple[int, ...] = ()
    leaderless: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    operations: frozenset[str] | None = None
    configs: Mapping[str, str | None] | None = field(default=None, compare=False)


def check_topic(topic: TopicFacts, *, brokers: int, servers: str) -> Iterator[Finding]:
    """Check one topic, on a cluster of ``brokers`` brokers; ``servers`` is for the proposed commands."""
    check = f"{topic.role} {topic.name}"
    needs = _NEEDS[topic.role]
    grant = Access("topic", topic.name, prefixed=False, operations=needs).command("User:NAME", servers)
    if topic.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        yield fail(check, f"this user may not see it, and needs {', '.join(needs)}", grant)
        return
    if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        create = f"kafka-topics.sh --bootstrap-server {servers} --create --topic {topic.name} --partitions N"
        yield fail(check, "it does not exist", f"Create it: {create}")
        return
    if topic.error:
        yield fail(check, error_name(topic.error), "Look at the brokers' logs, and try again")
        return
    lacking = [] if topic.operations is None else [need for need in needs if need not in topic.operations]
    if lacking:
        yield fail(check, f"this user lacks {', '.join(lacking)}", grant)
    if topic.leaderless:
        yield fail(
            check,
            f"partitions {_numbers(topic.leaderless)} have no leader",
            "Start the brokers with their replicas: the tasks of these partitions make no progress",
        )
    elif topic.behind:
        yield warn(
            check,
            f"partitions {_numbers(topic.behind)} have replicas that are not in sync",
            "Check whether all brokers run",
        )
    copies = min(topic.replicas, default=0)
    if copies == 1 and brokers > 1:
        yield warn(
            check,
            f"one copy, on a cluster of {brokers} brokers",
            "Its records are lost with that broker: use 3 replicas, and replication.factor=3 for the application",
        )
    known = f"{len(topic.replicas)} partitions, {copies} replicas"
    if topic.configs is None:
        # An instance does not need them.
        yield ok(check, f"{known}; its settings are unknown, DESCRIBE_CONFIGS is not permitted")
        return
    in_sync = int(topic.configs.get("min.insync.replicas") or 1)
    if in_sync > copies:
        yield fail(
            check,
            f"min.insync.replicas={in_sync}, with {copies} replicas: nothing can be written",
            _set(topic.name, f"min.insync.replicas={max(1, copies - 1)}", servers),
        )
    yield _deletion(check, topic, topic.configs, servers, known)


def _deletion(check: str, topic: TopicFacts, configs: Mapping[str, str | None], servers: str, known: str) -> Finding:
    policy = set((configs.get("cleanup.policy") or "delete").split(","))
    kept = int(configs.get("retention.ms") or -1)
    size = int(configs.get("retention.bytes") or -1)
    bounded = "delete" in policy and (kept >= 0 or size >= 0)
    bounds = f"retention.ms={kept}, retention.bytes={size}"
    forever = _set(topic.name, "retention.ms=-1,retention.bytes=-1", servers)
    match topic.role:
        case "changelog" if "compact" not in policy:
            lost = (
                f"cleanup.policy={','.join(sorted(policy))}: rows that were not written lately are lost for a restore"
            )
            return fail(check, lost, _set(topic.name, "cleanup.policy=compact", servers))
        case "changelog" if bounded:
            return fail(check, f"{bounds}: rows that a restore needs are deleted", forever)
        case "repartition" if "compact" in policy:
            remedy = _set(topic.name, "cleanup.policy=delete", servers)
            return fail(check, "it is compacted: rows are lost before they are read", remedy)
        case "repartition" if bounded:
            return fail(check, f"{bounds}: rows are deleted before they are read", forever)
        case "sink" | "dead letters" if bounded and 0 <= kept < _DAY_MS:
            hours = f"{kept / 3_600_000:g} h after their timestamps, the rows' event times"
            remedy = f"If older rows are written: {_set(topic.name, 'retention.ms=-1', servers)}"
            return warn(check, f"records are deleted {hours}", remedy)
    time = f"for {kept / _DAY_MS:g} days" if "delete" in policy and kept >= 0 else "forever"
    return ok(check, f"{known}, cleanup.policy={configs.get('cleanup.policy')}, kept {time}")


def look_at_topics(client: KafkaClient, question: Question) -> Iterator[Finding]:
    """Check the named topics, and those that the application has created.

    Raises:
        KafkaException: the brokers do not answer.
    """
    application_id, timeout = question.application_id, question.timeout
    roles = dict.fromkeys(question.sources, "source") | dict.fromkeys(question.sinks, "sink")
    if question.dead_letters is not None:
        roles[question.dead_letters] = "dead letters"
    admin = Admin(client, timeout=timeout)
    if application_id is not None:
        for name in sorted(admin.list_topics()):
            role = name.rpartition("-")[2]
            if name.startswith(f"{application_id}-") and role in {"changelog", "repartition"}:
                roles.setdefault(name, role)
    if not roles:
        return
    facts = [_facts(topic, roles[topic.name]) for topic in _described(client, list(roles), timeout)]
    readable = [
        one.name for one in facts if not one.error and (one.operations is None or "DESCRIBE_CONFIGS" in one.operations)
    ]
    try:
        configs = {name: found.configs for name, found in admin.describe_topics(readable).items()} if readable else {}
    except KafkaException as error:
        if error.retriable:
            raise
        configs = {}
    for one in facts:
        whole = replace(one, configs=configs.get(one.name))
        yield from check_topic(whole, brokers=len(client.metadata.brokers), servers=client.config.bootstrap_servers)


def _described(client: KafkaClient, names: list[str], timeout: float) -> list[Any]:
    exchange = ask(client, lambda: metadata_request(names, with_operations=True))
    return list(run_exchange(client, "describing topics", exchange, timeout).topics)


def _facts(topic: Any, role: str) -> TopicFacts:
    parts = sorted(topic.partitions, key=lambda part: part.partition_index)
    return TopicFacts(
        name=topic.name,
        role=role,
        error=topic.error_code,
        replicas=tuple(len(part.replica_nodes) for part in parts),
        leaderless=tuple(part.partition_index for part in parts if part.leader_id < 0),
        behind=tuple(part.partition_index for part in parts if len(part.isr_nodes) < len(part.replica_nodes)),
        operations=permitted(topic.authorized_operations),
    )


def _set(topic: str, value: str, servers: str) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics --entity-name {topic} "
        f"--add-config '{value}'"
    )


def _numbers(partitions: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, partitions[:10]))
    return f"{shown}, ..." if len(partitions) > 10 else shown

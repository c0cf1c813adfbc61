"""A running application as its broker knows it: its members, their tasks, and the lengths of the changelogs.

Reads only, without help from the instances: DescribeGroups has each member's subscription and assignment. Both are of
the last rebalance; the progress of copies since then is unknown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkrelay.assignment import ApplicationState, AssignmentConfigs, GroupMember, agreed_assignor
from sparkrelay.assignment.lags import is_caught_up
from sparkrelay.assignment.leader.client_states import client_states, end_offset_sums
from sparkrelay.client.admin import LATEST, Admin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.consumer.group.wire import decode_assignment, decode_subscription
from sparkrelay.errors import SerializationException, StreamsException, TaskAssignmentException
from sparkrelay.planning.what_if import GroupSnapshot
from sparkrelay.protocol import ASSIGNOR_TAG, LATEST_OFFSET, TOPOLOGY_TAG, AssignmentInfo, SubscriptionInfo
from sparkrelay.runtime.topics.topology_metadata import metadata_tasks, parse_topology_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkrelay.assignment import TaskInfo
    from sparkrelay.client.admin import GroupDescription, GroupMemberDescription
    from sparkrelay.types import TaskId

_TIMEOUT_S = 15.0
_STABLE, _EMPTY, _DEAD = "Stable", "Empty", "Dead"


class _Member(NamedTuple):
    member: GroupMember
    topics: frozenset[str]
    assigned: AssignmentInfo


def read_group(settings: Mapping[str, Any], application_id: str, configs: Mapping[str, Any]) -> GroupSnapshot:
    """Read the group of an application.

    Args:
        settings: Kafka client settings with dotted keys: ``bootstrap.servers``, ``security.protocol``, ...
        application_id: Its name, which is the group's.
        configs: Known fields of ``AssignmentConfigs``; a group does not publish its settings.

    Raises:
        ConfigException: a setting is unknown or out of range.
        KafkaException: the broker is unavailable or denies access.
        StreamsException: the group does not exist, is empty, rebalances, or is not a SparkRelay application.
    """
    with KafkaClient(ClientConfig.from_dict(settings)) as client:
        client.bootstrap(_TIMEOUT_S)
        admin = Admin(client, timeout=_TIMEOUT_S)
        group = admin.describe_group(application_id)
        _check(group)
        members = [_decode(group, member) for member in group.members]
        subscribed = frozenset[str]().union(*(member.topics for member in members))
        tag = members[0].member.subscription.client_tags[TOPOLOGY_TAG]
        parts = parse_topology_metadata(tag, application_id, subscribed)
        topics = {topic for part in parts.values() for topic in (*part.sources, *part.changelogs.values())}
        counts = {topic: len(found) for topic, found in admin.partitions(topics).items() if found is not None}
        if missing := sorted(topic for part in parts.values() for topic in part.sources if topic not in counts):
            raise StreamsException(f"source topic {missing[0]!r} of application {application_id!r} does not exist")
        tasks = metadata_tasks(parts, counts)
        changelogs = {p for task in tasks for p in task.changelog_topic_partitions if p.topic in counts}
        # The changelog of a table that reuses its topic ends at the group's committed offset.
        reused = {p for p in changelogs if any(p.topic in part.reused for part in parts.values())}
        offsets = admin.list_offsets(dict.fromkeys(changelogs - reused, LATEST)) if changelogs - reused else {}
        read = admin.committed_offsets(application_id, sorted(reused)) if reused else {}
        offsets |= {partition: max(0, read.get(partition) or 0) for partition in reused}
    ends = end_offset_sums(tasks, offsets, created=topics - counts.keys())
    return _snapshot(members, tasks, ends, configs)


def _check(group: GroupDescription) -> None:
    name = group.group_id
    if group.state == _DEAD:
        raise StreamsException(
            f"there is no group {name!r} on this Kafka; is the application.id right, and does it run"
        )
    if group.protocol_type not in {"", "consumer"}:
        raise StreamsException(f"group {name!r} is a group of {group.protocol_type!r}, not of an application")
    if group.state == _EMPTY or (group.state == _STABLE and not group.members):
        raise StreamsException(f"no instance of application {name!r} runs, so there is no group to analyse")
    if group.state != _STABLE:
        raise StreamsException(f"application {name!r} is rebalancing (state {group.state}); try again in a moment")
    if group.protocol != "stream":
        raise StreamsException(
            f"group {name!r} is not a streams application: its protocol is {group.protocol!r}; give the application.id "
            "of a SparkRelay application"
        )


def _decode(group: GroupDescription, member: GroupMemberDescription) -> _Member:
    try:
        consumer = decode_subscription(member.metadata)
        given = decode_assignment(member.assignment)
        subscription = SubscriptionInfo.decode(consumer.user_data)
        assigned = AssignmentInfo.decode(given.user_data) if given.user_data else AssignmentInfo()
    except (SerializationException, TaskAssignmentException, ValueError) as error:
        raise StreamsException(
            f"member {member.member_id} of group {group.group_id!r} cannot be read: {error}"
        ) from error
    if TOPOLOGY_TAG not in subscription.client_tags:
        raise StreamsException(
            f"group {group.group_id!r} is not a SparkRelay application: member {member.member_id} sends no "
            "topology (perhaps it is a Kafka Streams application in Java)"
        )
    return _Member(
        GroupMember(
            consumer_id=member.member_id,
            subscription=subscription,
            owned_partitions=frozenset(given.partitions),
            rack_id=consumer.rack or None,
        ),
        consumer.topics,
        assigned,
    )


def _snapshot(
    members: Sequence[_Member], tasks: Sequence[TaskInfo], ends: Mapping[TaskId, int], configs: Mapping[str, Any]
) -> GroupSnapshot:
    given: dict[str, Any] = dict(configs)
    notes = [f"as of the last rebalance; members: {len(members)}, changelog ends read just now"]
    given.setdefault("num_standby_replicas", _assigned_standbys(members, tasks))
    settings = AssignmentConfigs(**given)
    notes.append(
        "settings are not in the group; taken for this: "
        f"num.standby.replicas={settings.num_standby_replicas} (--standbys; if not given, as many as are assigned), "
        f"max.warmup.replicas={settings.max_warmup_replicas} (--warm-ups), "
        f"acceptable.recovery.lag={settings.acceptable_recovery_lag} (--acceptable-lag)"
    )
    behind = {
        task
        for member in members
        for task in member.assigned.standby_tasks
        if task in ends
        and not is_caught_up(
            max(0, ends[task] - max(0, member.member.subscription.task_offset_sums.get(task, 0))),
            settings.acceptable_recovery_lag,
        )
    }
    if behind:
        names = ", ".join(map(str, sorted(behind)))
        notes.append(f"copies of {names} were behind at the last rebalance; they count as warm, having been assigned")
    known = [
        replace(member, subscription=replace(member.subscription, task_offset_sums=_sums(member, assigned, ends)))
        for member, _, assigned in members
    ]
    state = ApplicationState(
        all_tasks=frozenset(tasks), clients=client_states(known, tasks, ends), assignment_configs=settings
    )
    assignor = agreed_assignor(member.subscription.client_tags.get(ASSIGNOR_TAG) for member in known)
    return GroupSnapshot(state, ends, tuple(notes), assignor)


def _sums(member: GroupMember, assigned: AssignmentInfo, ends: Mapping[TaskId, int]) -> dict[TaskId, int]:
    """Return the member's offset sums now: assigned copies are complete, others unchanged."""
    # Without tasks that ran here before: their copies have aged by an unknown amount.
    sums = {
        task: total
        for task, total in member.subscription.task_offset_sums.items()
        if task in ends and total != LATEST_OFFSET
    }
    sums |= {task: ends[task] for task in assigned.standby_tasks if task in ends}
    return sums | {task: LATEST_OFFSET for task in assigned.active_tasks if task in ends}


def _assigned_standbys(members: Sequence[_Member], tasks: Iterable[TaskInfo]) -> int:
    """Return the least number of standbys of a task, which excludes warm-ups."""
    counts = {task.id: 0 for task in tasks if task.is_logged}
    for member in members:
        for task in member.assigned.standby_tasks:
            if task in counts:
                counts[task] += 1
    return min(counts.values(), default=0)

"""The consumer's assignor for stream groups: what a member says when it joins, and the leader's work.

Runs on the polling thread, inside ``poll``. As leader it creates missing internal topics, lists changelog ends and
hands everything to the pure ``assignment.assign_group``. Members whose topology differs from the leader's are refused
by name: their answer carries the reason behind the assignment's bytes, where Kafka Streams' format has no field.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING

from sparkrelay.assignment import AssignmentConfigs, GroupMember, TaskInfo
from sparkrelay.assignment.client_states import end_offset_sums
from sparkrelay.assignment.group import assign_group
from sparkrelay.consumer.assignor import MemberAssignment
from sparkrelay.errors import (
    IncompatibleTopologyException,
    KafkaException,
    SparkRelayError,
    StreamsException,
    TaskAssignmentException,
)
from sparkrelay.protocol import TOPOLOGY_TAG, AssignmentInfo, ErrorCode, SubscriptionInfo
from sparkrelay.runtime.story import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.assignment import TaskAssignor
    from sparkrelay.config import StreamsConfig
    from sparkrelay.consumer.assignor import ClusterView, GroupMetadata, MemberSubscription
    from sparkrelay.runtime.topics import Topics
    from sparkrelay.topology import Topology
    from sparkrelay.types import ProcessId, TaskId

__all__ = ["StreamsGroupAssignor", "assignment_configs"]

log = logging.getLogger(__name__)

#: Between the assignment's bytes and the reason of a refusal.
_REASON = b"\x00sparkrelay-reason:"


class StreamsGroupAssignor:
    """One member's part in its group's rebalances. See the consumer's ``PartitionAssignor`` for the threading rule."""

    name = "stream"
    supports_cooperative = True

    def __init__(
        self,
        *,
        config: StreamsConfig,
        topology: Topology,
        process_id: ProcessId,
        topics: Topics,
        assignor: TaskAssignor,
        offset_sums: Callable[[], Mapping[TaskId, int]],
        on_info: Callable[[AssignmentInfo, GroupMetadata], None],
    ) -> None:
        """Take what the member needs; ``offset_sums`` gives the local state, ``on_info`` takes each assignment."""
        self._config = config
        self._topology = topology
        self._process_id = process_id
        self._topics = topics
        self._assignor = assignor
        self._offset_sums = offset_sums
        self._on_info = on_info
        self._unique = 0
        #: What a rebalance led here could not do; the stream thread raises it once the answer is sent.
        self.failure: Exception | None = None

    # -- every member -----------------------------------------------------------------------------------------------

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """Say who we are, what state we have, and which topology we run."""
        del topics
        self._unique = (self._unique + 1) % 128
        tags = {**self._config.client_tags, TOPOLOGY_TAG: _topology_card(self._topology)}
        return SubscriptionInfo(
            process_id=self._process_id,
            user_end_point=self._config.application_server or None,
            task_offset_sums=self._offset_sums(),
            unique_field=self._unique,
            client_tags=tags,
        ).encode()

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Take what the leader sent.

        Raises:
            StreamsException: the leader sent an error instead of an assignment.
        """
        data, _, reason = bytes(assignment.user_data).partition(_REASON)
        info = AssignmentInfo.decode(data)
        if info.err_code != ErrorCode.NONE:
            raise _refusal(ErrorCode(info.err_code), reason.decode("utf-8", "replace"))
        self._on_info(info, metadata)

    # -- the leader -------------------------------------------------------------------------------------------------

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        """Assign all tasks to the members of the group; every member gets an answer, whatever goes wrong."""
        del cluster  # its view may be older than the topics just created
        try:
            decoded = [
                GroupMember(
                    consumer_id=member_id,
                    subscription=SubscriptionInfo.decode(member.user_data),
                    owned_partitions=frozenset(member.owned_partitions),
                    rack_id=member.rack or None,
                )
                for member_id, member in members.items()
            ]
            reasons = self._foreign_topologies(decoded)
            layout = self._topics.prepare()
            tasks = [
                TaskInfo.of(id_, inputs=shape.inputs, changelogs=shape.changelogs.values(), stores=shape.changelogs)
                for id_, shape in layout.tasks.items()
            ]
            ends = self._ends(tasks)
        except (SparkRelayError, ValueError) as error:
            if isinstance(error, KafkaException) and error.retriable:
                # The group tries again; an error in the answer would end every member.
                raise
            self.failure = error
            failed = AssignmentInfo(err_code=ErrorCode.ASSIGNMENT_ERROR).encode() + _REASON + str(error).encode()
            return {member_id: MemberAssignment(partitions=(), user_data=failed) for member_id in members}
        result = assign_group(
            members=decoded,
            tasks=tasks,
            ends=ends,
            assignor=self._assignor,
            configs=assignment_configs(self._config),
            leader=self._process_id,
            now_ms=int(time.time() * 1000),
            refused=dict.fromkeys(reasons, ErrorCode.ASSIGNMENT_ERROR),
        )
        self.failure = result.failure
        for line in tell(result, decoded):
            log.info("%s", line)
        answers = {}
        for member_id, member in result.members.items():
            data = member.info.encode()
            reason = reasons.get(member_id) or (str(result.failure) if result.failure else "")
            if reason:
                data += _REASON + reason.encode()
            answers[member_id] = MemberAssignment(partitions=tuple(member.partitions), user_data=data)
        return answers

    def _foreign_topologies(self, members: list[GroupMember]) -> dict[str, str]:
        """Return the members that run another topology than ours, with the difference."""
        ours = _topology_card(self._topology)
        reasons = {}
        for member in members:
            theirs = member.subscription.client_tags.get(TOPOLOGY_TAG, ours)
            if theirs != ours:
                reasons[member.consumer_id] = (
                    f"this instance runs another topology than the group of application.id="
                    f"{self._config.application_id!r}: {_difference(ours, theirs)}. Run the same script everywhere, or "
                    "give the changed pipeline an application.id of its own"
                )
                log.warning("refused member %s: %s", member.consumer_id, reasons[member.consumer_id])
        return reasons

    def _ends(self, tasks: list[TaskInfo]) -> Mapping[TaskId, int] | None:
        changelogs = {partition for task in tasks for partition in task.changelog_topic_partitions}
        try:
            return end_offset_sums(tasks, self._topics.end_offsets(changelogs))
        except KafkaException as error:
            log.warning("the changelogs' end offsets cannot be listed, so lags are unknown: %s", error)
            return None


def assignment_configs(config: StreamsConfig) -> AssignmentConfigs:
    """Return what task assignors may see of the settings."""
    return AssignmentConfigs(
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        max_warmup_replicas=config.max_warmup_replicas,
        num_standby_replicas=config.num_standby_replicas,
        probing_rebalance_interval_ms=config.probing_rebalance_interval_ms,
    )


def _topology_card(topology: Topology) -> str:
    """Return what members compare: the fingerprint, and names that let a difference be told in words."""
    parts = {
        str(subtopology.id): sorted(
            [f"source {topic}" for leg in subtopology.legs for topic in leg.source.topics]
            + [f"store {leg.aggregation.store}" for leg in subtopology.legs if leg.aggregation is not None]
            + [f"sink {leg.sink.topic}" for leg in subtopology.legs if leg.sink is not None]
        )
        for subtopology in topology.subtopologies
    }
    return json.dumps({"fingerprint": topology.fingerprint, "parts": parts}, sort_keys=True, separators=(",", ":"))


def _difference(ours: str, theirs: str) -> str:
    try:
        mine, other = json.loads(ours)["parts"], json.loads(theirs)["parts"]
    except (ValueError, KeyError, TypeError):
        return "its description cannot be read"
    group = {f"{name} of sub-topology {part}" for part, names in mine.items() for name in names}
    member = {f"{name} of sub-topology {part}" for part, names in other.items() for name in names}
    told = []
    if group - member:
        told.append(f"it lacks {', '.join(sorted(group - member))}")
    if member - group:
        told.append(f"it has {', '.join(sorted(member - group))} besides")
    return "; ".join(told) or "the names agree, but formats, steps or aggregates differ"


def _refusal(code: ErrorCode, reason: str) -> StreamsException:
    if "runs another topology" in reason:
        return IncompatibleTopologyException(reason)
    if code is ErrorCode.SHUTDOWN_REQUESTED:
        return StreamsException("a member asked the whole application to shut down")
    return TaskAssignmentException(reason or f"the group's leader answered with error {code.name}; its log says why")

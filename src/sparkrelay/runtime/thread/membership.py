"""A stream thread's membership of the group: its consumer, its assignment, and when it requests a rebalance."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.consumer import Consumer
from sparkrelay.errors import ApplicationShutdownException, KafkaException, StreamsException, WakeupException
from sparkrelay.runtime.group.follow_up_rebalance import FollowUp
from sparkrelay.runtime.group.group_assignor import StreamsGroupAssignor
from sparkrelay.runtime.group.scheduled_rebalance import ScheduledRebalance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sparkrelay.assignment import TaskAssignor
    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.config import StreamsConfig
    from sparkrelay.protocol import AssignmentInfo, HostInfo
    from sparkrelay.runtime.group.assignment_log import AssignmentLog, Notice
    from sparkrelay.runtime.thread.task_set import TaskSet
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.topology import Topology
    from sparkrelay.types import ProcessId, TaskId, TopicPartition

log = logging.getLogger(__name__)

_ASK_SECONDS = 0.1
#: Bound on LeaveGroup. Without it, the group notices by the session timeout.
_LEAVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class GroupHosts:
    """Input partitions of the tasks of each queryable instance (KIP-535).

    Attributes:
        active: of active tasks.
        standby: of standby tasks.
        generation: of the assignment that this is from; -1 before the first.
    """

    active: Mapping[HostInfo, Sequence[TopicPartition]] = field(default_factory=dict)
    standby: Mapping[HostInfo, Sequence[TopicPartition]] = field(default_factory=dict)
    generation: int = -1


class StreamsMembership:
    """One group member, owned by the stream thread; others may only call :meth:`wakeup` and :meth:`interrupt`."""

    def __init__(
        self,
        *,
        config: StreamsConfig,
        topology: Topology,
        source_topics: Collection[str],
        process_id: ProcessId,
        topics: Topics,
        assignor: TaskAssignor,
        load: Callable[[str], TaskAssignor],
        settings: Mapping[str, object],
        story: AssignmentLog,
        page: str = "",
    ) -> None:
        self._config = config
        self._topics = topics
        self._source_topics = frozenset(source_topics)
        self._tasks: TaskSet | None = None
        self._story = story
        self._assignor = StreamsGroupAssignor(
            config=config,
            topology=topology,
            process_id=process_id,
            topics=topics,
            assignor=assignor,
            load=load,
            offset_sums=self._offset_sums,
            on_info=self._on_info,
            on_decision=story.decided,
            page=page,
        )
        self._consumer = Consumer(settings, assignors=(self._assignor,), fetching=False)
        self._process_id = process_id
        #: Prefix of the client ids of this process's threads.
        self._own_clients = f"{config.application_id}-{str(process_id)[:8]}-"
        self._scheduled_rebalance = ScheduledRebalance()
        self._follow_up = FollowUp(
            acceptable_lag=config.acceptable_recovery_lag,
            longest_pause_s=config.follow_up_min_interval_ms / 1000,
            probing_s=config.probing_rebalance_interval_ms / 1000,
        )
        #: Active and standby tasks of an assignment that has yet to be followed.
        self._unfollowed: tuple[frozenset[TaskId], frozenset[TaskId]] | None = None
        self._joined = False
        #: Given by the broker; of the last assignment. Thread-safe.
        self.member_id = ""
        #: Of the newest assignment. Thread-safe.
        self.hosts = GroupHosts()

    @property
    def stable(self) -> bool:
        """True while this member follows an assignment; False before the first and after it was expelled."""
        return self._joined and self._unfollowed is None

    @property
    def notice(self) -> Notice:
        """The leader's notice about the newest rebalance. Thread-safe."""
        return self._assignor.notice

    @property
    def heartbeats(self) -> int:
        """Heartbeats answered so far; at most one is in flight at any time."""
        return int(self._consumer.metrics()["heartbeat-total"])

    def nobody_else(self) -> bool:
        """Return whether no other process is in the group; False if the broker does not answer at once.

        Members that an earlier process of this slot left behind do not count: they run nothing any more.
        """
        try:
            clients = self._topics.group_clients()
        except (KafkaException, WakeupException) as error:
            log.debug("members of group %s are unknown: %s", self._config.application_id, error)
            return False
        return all(client.startswith(self._own_clients) for client in clients)

    def start(self, tasks: TaskSet) -> None:
        """Join the group for ``tasks``."""
        self._tasks = tasks
        self._consumer.subscribe(
            sorted(self._source_topics),
            on_assigned=lambda _, __: None,
            on_revoked=lambda _, partitions: tasks.revoke(partitions),
            on_lost=lambda _, partitions: self._lose(tasks, partitions),
        )

    def poll(self, timeout: float) -> None:
        """Serve the group, rebalance callbacks included.

        Raises:
            SparkRelayError: the group, its leader or this member as leader failed.
        """
        try:
            self._consumer.poll(timeout)
        except StreamsException:
            # If this member led the failed rebalance, it knows the cause.
            self._check_leading()
            raise
        self._check_leading()
        self._lose_if_expelled()
        self._note_generation(self._consumer.group_metadata())
        self._follow()
        if self._scheduled_rebalance.due(int(time.time() * 1000)):
            self.ask("the follow-up rebalance is due")

    def _check_leading(self) -> None:
        failure, self._assignor.failure = self._assignor.failure, None
        if failure is not None:
            raise failure

    def purge(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete records of internal topics before the given offsets."""
        self._topics.purge(before)

    def ask_all_to_end(self) -> None:
        """Shut down the whole application: a subscription asks the leader, whose answer goes to every member.

        Returns once this member has its answer, at the latest after ``max.poll.interval.ms``.
        """
        self._assignor.shutdown_requested = True
        deadline = time.monotonic() + self._config.max_poll_interval_ms / 1000
        self._consumer.enforce_rebalance("the application is to end")
        while time.monotonic() < deadline:
            try:
                self._consumer.poll(_ASK_SECONDS)
            except ApplicationShutdownException:
                return
            except WakeupException:
                continue
            except KafkaException as error:
                if not error.retriable:
                    raise
        log.warning("the group did not answer the request to shut down the application; other instances may continue")

    def wakeup(self) -> None:
        """End a waiting :meth:`poll`. Thread-safe."""
        self._consumer.wakeup()

    def interrupt(self) -> None:
        """Interrupt requests about topics and transactions, now and later. Thread-safe."""
        self._topics.interrupt()

    def close(self, *, for_good: bool = False) -> None:
        """Leave the group, a static member only ``for_good``, and close the connections; takes some seconds at most."""
        self._consumer.close(_LEAVE_SECONDS, for_good=for_good)

    def consider_follow_up(self, tasks: TaskSet) -> None:
        """Request a rebalance once a cold copy has warmed up."""
        if not self._config.follow_up_when_caught_up or not self._follow_up.waits:
            return
        if warm := self._follow_up.reasons(tasks.standby_lags(), time.monotonic()):
            names = ", ".join(map(str, warm))
            log.info("copies of %s are warm: requesting the follow-up rebalance", names)
            self.ask(f"copies of {names} are warm")

    def note_service(self, *, all_up: bool) -> None:
        """Record whether every active task is in service; called repeatedly."""
        if all_up:
            self._story.in_service(time.monotonic())

    def expect_rebalance(self) -> None:
        """Check for the imminent rebalance sooner than the next heartbeat would."""
        self._consumer.expect_rebalance()

    def ask(self, reason: str) -> None:
        """Request a rebalance."""
        self._assignor.asked = reason
        self._consumer.enforce_rebalance(reason)

    def _note_generation(self, metadata: GroupMetadata) -> None:
        """Commit under the newest generation from now on: tasks are ours until they are revoked."""
        if self._tasks is not None and metadata.generation >= 0:
            self._tasks.joined(metadata)

    def _lose_if_expelled(self) -> None:
        """Drop all tasks if expelled: ``on_lost`` is not called for those assigned since then."""
        assert self._tasks is not None, "subscribe() comes after start()"
        if self._joined and self._consumer.group_metadata().generation < 0:
            self._lose(self._tasks, {partition for task in self._tasks.all() for partition in task.inputs})

    def _lose(self, tasks: TaskSet, partitions: Collection[TopicPartition]) -> None:
        self._story.loses()
        self._joined = False
        self._unfollowed = None
        tasks.lose(partitions)

    def _offset_sums(self) -> Mapping[TaskId, int]:
        self._lose_if_expelled()
        assert self._tasks is not None
        self._story.joins(time.monotonic())
        sums = self._tasks.offset_sums()
        self._follow_up.on_subscription(self._tasks.standby_lags(), (task.id for task in self._tasks.running()))
        return sums

    def _on_info(self, info: AssignmentInfo, metadata: GroupMetadata) -> None:
        assert self._tasks is not None
        active, standby = frozenset(info.active_tasks), frozenset(info.standby_tasks)
        self._story.assigned(self._assignor.notice, metadata.generation, active, standby, time.monotonic())
        self._joined = True
        self.member_id = metadata.member_id
        self._note_generation(metadata)
        self.hosts = GroupHosts(info.partitions_by_host, info.standby_partitions_by_host, metadata.generation)
        self._follow_up.on_assignment(time.monotonic())
        self._scheduled_rebalance.on_assignment(info.next_rebalance_ms, int(time.time() * 1000))
        self._unfollowed = active, standby
        self._follow()

    def _follow(self) -> None:
        """Follow the newest assignment; if the broker does not answer, the next poll retries."""
        if self._unfollowed is None:
            return
        assert self._tasks is not None
        active, standby = self._unfollowed
        self._tasks.follow(active, standby)
        self._unfollowed = None
        self._follow_up.on_followed(standby, self._assignor.notice.warms(self._process_id))

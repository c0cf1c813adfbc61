"""The request managers of one consumer, wired together, and the dispatch of events to them.

A core lives in the network thread. It is separate from the loop so that several consumers can share a thread, and so
that a test can drive it with its own clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkrelay.consumer.base.events import (
    Adopted,
    Assigned,
    Commit,
    ErrorRaised,
    ExpectRebalance,
    FetchCommitted,
    Leave,
    ListOffsets,
    PartitionsChanged,
    Polled,
    Prepared,
    Rejoin,
    Subscribe,
    TopicsAsked,
)
from sparkrelay.consumer.base.metrics import ConsumerMetrics
from sparkrelay.consumer.base.requests import RequestState
from sparkrelay.consumer.base.topic_metadata import TopicMetadataManager
from sparkrelay.consumer.fetch.fetching import FetchManager
from sparkrelay.consumer.group.classic_membership import ClassicMembership
from sparkrelay.consumer.group.classic_requests import MemberSettings
from sparkrelay.consumer.group.consumer_membership import ConsumerMembership
from sparkrelay.consumer.group.coordinator import CoordinatorManager
from sparkrelay.consumer.group.heartbeats import HeartbeatManager
from sparkrelay.consumer.group.membership import LostPartitions
from sparkrelay.consumer.group.rebalance_log import RebalanceLog
from sparkrelay.consumer.offsets.commits import CommitManager
from sparkrelay.consumer.offsets.offsets import OffsetsManager
from sparkrelay.consumer.offsets.positions import PositionsManager
from sparkrelay.consumer.offsets.validation import ValidationManager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.assignor import PartitionAssignor
    from sparkrelay.consumer.base.call import Call
    from sparkrelay.consumer.base.config import ConsumerConfig
    from sparkrelay.consumer.base.events import AdoptNeeded, ApplicationEvent, AssignNeeded, JoinNeeded
    from sparkrelay.consumer.base.mailbox import Mailbox
    from sparkrelay.consumer.base.requests import RequestManager, Unsent
    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.consumer.fetch.fetch_buffer import FetchBuffer
    from sparkrelay.consumer.group.membership import Membership
    from sparkrelay.errors import KafkaException


@dataclass(eq=False)
class ConsumerCore:
    """The managers, in polling order.

    Managers that find something missing are polled before those that fetch it: coordinator and metadata come last.
    """

    config: ConsumerConfig
    metadata: Metadata
    mailbox: Mailbox
    subscription: SubscriptionState  # what both threads know of partitions
    assignors: Sequence[PartitionAssignor]  # what the member offers to its group
    buffer: FetchBuffer | None  # takes fetched data; None for a consumer that does not fetch
    metrics: ConsumerMetrics = field(default_factory=ConsumerMetrics)

    def __post_init__(self) -> None:
        config, metadata = self.config, self.metadata
        self.now = 0.0  # monotonic time of the present turn or answer, for observers
        self._topics = TopicMetadataManager(
            metadata,
            max_age=config.metadata_max_age_ms / 1000,
            state=self._make_state(),
            fail=self.fail,
            refused=lambda topic, error: self.mailbox.put(ErrorRaised(error, topic=topic)),
        )
        self._offsets = OffsetsManager(
            metadata, self._topics.stale, self._make_state, timeout_ms=config.client.request_timeout_ms
        )
        self.membership: Membership | None = None
        self._story: RebalanceLog | None = None
        self._heartbeats: HeartbeatManager | None = None
        self._commits: CommitManager | None = None
        managers: list[RequestManager] = []
        finders: list[RequestManager] = [self._topics]
        if config.group_id is not None:
            coordinator, managers = self._make_group(config.group_id)
            finders.insert(0, coordinator)
        self._fetches: FetchManager | None = None
        if self.buffer is not None:
            positions = PositionsManager(
                self.subscription,
                commits=self._commits,
                offsets=self._offsets,
                reset_timestamp=config.reset_timestamp,
                read_committed=config.read_committed,
                fail=self.fail,
                notify=self.mailbox.notify,
            )
            validation = ValidationManager(
                metadata,
                self.subscription,
                has_reset=config.auto_offset_reset != "none",
                reset=positions.reset,
                drop=self.buffer.drop,
                stale=self._topics.stale,
                make_state=self._make_state,
                fail=self.fail,
            )
            self._fetches = FetchManager(
                metadata, config, self.buffer, self._topics.stale, sessions=True, rack=config.client_rack
            )
            managers = [positions, validation, *managers, self._fetches]
        self.managers: tuple[RequestManager, ...] = (*managers, self._offsets, *finders)

    @property
    def group_metadata(self) -> GroupMetadata | None:
        """The member's identity in its group; None without a group."""
        return None if self.membership is None else self.membership.metadata

    @property
    def awaits_poll(self) -> bool:
        """Whether the member has left and joins again when polled."""
        return self.membership is not None and self.membership.awaits_poll

    @property
    def given_up(self) -> bool:
        """Whether the member will not join again."""
        return self.membership is not None and self.membership.given_up

    def last_requests(self) -> tuple[Unsent, ...]:
        """Return final requests, by which brokers forget us; nobody waits for their answers."""
        return () if self._fetches is None else self._fetches.close_sessions()

    def partitions(self, topic: str) -> tuple[int, ...]:
        """Return a topic's known partition numbers."""
        return self.metadata.partitions(topic) or ()

    def topics(self) -> frozenset[str]:
        """Return the names of all known topics except Kafka's internal ones."""
        return frozenset(name for name, topic in self.metadata.topics().items() if not topic.is_internal)

    def fail(self, error: Exception) -> None:
        """Have the next ``poll`` raise ``error``."""
        self.mailbox.put(ErrorRaised(error))

    def answered(self, request: Any, message: Any, error: KafkaException | None, sent_at: float) -> None:
        """Observe the answer to a request, before its manager gets it."""
        self.metrics.answered(request, message, error, sent_at=sent_at, now=self.now)
        if self._story is not None:
            self._story.received(request, message, error, sent_at=sent_at, now=self.now)

    def _on_step(self, step: JoinNeeded | AssignNeeded | AdoptNeeded) -> None:
        if self._story is not None and self.membership is not None:
            self._story.on_step(step, self.membership.reason, self.now, away=self.awaits_poll)
        self.mailbox.put(step)

    def process(self, event: ApplicationEvent, now: float) -> None:
        """Dispatch an application event to its manager."""
        self.now = now
        match event:
            case Polled(time, missed):
                if self.membership is not None:
                    if missed:
                        self.membership.poll_missed()
                    if self._story is not None and self.awaits_poll:
                        self._story.returned(now)
                    self.membership.polled(time)
            case Prepared() | Assigned() | Adopted():
                if self._story is not None:
                    self._story.answered(event, now)
                if self.membership is not None:
                    self.membership.answered(event, now)
                self._follow_assignment()
            case Subscribe(topics, pattern):
                assert self.membership is not None, "the consumer checks group.id"
                self.membership.subscribe(topics, pattern, now)
                self._follow_assignment()
            case PartitionsChanged():
                self._follow_assignment()
            case Rejoin(reason):
                if self.membership is not None:
                    self.membership.rejoin(reason)
            case ExpectRebalance():
                if self._heartbeats is not None:
                    self._heartbeats.hasten(now)
            case Leave(call, reason, for_good):
                self._follow_assignment()
                if self.membership is None:
                    call.resolve(None)
                else:
                    if self._story is not None:
                        self._story.ended(reason, now)
                    self.membership.leave(call, reason, for_good=for_good)
            case Commit(call=call):
                assert self._commits is not None, "the consumer checks group.id"
                self._commits.commit(event)
            case FetchCommitted(call, partitions):
                assert self._commits is not None, "the consumer checks group.id"
                self._commits.fetch(call, partitions)
            case ListOffsets(call, wanted, read_committed):
                self._offsets.ask(call, wanted, read_committed=read_committed)
            case TopicsAsked(call, topics):
                self._topics.ask(topics, lambda: self._answer_metadata(call, topics), call.fail)

    def _answer_metadata(self, call: Call, topics: frozenset[str] | None) -> None:
        if (refusal := self._topics.refusal(topics or ())) is None:
            call.resolve(None)
        else:
            call.fail(refusal)

    def _follow_assignment(self) -> None:
        """Track exactly the topics that are assigned or subscribed to."""
        held = self.subscription.assigned
        self._topics.want({partition.topic for partition in held} | self.subscription.topics)
        if self._fetches is not None:
            self._fetches.keep(held)

    def _make_state(self) -> RequestState:
        return RequestState(self.config.client.retry_backoff())

    def _make_group(self, group_id: str) -> tuple[CoordinatorManager, list[RequestManager]]:
        config = self.config
        coordinator = CoordinatorManager(
            group_id, metadata=self.metadata, topics=self._topics, fail=self._group_failed, state=self._make_state()
        )
        settings = MemberSettings(
            group_id=group_id,
            assignors=tuple((assignor.name, assignor.supports_cooperative) for assignor in self.assignors),
            remote_assignor=config.group_remote_assignor,
            group_instance_id=config.group_instance_id,
            rack=config.client_rack or None,
            session_timeout=config.session_timeout_ms / 1000,
            heartbeat_interval=config.heartbeat_interval_ms / 1000,
            max_poll_interval=config.max_poll_interval_ms / 1000,
        )
        around = settings, coordinator, self._topics, self.metadata, self._on_step, self._member_failed
        broker_assigns = config.group_protocol == "consumer"
        membership: Membership = (
            ConsumerMembership(*around)
            if broker_assigns
            else ClassicMembership(*around, matched=self._matched, retry=self._make_state())
        )
        self.membership = membership
        self._story = RebalanceLog(lambda: membership.metadata, lambda: self.subscription.assigned, self.metrics)
        self._heartbeats = HeartbeatManager(
            membership,
            coordinator,
            session_timeout=math.inf if broker_assigns else settings.session_timeout,
            state=self._make_state(),
        )

        def place() -> GroupMetadata | None:
            """Return the identity that fences a member's commits; None for partitions assigned by hand."""
            return membership.metadata if membership.subscribed else None

        self._commits = CommitManager(
            group_id,
            coordinator=coordinator,
            metadata=self.metadata,
            stale=self._topics.stale,
            place=place,
            fenced=membership.fenced,
            member_reads=broker_assigns,
            make_state=self._make_state,
        )
        lost = LostPartitions(place, self.subscription)
        return coordinator, [membership, lost, self._heartbeats, self._commits]

    def _matched(self, topics: frozenset[str]) -> None:
        self.subscription.match(topics)
        self._follow_assignment()

    def _group_failed(self, error: KafkaException) -> None:
        assert self.membership is not None, "made together with the coordinator"
        assert self._commits is not None, "made together with the coordinator"
        awaited = self._commits.refused(error)
        if self.membership.active:
            self.membership.refused(error)
        elif not awaited:
            self.fail(error)

    def _member_failed(self, error: Exception) -> None:
        self.mailbox.put(ErrorRaised(error, fatal=self.given_up))

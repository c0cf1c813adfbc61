"""All request managers of one consumer, wired together, and which event goes to whom.

It lives in the network thread. It is apart from the loop so that several consumers of one process can share a thread,
and so that a test can drive it with a clock of its own.
"""

from __future__ import annotations

import logging
import math
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
from sparkrelay.consumer.group.lost_partitions import LostPartitions
from sparkrelay.consumer.group.rebalance_log import RebalanceLog
from sparkrelay.consumer.offsets.commits import CommitManager
from sparkrelay.consumer.offsets.offsets import OffsetsManager
from sparkrelay.consumer.offsets.positions import PositionsManager
from sparkrelay.consumer.offsets.validation import ValidationManager

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.assignor import GroupMetadata, PartitionAssignor
    from sparkrelay.consumer.base.config import ConsumerConfig
    from sparkrelay.consumer.base.events import AdoptNeeded, ApplicationEvent, AssignNeeded, Call, JoinNeeded, Mailbox
    from sparkrelay.consumer.base.requests import RequestManager, Unsent
    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.consumer.fetch.fetch_buffer import FetchBuffer
    from sparkrelay.consumer.group.membership import Membership
    from sparkrelay.errors import KafkaException

__all__ = ["ConsumerCore"]

_log = logging.getLogger(__name__)


class ConsumerCore:
    """The managers, in the order in which they are polled.

    Those that find something missing stand before those that fetch it: coordinator and metadata come last.

    Args:
        config: the consumer's settings.
        metadata: the cluster.
        mailbox: takes background events.
        subscription: what both threads know of partitions.
        assignors: what the member offers to its group.
        buffer: takes fetched data; None for a consumer that does not fetch.
        metrics: counts.

    Attributes:
        now: monotonic time of the present turn or answer, for those who only listen.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        metadata: Metadata,
        *,
        mailbox: Mailbox,
        subscription: SubscriptionState,
        assignors: Sequence[PartitionAssignor],
        buffer: FetchBuffer | None,
        metrics: ConsumerMetrics | None = None,
    ) -> None:
        self.now = 0.0
        self._metrics = metrics if metrics is not None else ConsumerMetrics()
        self._story: RebalanceLog | None = None
        self._heartbeats: HeartbeatManager | None = None
        self._config = config
        self._metadata = metadata
        self._mailbox = mailbox
        self._subscription = subscription
        self._topics = TopicMetadataManager(
            metadata,
            max_age=config.metadata_max_age_ms / 1000,
            state=self._make_state(),
            fail=self.fail,
            refused=lambda topic, error: mailbox.put(ErrorRaised(error, topic=topic)),
        )
        self._offsets = OffsetsManager(
            metadata,
            stale=self._topics.stale,
            make_state=self._make_state,
            timeout_ms=config.client.request_timeout_ms,
        )
        self.membership: Membership | None = None
        self._commits: CommitManager | None = None
        managers: list[RequestManager] = []
        finders: list[RequestManager] = [self._topics]
        if config.group_id is not None:
            coordinator, managers = self._make_group(config.group_id, assignors)
            finders.insert(0, coordinator)
        self._fetches: FetchManager | None = None
        if buffer is not None:
            positions = self._make_positions(buffer)
            managers[:0] = [positions, self._make_validation(buffer, positions)]
            self._fetches = self._make_fetches(buffer)
            managers.append(self._fetches)
        self.managers: tuple[RequestManager, ...] = (*managers, self._offsets, *finders)

    @property
    def group_metadata(self) -> GroupMetadata | None:
        """The member's place in its group; None without a group."""
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
        """Return last requests, for brokers to forget us; nobody waits for their answers."""
        return () if self._fetches is None else self._fetches.close_sessions()

    def partitions(self, topic: str) -> tuple[int, ...]:
        """Return a topic's partition numbers, as far as they are known."""
        return self._metadata.partitions(topic) or ()

    def topics(self) -> frozenset[str]:
        """Return the names of all topics that are known, without Kafka's internal ones."""
        return frozenset(name for name, topic in self._metadata.topics().items() if not topic.is_internal)

    def fail(self, error: Exception) -> None:
        """Have the next ``poll`` raise ``error``."""
        self._mailbox.put(ErrorRaised(error))

    def answered(self, request: Any, message: Any, error: KafkaException | None, sent_at: float) -> None:
        """Listen to the answer to a request, before its manager gets it."""
        self._metrics.answered(request, message, error, sent_at=sent_at, now=self.now)
        if self._story is not None:
            self._story.received(request, message, error, sent_at=sent_at, now=self.now)

    def _on_step(self, step: JoinNeeded | AssignNeeded | AdoptNeeded) -> None:
        if self._story is not None and self.membership is not None:
            self._story.on_step(step, self.membership.reason, self.now, away=self.awaits_poll)
        self._mailbox.put(step)

    def process(self, event: ApplicationEvent, now: float) -> None:
        """Take an event of the application to its manager."""
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
        refusal = self._topics.refusal(topics or ())
        if refusal is None:
            call.resolve(None)
        else:
            call.fail(refusal)

    def _follow_assignment(self) -> None:
        """Look after the topics of what is held or subscribed to, and after no other partitions."""
        held = self._subscription.assigned
        self._topics.want({partition.topic for partition in held} | self._subscription.topics)
        if self._fetches is not None:
            self._fetches.keep(held)

    # -- wiring ------------------------------------------------------------------------------------------------------

    def _make_state(self) -> RequestState:
        client = self._config.client
        return RequestState(client.retry_backoff_ms / 1000, client.retry_backoff_max_ms / 1000)

    def _make_group(
        self, group_id: str, assignors: Sequence[PartitionAssignor]
    ) -> tuple[CoordinatorManager, list[RequestManager]]:
        config = self._config
        coordinator = CoordinatorManager(
            group_id, metadata=self._metadata, topics=self._topics, fail=self._group_failed, state=self._make_state()
        )
        settings = MemberSettings(
            group_id=group_id,
            assignors=tuple((assignor.name, assignor.supports_cooperative) for assignor in assignors),
            remote_assignor=config.group_remote_assignor,
            group_instance_id=config.group_instance_id,
            rack=config.client_rack or None,
            session_timeout=config.session_timeout_ms / 1000,
            heartbeat_interval=config.heartbeat_interval_ms / 1000,
            max_poll_interval=config.max_poll_interval_ms / 1000,
        )
        broker_assigns = config.group_protocol == "consumer"
        self.membership = membership = (
            self._make_consumer_membership(settings, coordinator)
            if broker_assigns
            else self._make_classic_membership(settings, coordinator)
        )
        self._story = RebalanceLog(lambda: membership.metadata, lambda: self._subscription.assigned, self._metrics)
        self._heartbeats = heartbeats = HeartbeatManager(
            membership,
            coordinator,
            session_timeout=math.inf if broker_assigns else settings.session_timeout,
            state=self._make_state(),
        )

        def place() -> GroupMetadata | None:
            """Return what commits of a member are fenced with; those for partitions assigned by hand are not."""
            return membership.metadata if membership.subscribed else None

        self._commits = CommitManager(
            group_id,
            coordinator=coordinator,
            metadata=self._metadata,
            stale=self._topics.stale,
            place=place,
            fenced=membership.fenced,
            member_reads=broker_assigns,
            make_state=self._make_state,
        )
        lost = LostPartitions(place, self._subscription)
        return coordinator, [membership, lost, heartbeats, self._commits]

    def _make_consumer_membership(
        self, settings: MemberSettings, coordinator: CoordinatorManager
    ) -> ConsumerMembership:
        return ConsumerMembership(
            settings,
            coordinator=coordinator,
            topics=self._topics,
            metadata=self._metadata,
            on_step=self._on_step,
            fail=self._member_failed,
        )

    def _make_classic_membership(self, settings: MemberSettings, coordinator: CoordinatorManager) -> ClassicMembership:
        return ClassicMembership(
            settings,
            coordinator=coordinator,
            topics=self._topics,
            metadata=self._metadata,
            on_step=self._on_step,
            fail=self._member_failed,
            matched=self._matched,
            state=self._make_state(),
        )

    def _matched(self, topics: frozenset[str]) -> None:
        self._subscription.match(topics)
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
        self._mailbox.put(ErrorRaised(error, fatal=self.given_up))

    def _make_positions(self, buffer: FetchBuffer) -> PositionsManager:
        return PositionsManager(
            self._subscription,
            commits=self._commits,
            offsets=self._offsets,
            reset=self._config.reset_timestamp,
            read_committed=self._config.read_committed,
            fail=self.fail,
            notify=buffer.notify,
        )

    def _make_validation(self, buffer: FetchBuffer, positions: PositionsManager) -> ValidationManager:
        return ValidationManager(
            self._metadata,
            self._subscription,
            has_reset=self._config.auto_offset_reset != "none",
            reset=positions.reset,
            drop=buffer.drop,
            stale=self._topics.stale,
            make_state=self._make_state,
            fail=self.fail,
        )

    def _make_fetches(self, buffer: FetchBuffer) -> FetchManager:
        rack = self._config.client_rack
        return FetchManager(self._metadata, self._config, buffer, self._topics.stale, sessions=True, rack=rack)

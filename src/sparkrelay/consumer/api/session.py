"""The application's side of a consumer, whether it blocks or awaits: its parts, and its operations as exchanges.

``Consumer`` runs the exchanges on the calling thread, ``AsyncConsumer`` in the current task. The caller has exclusive
use of the consumer (see ``access``), so there are no locks here. See the consumer threading refactor, "Application
thread and its lifecycle". Operations on offsets are in ``offset_exchanges``.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Final

from sparkrelay.consumer.api.auto_commit import AsyncCommits
from sparkrelay.consumer.api.deserializers import Deserializers, first_offsets
from sparkrelay.consumer.api.exchanges import HURRIED_SECONDS, ClosingDeadline, attempt, outcome, raise_first
from sparkrelay.consumer.api.forgotten import close_if_forgotten, not_holding
from sparkrelay.consumer.api.offset_exchanges import OffsetExchanges
from sparkrelay.consumer.api.rebalance import RebalanceSteps
from sparkrelay.consumer.api.record import to_records
from sparkrelay.consumer.assignors.built_in import offered
from sparkrelay.consumer.base.arguments import at_least_one, function_of, mapping_of, partitions_of, seconds_of, text_of
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.config import ConsumerConfig
from sparkrelay.consumer.base.errors import copy_of
from sparkrelay.consumer.base.events import (
    AdoptNeeded,
    AssignNeeded,
    ErrorRaised,
    ExpectRebalance,
    JoinNeeded,
    Leave,
    PartitionsChanged,
    Rejoin,
    Subscribe,
)
from sparkrelay.consumer.base.mailbox import Mailbox, Wait
from sparkrelay.consumer.base.metrics import ConsumerMetrics
from sparkrelay.consumer.base.subscription import SubscriptionState
from sparkrelay.consumer.fetch.fetch_buffer import FetchBuffer
from sparkrelay.consumer.group.pattern_topics import pattern_for_broker, topics_or_pattern
from sparkrelay.consumer.network.core import ConsumerCore
from sparkrelay.consumer.network.network_thread import attach
from sparkrelay.errors import (
    ConfigException,
    DisconnectException,
    OffsetOutOfRangeException,
    SparkRelayError,
    TimeoutException,
)
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.consumer.api.access import AccessControl
    from sparkrelay.consumer.api.exchanges import Exchange
    from sparkrelay.consumer.api.rebalance import Callback
    from sparkrelay.consumer.api.record import Record
    from sparkrelay.consumer.base.assignor import PartitionAssignor
    from sparkrelay.consumer.base.events import Adopted, Assigned, BackgroundEvent, Prepared
    from sparkrelay.consumer.network.network_thread import NetworkThread

_CLOSE_SECONDS: Final = 30.0
#: Least time for leaving the group, whatever the caller's timeout: others wait for the partitions.
_LEAVE_SECONDS: Final = 1.0


class Session(OffsetExchanges):
    """One consumer's state in the application thread. The keyword arguments are those of ``Consumer``.

    Args:
        face: the ``Consumer`` or ``AsyncConsumer``: the first argument of callbacks.
        settings: Kafka's dotted keys, and ``key.deserializer`` and ``value.deserializer``.
        access: who may use the consumer.
    """

    def __init__(
        self,
        face: object,
        settings: Mapping[str, object],
        access: AccessControl,
        *,
        assignors: Sequence[PartitionAssignor | str],
        key_deserializer: object | None,
        value_deserializer: object | None,
        fetching: bool,
        network: NetworkThread | None,
    ) -> None:
        mapping_of("config", settings)
        self._deserializers, rest = Deserializers.of(settings, key_deserializer, value_deserializer)
        self.config = config = ConsumerConfig.from_dict(rest)
        self._access = access
        self._fetching = fetching
        self._assignors = config.choose_assignors(assignors, offered)
        self.mailbox = Mailbox()
        self.metrics = ConsumerMetrics()
        self.subscription = SubscriptionState()
        self._rebalance = RebalanceSteps(
            face,
            self.subscription,
            self._assignors,
            before_revoking=lambda: self._commits.now(self._revoking_deadline()),
            # A commit that is sent in the next generation would reset the next owner's.
            after_revoking=lambda: self._commits.decided(self._revoking_deadline()),
            after_callback=access.check,
        )
        self._buffer: FetchBuffer | None = None
        if fetching:
            self._buffer = FetchBuffer(
                self.subscription,
                self.mailbox,
                read_committed=config.read_committed,
                check_crcs=config.check_crcs,
                max_decompressed=config.client.max_decompressed_batch_bytes,
                out_of_range=functools.partial(_reset_or_raise, config, self.subscription),
            )
        self._group_failure: Exception | None = None
        #: Deadline for commits while all partitions are given up; None otherwise.
        self._leaving: ClosingDeadline | None = None
        self.closed = False
        self.network = attach(network, config, self.mailbox, not_holding(self._make_core))
        self._not_forgotten = close_if_forgotten(face, self.network, config.client.client_id)
        self._commits = AsyncCommits(
            self.network,
            config,
            self.mailbox,
            self.subscription,
            enabled=config.enable_auto_commit and config.group_id is not None and fetching,
            after_callback=access.check,
        )

    def _make_core(self, client: KafkaClient) -> ConsumerCore:
        return ConsumerCore(
            self.config, client.metadata, self.mailbox, self.subscription, self._assignors, self._buffer, self.metrics
        )

    # -- subscription -------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str],
        on_assigned: Callback | None,
        on_revoked: Callback | None,
        on_lost: Callback | None,
    ) -> Exchange[None]:
        """Become a member of the group for topics; without topics, ``unsubscribe``."""
        for name, callback in (("on_assigned", on_assigned), ("on_revoked", on_revoked), ("on_lost", on_lost)):
            function_of("subscribe()", name, callback)
        wanted, pattern = topics_or_pattern(topics)
        if not wanted and pattern is None:
            yield from self.leave("subscribe() to nothing", self.deadline())
            return
        self.config.require_group("subscribe()")
        if pattern is not None and self.config.group_protocol == "consumer":
            pattern_for_broker(pattern)  # raises here, for the caller
        if not self.subscription.subscribed:
            self.network.polled_at = time.monotonic()  # from now on the group waits for polls
        self.subscription.subscribe(wanted, pattern)
        self._rebalance.set_callbacks(on_assigned, on_revoked, on_lost)
        self.network.submit(Subscribe(wanted, pattern))

    def assign(self, partitions: Iterable[TopicPartition]) -> Exchange[None]:
        """Read partitions outside of any group; without partitions, ``unsubscribe``."""
        wanted = partitions_of("assign()", partitions)
        if not wanted:
            yield from self.leave("assign() of nothing", self.deadline())
            return
        self._commits.soon()
        self.subscription.assign_by_hand(wanted)
        self.network.submit(PartitionsChanged())

    def unsubscribe(self) -> Exchange[None]:
        """Give up everything, and leave the group."""
        yield from self.leave("the consumer unsubscribed", self.deadline())

    def enforce_rebalance(self, reason: str) -> None:
        """Request a rebalance."""
        event = Rejoin(text_of("enforce_rebalance(): reason", reason))
        self.config.require_group("enforce_rebalance()")
        self.network.submit(event)

    def expect_rebalance(self) -> None:
        """Send heartbeats quickly for a while."""
        self.config.require_group("expect_rebalance()")
        self.network.submit(ExpectRebalance())

    def group_metadata(self) -> GroupMetadata:
        """Return the member's identity in its group."""
        self.config.require_group("group_metadata()")
        metadata = self.network.core.group_metadata
        assert metadata is not None, "there is a group.id"
        return metadata

    # -- polling ------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float, max_records: int | None, max_bytes: int | None) -> Exchange[pa.Table]:
        """Serve the group, and return records."""
        self.metrics.poll_began(time.monotonic())
        try:
            return (yield from self._poll(timeout, max_records, max_bytes))
        finally:
            self.metrics.poll_ended(time.monotonic())

    def records(self, timeout: float, max_records: int | None, max_bytes: int | None) -> Exchange[list[Record]]:
        """Do what ``poll`` does, and return the rows one by one."""
        table: pa.Table | None = None
        try:
            table = yield from self.poll(timeout, max_records, max_bytes)
            return to_records(table)
        except BaseException:
            # They are not returned: a value may not convert, and a Ctrl-C may come at any moment.
            if table is not None:
                self._go_back(first_offsets(table))
            raise

    def _poll(self, timeout: float, max_records: int | None, max_bytes: int | None) -> Exchange[pa.Table]:
        """Do what ``poll`` does.

        There is no wait between moving the positions and returning (KAFKA-15555). Within a callback it serves no
        rebalance: steps wait for the end of the present one.
        """
        at_least_one("max_records", max_records)
        at_least_one("max_bytes", max_bytes)
        deadline = time.monotonic() + seconds_of("poll()", timeout)
        if self._group_failure is not None:
            raise copy_of(self._group_failure)
        if not self.subscription.subscribed and not self.subscription.by_hand:
            raise ConfigException("poll() of a consumer without topics or partitions; call subscribe() or assign()")
        self._announce_poll()
        self._commits.when_due()
        while True:
            ran = yield from self._serve()
            # Callbacks may have taken so long that the member has left; polling makes it join again.
            self._announce_poll()
            if self._fetching:
                self.mailbox.raise_if_woken()
                table = self._collect(max_records or self.config.max_poll_records, max_bytes)
                if table.num_rows:
                    return table
            elif self.mailbox.take_wakeup() or ran:
                return self._deserializers.empty
            now = time.monotonic()
            if now >= deadline or not (self.subscription.subscribed or self.subscription.by_hand):
                return self._deserializers.empty  # a callback may have given up everything
            # The application is alive while it waits here.
            limit = min(deadline, now + self.config.max_poll_interval_ms / 3000)
            yield Wait(self._has_news, limit, for_steps=not self._access.nested)
            self._announce_poll()

    def _has_news(self) -> bool:
        return self.network.dead or self._commits.have_news or (self._buffer is not None and self._buffer.has_data())

    def _collect(self, max_records: int, max_bytes: int | None) -> pa.Table:
        assert self._buffer is not None, "a consumer that fetches has one"
        if not self._buffer.has_data():
            return self._deserializers.empty
        moved_from: dict[TopicPartition, int] = {}
        try:
            table = self._buffer.collect(max_records, max_bytes, moved_from)
        except SparkRelayError:
            self.network.wake()  # nothing was taken; it may be fetched again
            raise
        except BaseException:
            # A Ctrl-C may come between any two steps; what was taken is not returned.
            self._buffer.reset()
            self._go_back(moved_from)
            raise
        try:
            read, error = self._deserializers.read(table)
        except BaseException:
            self._go_back(first_offsets(table))
            raise
        if error is not None:
            self._go_back(first_offsets(table.slice(read.num_rows)))
            if not read.num_rows:
                raise error
        # If that made room, the next fetch is sent while the application works.
        if self._buffer.made_room():
            self.network.wake()
        if read.num_rows:
            self.metrics.consumed(read.num_rows, time.monotonic())
        return read

    def _go_back(self, positions: Mapping[TopicPartition, int]) -> None:
        for partition, offset in positions.items():
            self.subscription.go_back(partition, offset)
        self.network.wake()

    def _announce_poll(self) -> None:
        """Record that the application is alive; the network thread looks when it has its turn.

        It is a value and not an event, so that there is never more than one (KAFKA-18376). If it is too late, others
        may own our partitions, even if the network thread had no time to notice: both threads may have been stopped.
        """
        now = time.monotonic()
        if now - self.network.polled_at >= self.config.max_poll_interval_ms / 1000:
            self.subscription.lose()
            self.network.polls_missed += 1
        self.network.polled_at = now
        self.network.check()
        if self.network.core.awaits_poll:
            self.network.wake()

    def _serve(self) -> Exchange[bool]:
        """Handle events, up to the first error, which is raised; return whether a callback may have run."""
        ran, nested = False, self._access.nested
        if self._commits.have_news:
            yield from self._commits.run_callbacks()
        outer = self.mailbox.taken  # a callback polls: its step is under way
        try:
            while (event := self.mailbox.take(steps=not nested)) is not None:
                changed, error = yield from self._handle(event)
                self.mailbox.taken = None
                ran = ran or changed
                if error is not None:
                    raise error
                self.check_open()  # a callback may have closed the consumer
        except BaseException:
            # The network thread still waits for the step's answer.
            if self.mailbox.taken is not outer:
                self.mailbox.put_back()
            raise
        if not nested and (error := (yield from self._rebalance.introduce_again())) is not None:
            raise error
        return ran

    def _handle(self, event: BackgroundEvent) -> Exchange[tuple[bool, BaseException | None]]:
        """Return whether a callback may have run, and the error to raise."""
        held = self.subscription.assigned
        match event:
            case ErrorRaised(OffsetOutOfRangeException(partitions=lacking)) if lacking and self._all_placed(lacking):
                return False, None  # the application has called seek()
            case ErrorRaised(topic=str(topic)) if not self.subscription.concerns(topic):
                return False, None  # the application reads other topics now
            case ErrorRaised():
                if event.fatal:
                    self._group_failure = event.error
                    return False, copy_of(event.error)
                return False, event.error
            case JoinNeeded():
                error = yield from self._rebalance.prepare(event, self._answer)
                return held != self.subscription.assigned, error
            case AssignNeeded():
                return False, self._rebalance.assign(event, self._answer)
            case AdoptNeeded():
                if held and held.issubset(event.assignment.partitions):
                    # Nothing is given up, so nobody waits for this commit.
                    self._commits.soon()
                return True, (yield from self._rebalance.adopt(event, self._answer))

    def _all_placed(self, partitions: Iterable[tuple[str, int]]) -> bool:
        standings = (self.subscription.get(TopicPartition(*partition)) for partition in partitions)
        return all(s is None or s.position is not None or s.reset is not None for s in standings)

    def _answer(self, answer: Prepared | Assigned | Adopted) -> None:
        if not self.closed:
            self.network.submit(answer)
        self.mailbox.taken = None

    def wakeup(self) -> None:
        """End a wait, or the next one. For any thread, and for signal handlers."""
        self.mailbox.wakeup()

    # -- closing ------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None, *, for_good: bool = False) -> Exchange[None]:
        """Commit (if automatic), give up partitions, leave the group, end the network thread."""
        if self.closed:
            return
        self.mailbox.ignore_wakeups()
        failures: list[BaseException] = []
        closing = ClosingDeadline(time.monotonic() + (_CLOSE_SECONDS if timeout is None else timeout), failures)
        try:
            reason = "the consumer is being closed"
            yield from attempt(failures, lambda: self.leave(reason, closing.until(), for_good=for_good))
            yield from attempt(failures, lambda: self._commits.finish(closing.until()))
        finally:
            self.closed = True
            self.network.ask_to_stop()
        yield from attempt(failures, lambda: self._stopped(closing.until()))
        self.network.stop(1.0)
        self._not_forgotten()
        raise_first(failures)

    def _stopped(self, deadline: float) -> Exchange[None]:
        limit = max(deadline, time.monotonic() + 1.0)
        yield Wait(lambda: self.network.dead, limit, for_events=False, for_wakeup=False)

    def leave(self, reason: str, deadline: float, *, for_good: bool = False) -> Exchange[None]:
        """Revoke all partitions, then leave the group; raise the first error of a callback at the end.

        The member leaves even if a callback fails or a wait is interrupted (KAFKA-16933, KAFKA-16985).
        """
        failures: list[BaseException] = []
        # A silent coordinator must not use up the time for leaving.
        now = time.monotonic()
        closing = ClosingDeadline(now + max(0.0, deadline - now) / 2, failures)
        self.mailbox.discard_steps()
        if self.subscription.by_hand:
            yield from attempt(failures, lambda: self._commits.now(closing.until()))
        if self.subscription.subscribed:
            metadata = self.network.core.group_metadata
            if metadata is not None and metadata.generation < 0:
                yield from self._rebalance.lose(failures)
            else:
                outer, self._leaving = self._leaving, closing
                try:
                    yield from self._rebalance.revoke(self.subscription.assigned, failures)
                finally:
                    self._leaving = outer
            # Before leaving: the broker rejects commits of unknown members.
            yield from attempt(failures, lambda: self._commits.finish(closing.until()))
        self.subscription.clear()
        self._rebalance.forget()
        if self._buffer is not None:
            self._buffer.clear()
        try:
            until = ClosingDeadline(deadline, failures).until
            yield from attempt(failures, lambda: self._leave_group(reason, until(), for_good=for_good))
        finally:
            # Errors of the partitions given up no longer matter (KAFKA-17581, KAFKA-17648).
            self.mailbox.clear()
            self._group_failure = None
        raise_first(failures)

    def _leave_group(self, reason: str, deadline: float, *, for_good: bool) -> Exchange[None]:
        call = Call("leaving the group", max(deadline, time.monotonic() + _LEAVE_SECONDS))
        try:
            self.network.submit(Leave(call, reason, for_good), call)
            yield from outcome(call, self.mailbox, interruptible=False)
        except (TimeoutException, DisconnectException):
            pass  # the broker finds out by itself after session.timeout.ms
        except GeneratorExit:
            raise  # nobody runs this exchange any more
        except BaseException:
            # The request may be on its way; closing the connection now might lose it.
            limit = time.monotonic() + HURRIED_SECONDS
            yield Wait(lambda: call.done, limit, for_events=False, for_wakeup=False)
            raise

    # -- small things -------------------------------------------------------------------------------------------------

    def _revoking_deadline(self) -> float:
        """Return the deadline for commits before partitions are revoked.

        The group waits at most for the rebalance timeout, ``max.poll.interval.ms``: half of it before the callback and
        half after, or the member would be too late in any case.
        """
        if self._leaving is not None:
            return self._leaving.until()
        return min(self.deadline(), time.monotonic() + self.config.max_poll_interval_ms / 2000)

    def check_open(self) -> None:
        """Raise DisconnectException if the consumer is closed."""
        if self.closed:
            raise DisconnectException("the consumer is closed", retriable=False)
        self.network.check()


def _reset_or_raise(
    config: ConsumerConfig, subscription: SubscriptionState, partition: TopicPartition, offset: int
) -> None:
    """Apply ``auto.offset.reset`` to an offset that the log does not have."""
    reset = config.reset_timestamp()
    if reset is None:
        raise OffsetOutOfRangeException(
            f"{partition}: the log does not have offset {offset}, and auto.offset.reset=none; seek() to one that it has"
        )
    subscription.reset(partition, reset)

"""Validating positions after a change of leader, whose log may lack what we have read (KIP-320).

A leader that was elected although it lagged (unclean election, lost disk) may have truncated records that consumers
have read; fetching on from the same offset would skip what was written there since. So a position whose record has an
older epoch than the leader is not fetched from until OffsetForLeaderEpoch has returned the end of that epoch in the
leader's log. If it ends before the position, the log was truncated: with a reset policy the consumer continues at the
divergence (later records are new to it), without one it is an error.

Pure, see ``requests``. Source: KIP-320, "Consumer Handling"; Kafka's OffsetsRequestManager.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkrelay.client.broker_errors import STALE_METADATA, ErrorCode, broker_error
from sparkrelay.client.messages import OffsetForLeaderEpochRequest
from sparkrelay.client.messages.per_topic import grouped
from sparkrelay.consumer.base.requests import NOTHING, PollResult, RequestState, Unsent
from sparkrelay.consumer.base.subscription import LeaderView
from sparkrelay.errors import LogTruncationException, UnknownTopicException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.errors import KafkaException

_log = logging.getLogger(__name__)
_MIN_VERSION = 3  # earlier ones need a broker's rights
_UNKNOWN = -1
#: Pause between metadata requests for a missing leader.
_LEADERLESS_SECONDS = 0.1


@dataclass(eq=False)
class ValidationManager:
    """Compares positions with metadata, and asks leaders about the doubtful ones.

    Args:
        reset: called with a partition whose epoch the leader does not know at all: look the position up anew.
    """

    metadata: Metadata
    subscription: SubscriptionState
    has_reset: bool
    reset: Callable[[TopicPartition], None]
    drop: Callable[[TopicPartition], None]  # called with partitions whose fetched records may be of another log
    stale: Callable[[str], None]  # called with a topic whose leaders must be requested again
    make_state: Callable[[], RequestState]  # returns the pauses of one leader
    fail: Callable[[Exception], None]  # takes errors that the next ``poll`` raises

    def __post_init__(self) -> None:
        self._seen: tuple[int, int] | None = None
        self._doubtful: dict[TopicPartition, tuple[int, int]] = {}
        self._leaders: dict[int, RequestState] = {}

    def poll(self, now: float) -> PollResult:
        """Return requests to leaders."""
        seen = self.subscription.changes, self.metadata.version
        if seen != self._seen:
            self._seen = seen
            self._check()
        if not self._doubtful:
            return NOTHING
        self._doubtful = {p: asked for p, asked in self._doubtful.items() if self.subscription.is_doubtful(p, asked)}
        by_leader, leaderless = self.metadata.by_leader(self._doubtful)
        for partition in leaderless:
            self.stale(partition.topic)
        requests, wait = [], _LEADERLESS_SECONDS if leaderless else math.inf
        for leader, questions in by_leader.items():
            state = self._leaders.setdefault(leader, self.make_state())
            if (pause := state.wait(now)) > 0:
                wait = min(wait, pause)
            else:
                requests.append(self._unsent(leader, state, questions))
        return PollResult(tuple(requests), wait)

    def _check(self) -> None:
        doubtful, recreated = self.subscription.check(self._view)
        for partition in (*doubtful, *recreated):
            self.drop(partition)
        self._doubtful |= doubtful

    def _view(self, partition: TopicPartition) -> LeaderView:
        info = self.metadata.partition(partition)
        topic_id = self.metadata.topic_id(partition.topic)
        if info is None:
            return LeaderView(led=False, epoch=_UNKNOWN, topic_id=topic_id)
        return LeaderView(info.leader is not None, info.leader_epoch, topic_id)

    def _unsent(self, leader: int, state: RequestState, questions: Mapping[TopicPartition, tuple[int, int]]) -> Unsent:
        make = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        part = make.OffsetForLeaderPartition
        epochs = {partition: self.metadata.leader_epoch(partition) for partition in questions}
        topics = grouped(
            (at.topic, part(partition=at.partition, current_leader_epoch=epochs[at], leader_epoch=epoch))
            for at, (_, epoch) in questions.items()
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[make(topic=name, partitions=parts) for name, parts in topics.items()],
            min_version=_MIN_VERSION,
        )
        state.sent()

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            if error is None:
                error = self._take(questions, epochs, message)
            else:
                for topic in topics:
                    self.stale(topic)
                if not error.retriable:
                    self.fail(error)
            if error is None:
                state.succeeded()
            else:
                state.failed(now)

        return Unsent(request, handle, leader)

    def _take(
        self, questions: Mapping[TopicPartition, tuple[int, int]], epochs: Mapping[TopicPartition, int], message: Any
    ) -> KafkaException | None:
        """Handle an answer; return the error of parts that must be repeated."""
        again: KafkaException | None = None
        for topic in message.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.topic, answer.partition)
                asked = questions.get(partition)
                if asked is None:
                    continue
                code = answer.error_code
                if not code:
                    self._decide(partition, asked, (answer.end_offset, answer.leader_epoch), epochs[partition])
                    continue
                again = broker_error(code, f"asking where leader epoch {asked[1]} of {partition} ends")
                if code in STALE_METADATA:
                    self.stale(partition.topic)
                elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self.fail(again)
        return again

    def _decide(
        self, partition: TopicPartition, asked: tuple[int, int], end: tuple[int, int], current_epoch: int
    ) -> None:
        self._doubtful.pop(partition, None)
        if not self.subscription.is_doubtful(partition, asked):
            return
        offset, epoch = asked
        known = _UNKNOWN not in end
        if known and end[0] >= offset:
            self.subscription.confirmed(partition, asked, current_epoch)
            return
        where = f"the logs diverge at offset {end[0]} of epoch {end[1]}" if known else "the divergence is unknown"
        cut = (
            f"{partition}: its log was truncated: position {offset} (of leader epoch {epoch}) is not in the log of the "
            f"new leader (epoch {current_epoch}), {where}"
        )
        if not self.has_reset:
            remedy = f"seek() to {end[0]} to continue there" if known else "seek() to continue"
            self.fail(
                LogTruncationException(
                    f"{cut}, and auto.offset.reset=none; {remedy}",
                    partition=partition,
                    position=offset,
                    divergent_offset=end[0] if known else None,
                )
            )
        elif known:
            _log.warning("%s; continuing there", cut)
            self.subscription.truncated(partition, asked, end, current_epoch)
        else:
            _log.warning("%s; continuing at auto.offset.reset", cut)
            self.reset(partition)


def recreated_error(partition: TopicPartition, position: int | None) -> UnknownTopicException:
    """Return the error for a topic that was deleted and created again under the same name."""
    return UnknownTopicException(
        f"topic {partition.topic!r} was deleted and created again: position {position} of {partition} belongs to "
        "another record now, and was not committed; seek() to continue (seek_to_beginning(): from its start)"
    )

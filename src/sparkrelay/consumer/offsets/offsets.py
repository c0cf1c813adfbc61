"""Listing offsets: by timestamp, the start, the end.

One request per leader, all at once; partitions with an unknown or moved leader are repeated after a metadata request.
So ``end_offsets`` of a consumer with known leaders takes one round trip.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkrelay.client.broker_errors import STALE_METADATA, ErrorCode, broker_error
from sparkrelay.client.leader_requests import list_offsets_call
from sparkrelay.consumer.base.requests import PollResult, RequestState, Unsent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.client.leader_requests import LeaderCall
    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.call import Call
    from sparkrelay.errors import KafkaException
    from sparkrelay.types import TopicPartition


@dataclass(slots=True, eq=False)
class _Question:
    call: Call
    wanted: Mapping[TopicPartition, int]
    kind: LeaderCall
    state: RequestState
    found: dict[TopicPartition, int] = field(default_factory=dict)
    in_flight: set[TopicPartition] = field(default_factory=set)


@dataclass(eq=False)
class OffsetsManager:
    """Sends ListOffsets."""

    metadata: Metadata
    stale: Callable[[str], None]  # called with a topic whose leaders must be requested again
    make_state: Callable[[], RequestState]  # returns the pauses of one question
    timeout_ms: int  # how long the broker may take (KIP-1075)

    def __post_init__(self) -> None:
        self._questions: list[_Question] = []

    def ask(self, call: Call, wanted: Mapping[TopicPartition, int], *, read_committed: bool) -> None:
        """List offsets by partition; the call is resolved with a dict (-1: no record is that recent)."""
        if not wanted:
            call.resolve({})
        else:
            kind = list_offsets_call(read_committed=read_committed)
            self._questions.append(_Question(call, dict(wanted), kind, self.make_state()))

    def poll(self, now: float) -> PollResult:
        """Return requests for all offsets that are neither known nor under way."""
        if not self._questions:
            return PollResult()
        self._questions = [question for question in self._questions if not question.call.done]
        requests: list[Unsent] = []
        wait = math.inf
        for question in self._questions:
            if (pause := question.state.until - now) > 0:
                wait = min(wait, pause)
            else:
                requests += self._ask_leaders(question)
        return PollResult(tuple(requests), wait)

    def _ask_leaders(self, question: _Question) -> list[Unsent]:
        known = question.found.keys() | question.in_flight
        by_leader, leaderless = self.metadata.by_leader({p: t for p, t in question.wanted.items() if p not in known})
        for partition in leaderless:
            self.stale(partition.topic)
            question.call.last_error = self._why_leaderless(partition) or question.call.last_error
        question.in_flight.update(*by_leader.values())
        return [self._unsent(question, leader, asked) for leader, asked in by_leader.items()]

    def _why_leaderless(self, partition: TopicPartition) -> KafkaException | None:
        """Return the error for a partition without a leader, None if its metadata is unknown."""
        if code := self.metadata.topic_error(partition.topic):
            return broker_error(code, f"topic {partition.topic!r}")
        numbers = self.metadata.partitions(partition.topic)
        if numbers is None:
            return None
        if partition.partition not in numbers:
            what = f"{partition}: topic {partition.topic!r} has {len(numbers)} partitions"
            return broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
        return broker_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition}: it has no leader now")

    def _unsent(self, question: _Question, leader: int, asked: Mapping[TopicPartition, int]) -> Unsent:
        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            question.in_flight -= asked.keys()
            if error is None:
                self._take(question, message, now)
                return
            for topic in {partition.topic for partition in asked}:
                self.stale(topic)
            self._trouble(question, error, now)

        return Unsent(question.kind.request(asked, self.timeout_ms), handle, leader)

    def _take(self, question: _Question, message: Any, now: float) -> None:
        for partition, code, offset in question.kind.answers(message):
            if not code:
                question.found[partition] = offset
                continue
            error = broker_error(code, question.kind.describe(partition, question.wanted[partition]))
            if code in STALE_METADATA:
                self.stale(partition.topic)
            self._trouble(question, error, now)
        if len(question.found) == len(question.wanted):
            question.call.resolve({p: question.found[p] for p in question.wanted})

    def _trouble(self, question: _Question, error: KafkaException, now: float) -> None:
        question.call.last_error = error
        if error.retriable:
            question.state.failed(now)
        else:
            question.call.fail(error)

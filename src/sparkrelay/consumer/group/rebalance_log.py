"""The rebalance log, for whoever must find out why a rebalance took so long.

``sparkrelay.consumer.rebalance`` at INFO has one line per finished rebalance: its reason, its duration, the partitions
given and taken. DEBUG adds each step with its time: revoking, JoinGroup, the assignor, SyncGroup, the callbacks. The
log only observes steps, their answers and requests, so it serves every membership.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import error_name
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, Assigned, AssignNeeded, JoinNeeded, Prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.consumer.base.events import Step
    from sparkrelay.consumer.base.metrics import ConsumerMetrics
    from sparkrelay.errors import KafkaException
    from sparkrelay.types import TopicPartition

_log = logging.getLogger("sparkrelay.consumer.rebalance")
#: Topics named in one line.
_NAMED: Final = 10


@dataclass(eq=False)
class RebalanceLog:
    """Logs the rebalances of one member."""

    place: Callable[[], GroupMetadata]  # returns the member's identity in its group
    held: Callable[[], frozenset[TopicPartition]]  # returns the partitions that it holds
    metrics: ConsumerMetrics  # counts rebalances

    def __post_init__(self) -> None:
        #: When the present rebalance began; None outside of one.
        self._began: float | None = None
        #: The last step; answers to other steps are too late.
        self._step: Step | None = None
        #: Whether the member has left because nobody polled, and nobody has polled since.
        self._away = False
        self._step_began = 0.0
        self._why = ""
        self._before: frozenset[TopicPartition] = frozenset()

    def on_step(self, step: Step, reason: str, now: float, *, away: bool = False) -> None:
        """Log a new step; ``away`` if it waits for the application to poll again."""
        self._step, self._away = step, away
        self._step_began = now
        match step:
            case JoinNeeded():
                if self._began is not None:
                    self._say("it begins anew after %.3f s: %s", now - self._began, reason)
                    self.metrics.rebalance_failed(now)
                else:
                    self._before = self.held()
                self._began, self._why = now, reason
                self._say(
                    "rebalance: %s; partitions: %s, %d held, topics %s",
                    reason, step.hold.value, len(self.held()), ", ".join(sorted(step.topics)) or "none",
                )  # fmt: skip
            case AssignNeeded():
                self._say("leads %d members: assignor %r runs", len(step.members), step.assignor)
            case AdoptNeeded():
                if self._began is None:
                    self._began, self._why, self._before = now, reason or "the coordinator assigned", self.held()
                self._say("is given %s", _names(step.assignment.partitions))

    def returned(self, now: float) -> None:
        """Record that the application polls again: the rebalance begins now, not when it stopped polling."""
        if self._away:
            self._away = False
            self._step_began = now
            if self._began is not None:
                self._began = now

    def answered(self, answer: Prepared | Assigned | Adopted, now: float) -> None:
        """Log the application's answer to a step."""
        step = self._step
        if step is None or step.cancelled or answer.number != step.number:
            return
        took = now - self._step_began
        match answer:
            case Prepared() if self._began is not None:
                gone = self._before - answer.owned
                self._say("gave up %s in %.3f s, keeps %d", _names(gone), took, len(answer.owned))
            case Assigned():
                self._say("the assignor took %.3f s%s", took, f" and failed: {answer.error}" if answer.error else "")
            case Adopted() if self._began is not None:
                self._say("its callbacks took %.3f s", took)
                self._finish(now)

    def received(self, request: Any, message: Any, error: KafkaException | None, *, sent_at: float, now: float) -> None:
        """Log the answer to a request."""
        name = type(request).__name__
        if name not in _LOGGED:
            return
        code = getattr(message, "error_code", 0)
        if name in _BEATS:
            if error is not None or code:
                self._say("%s: %s", name, error or error_name(code))
            return
        what = str(error) if error is not None else error_name(code) if code else "granted"
        self._say("%s: %s after %.3f s", name, what, now - sent_at)

    def ended(self, reason: str, now: float) -> None:
        """Log that the member leaves, or gives up."""
        if self._began is not None:
            self.metrics.rebalance_failed(now)
            self._began = None
        self._step, self._away = None, False
        if self.place().member_id:
            self._say("leaves: %s", reason)

    def _finish(self, now: float) -> None:
        assert self._began is not None, "a rebalance is being logged"
        took, held = now - self._began, self.held()
        self._began = None
        self.metrics.rebalanced(took, now)
        place = self.place()
        _log.info(
            "group %s member %s generation %d: rebalanced in %.3f s (%s): given %s; taken %s; %d held",
            place.group_id, place.member_id, place.generation, took, self._why, _names(held - self._before),
            _names(self._before - held), len(held),
        )  # fmt: skip

    def _say(self, what: str, *args: object) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            place = self.place()
            prefix = "group %s member %s generation %d: "
            _log.debug(prefix + what, place.group_id, place.member_id or "(new)", place.generation, *args)


_BEATS: Final = frozenset({"HeartbeatRequest", "ConsumerGroupHeartbeatRequest"})
_LOGGED: Final = _BEATS | {"JoinGroupRequest", "SyncGroupRequest", "LeaveGroupRequest"}


def _names(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as a short text: ``orders 0-4, 7; users 0``."""
    runs: dict[str, list[list[int]]] = {}
    for topic, number in sorted(partitions):
        of_topic = runs.setdefault(topic, [])
        if of_topic and of_topic[-1][1] == number - 1:
            of_topic[-1][1] = number
        else:
            of_topic.append([number, number])
    texts = [
        f"{topic} " + ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in of_topic)
        for topic, of_topic in runs.items()
    ]
    return "; ".join(texts[:_NAMED] + (["..."] if len(texts) > _NAMED else [])) or "nothing"

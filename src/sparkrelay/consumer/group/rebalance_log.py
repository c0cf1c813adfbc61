"""A rebalance in the log: one logger, one line a step, for whoever must find out why it took so long.

``sparkrelay.consumer.rebalance`` at INFO: one line when a rebalance has ended: why it was, how long it took, what was
given and taken. At DEBUG: each step with its own time: what the application gave up, JoinGroup, the assignor,
SyncGroup, the callbacks. It only listens: to the steps that the membership asks of the application, to their answers,
and to requests; so any membership is logged the same way.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import error_name
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, Assigned, AssignNeeded, JoinNeeded, Prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkrelay.consumer.base.assignor import GroupMetadata
    from sparkrelay.consumer.base.events import Step
    from sparkrelay.consumer.base.metrics import ConsumerMetrics
    from sparkrelay.errors import KafkaException
    from sparkrelay.types import TopicPartition

__all__ = ["RebalanceLog"]

_log = logging.getLogger("sparkrelay.consumer.rebalance")
#: Topics named in one line.
_NAMED: Final = 10


class RebalanceLog:
    """See the module.

    Args:
        place: the member's place in its group.
        held: the partitions that it holds.
        metrics: counts rebalances.
    """

    def __init__(
        self,
        place: Callable[[], GroupMetadata],
        held: Callable[[], frozenset[TopicPartition]],
        metrics: ConsumerMetrics,
    ) -> None:
        self._place = place
        self._held = held
        self._metrics = metrics
        #: When the rebalance that is being logged began; None outside of one.
        self._began: float | None = None
        #: What the application was asked to do last; answers to other steps come too late.
        self._step: Step | None = None
        #: Whether the member has left because nobody polled, and nobody has since.
        self._away = False
        self._step_began = 0.0
        self._why = ""
        self._before: frozenset[TopicPartition] = frozenset()

    def on_step(self, step: Step, reason: str, now: float, *, away: bool = False) -> None:
        """Take a step that the application is asked for; ``away`` if that is for the time when it polls again."""
        self._step, self._away = step, away
        self._step_began = now
        match step:
            case JoinNeeded():
                if self._began is not None:
                    self._say("it begins anew after %.3f s: %s", now - self._began, reason)
                    self._metrics.rebalance_failed(now)
                else:
                    self._before = self._held()
                self._began, self._why = now, reason
                self._say(
                    "rebalance: %s; partitions: %s, %d held, topics %s",
                    reason, step.hold.value, len(self._held()), ", ".join(sorted(step.topics)) or "none",
                )  # fmt: skip
            case AssignNeeded():
                self._say("leads %d members: assignor %r runs", len(step.members), step.assignor)
            case AdoptNeeded():
                if self._began is None:
                    self._began, self._why, self._before = now, reason or "the coordinator assigned", self._held()
                self._say("is given %s", _names(step.assignment.partitions))

    def returned(self, now: float) -> None:
        """Note that the application polls again: the rebalance begins here, and not when it stopped polling."""
        if self._away:
            self._away = False
            self._step_began = now
            if self._began is not None:
                self._began = now

    def answered(self, answer: Prepared | Assigned | Adopted, now: float) -> None:
        """Take what the application has done."""
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
        """Take the answer to a request."""
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
        """Note that the member leaves, or gives up."""
        if self._began is not None:
            self._metrics.rebalance_failed(now)
            self._began = None
        self._step, self._away = None, False
        if self._place().member_id:
            self._say("leaves: %s", reason)

    def _finish(self, now: float) -> None:
        assert self._began is not None, "a rebalance is being logged"
        took, held = now - self._began, self._held()
        self._began = None
        self._metrics.rebalanced(took, now)
        place = self._place()
        _log.info(
            "group %s member %s generation %d: rebalanced in %.3f s (%s): given %s; taken %s; %d held",
            place.group_id, place.member_id, place.generation, took, self._why, _names(held - self._before),
            _names(self._before - held), len(held),
        )  # fmt: skip

    def _say(self, what: str, *args: object) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            place = self._place()
            prefix = "group %s member %s generation %d: "
            _log.debug(prefix + what, place.group_id, place.member_id or "(new)", place.generation, *args)


_BEATS: Final = frozenset({"HeartbeatRequest", "ConsumerGroupHeartbeatRequest"})
_LOGGED: Final = _BEATS | {"JoinGroupRequest", "SyncGroupRequest", "LeaveGroupRequest"}


def _names(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions for people: ``orders 0-4, 7; users 0``."""
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

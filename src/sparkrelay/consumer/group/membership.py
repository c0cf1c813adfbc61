"""Membership in a group: the interface to the rest of the consumer, and what both protocols share.

``classic_membership`` speaks JoinGroup, SyncGroup, Heartbeat, LeaveGroup; a member runs the assignor.
``consumer_membership`` speaks KIP-848: one heartbeat for everything; the broker assigns. ``group.protocol`` chooses.
Each has a table of allowed state changes; docs/internals/consumer.md draws both, with the cause of each change. A
change that is not in the table raises, which ends the consumer with that error.
"""

from __future__ import annotations

import abc
import enum
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Final, ParamSpec

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.consumer.base.requests import NOTHING
from sparkrelay.state_machine import StateMachine

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.call import Call
    from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, Assigned, AssignNeeded, JoinNeeded, Prepared
    from sparkrelay.consumer.base.requests import PollResult, Unsent
    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.consumer.base.topic_metadata import TopicMetadataManager
    from sparkrelay.consumer.group.classic_requests import MemberSettings
    from sparkrelay.consumer.group.coordinator import CoordinatorManager
    from sparkrelay.errors import KafkaException

P = ParamSpec("P")

_log = logging.getLogger(__name__)


class MemberState(enum.Enum):
    """The states of a member. Each protocol uses some of them."""

    UNSUBSCRIBED = "unsubscribed"
    PREPARING = "preparing"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    ADOPTING = "adopting"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    STALE = "stale"
    LEAVING = "leaving"
    FATAL = "fatal"


_GONE: Final = frozenset({MemberState.UNSUBSCRIBED, MemberState.LEAVING})
_INACTIVE: Final = _GONE | {MemberState.STALE, MemberState.FATAL}


@dataclass(eq=False)
class Membership(abc.ABC):
    """One consumer's membership in its group: a state machine that is told the time.

    It belongs to the network thread: nothing blocks, does I/O, reads a clock or calls the user's code. Any thread may
    read ``metadata``, ``awaits_poll`` and ``given_up``, whose values are replaced as a whole. Work of the application
    thread is a numbered step (``events.Step``), one at a time. An overtaken step is cancelled, and answers to any other
    than the present step are ignored (KAFKA-16375).

    Attributes:
        FOLLOWING: the states that may follow each state of the protocol.
        metadata: the member's identity in the group; generation (or member epoch) -1 while it has none.
        life: changes when answers to heartbeats under way become meaningless. Not the generation: a static member that
            joins again may get its old one.
    """

    FOLLOWING: ClassVar[Mapping[MemberState, frozenset[MemberState]]]

    settings: MemberSettings
    coordinator: CoordinatorManager  # finds the broker to talk to
    topics: TopicMetadataManager  # requests metadata
    cluster: Metadata  # what is known of the cluster
    on_step: Callable[[JoinNeeded | AssignNeeded | AdoptNeeded], None]  # takes steps for the application
    fail: Callable[[Exception], None]  # takes errors that the next ``poll`` raises

    def __post_init__(self) -> None:
        self._machine = StateMachine(
            f"member of group {self.settings.group_id}", MemberState.UNSUBSCRIBED, self.FOLLOWING
        )
        self.step: JoinNeeded | AssignNeeded | AdoptNeeded | None = None  # the unanswered step, None if there is none
        self._steps = 0
        self.reason = ""  # why the present or last rebalance began, for the log
        self.heartbeat_interval = self.settings.heartbeat_interval  # seconds between heartbeats
        self._polled_at = -math.inf
        self.life = 0
        #: Requests to leave that wait for nothing.
        self._parting: tuple[Unsent, ...] = ()
        self._place(-1, "")

    @property
    def state(self) -> MemberState:
        """The member's state."""
        return self._machine.state

    @property
    def subscribed(self) -> bool:
        """Whether the consumer subscribed, in the group or not; False for partitions assigned by hand."""
        return self.state not in _GONE

    @property
    def active(self) -> bool:
        """Whether we are a member or about to become one."""
        return self.state not in _INACTIVE

    @property
    def awaits_poll(self) -> bool:
        """Whether we have left and join again when polled."""
        return self.state is MemberState.STALE

    @property
    def given_up(self) -> bool:
        """Whether we will not join again."""
        return self.state is MemberState.FATAL

    @abc.abstractmethod
    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None, now: float) -> None:
        """Be a member for ``topics``, or for those that match ``pattern``."""

    def polled(self, now: float) -> None:
        """Record that the application is alive; a member that left because it did not poll joins again."""
        self._polled_at = max(now, self._polled_at)
        if self.state is MemberState.STALE:
            self._join_again()

    def poll_missed(self) -> None:
        """Leave, because the application did not poll for ``max.poll.interval.ms``; its next poll joins again."""
        if self.active and self.state is not MemberState.FENCED:
            self._parting += self._give_up_polling()

    @abc.abstractmethod
    def rejoin(self, reason: str) -> None:
        """Request a rebalance: now, or after the present one."""

    def answered(self, answer: Prepared | Assigned | Adopted, now: float) -> None:
        """Handle the application's answer to the present step; other answers are ignored."""
        step = self.step
        if step is not None and step.number == answer.number:
            self.step = None
            self._answered(step, answer, now)

    @abc.abstractmethod
    def leave(self, call: Call, reason: str, *, for_good: bool = False) -> None:
        """Leave the group; ``call`` is resolved once the broker knows, or is unreachable.

        A static member keeps its place for the session timeout, unless it leaves ``for_good``.
        """

    @abc.abstractmethod
    def fenced(self, code: int) -> bool:
        """Handle expulsion: all partitions are lost. Return False if the member is only between two generations."""

    @abc.abstractmethod
    def refused(self, error: Exception) -> None:
        """Give up: joining again would not help."""

    @property
    @abc.abstractmethod
    def beats(self) -> bool:
        """Whether heartbeats are to be sent."""

    @property
    def hurried(self) -> bool:
        """Whether the next heartbeat must not wait for the end of the interval."""
        return False

    @property
    def awaits_another(self) -> bool:
        """Whether a rebalance has ended that often precedes another, which only a heartbeat announces."""
        return False

    @abc.abstractmethod
    def heartbeat(self) -> Any:
        """Return the heartbeat to send now; at most one is under way."""

    @abc.abstractmethod
    def heartbeat_answered(self, message: Any) -> None:
        """Handle the answer to a heartbeat of the present life."""

    @abc.abstractmethod
    def heartbeat_failed(self, error: KafkaException) -> None:
        """Handle a heartbeat of the present life without an answer; another follows if that may help."""

    @abc.abstractmethod
    def poll(self, now: float) -> PollResult:
        """Return the request that the present state needs; see ``requests.RequestManager``."""

    def _poll_due_in(self, now: float) -> float:
        """Return the seconds in which the application must poll, or the member leaves."""
        return self._polled_at + self.settings.max_poll_interval - now

    def _give_up_polling(self) -> tuple[Unsent, ...]:
        _log.warning("group %s: %s", self.settings.group_id, self.settings.poll_missed)
        return self._go("poll() was not called for max.poll.interval.ms")

    @abc.abstractmethod
    def _go(self, why: str) -> tuple[Unsent, ...]:
        """Return the requests to leave with until the application polls again."""

    @abc.abstractmethod
    def _join_again(self) -> None: ...

    @abc.abstractmethod
    def _answered(
        self, step: JoinNeeded | AssignNeeded | AdoptNeeded, answer: Prepared | Assigned | Adopted, now: float
    ) -> None: ...

    def _announce(
        self,
        kind: Callable[Concatenate[int, P], JoinNeeded | AssignNeeded | AdoptNeeded],
        *args: P.args,
        **fields: P.kwargs,
    ) -> None:
        """Ask the application for a step."""
        self._steps += 1
        self.step = kind(self._steps, *args, **fields)
        self.on_step(self.step)

    def _cancel_step(self) -> None:
        if self.step is not None:
            self.step.cancelled = True
            self.step = None

    def _place(self, generation: int, member_id: str) -> None:
        self.metadata = GroupMetadata(self.settings.group_id, generation, member_id, self.settings.group_instance_id)


@dataclass(eq=False)
class LostPartitions:
    """Holds back the partitions of a member that has lost its generation, whose records others may read. Pure.

    A member that was expelled, or that left because nobody polled, keeps its partitions and their fetched records until
    the application takes the step that drops them. ``poll`` must not return these records before (KAFKA-20321). Polled
    right after the membership: in the turn in which that leaves, before its request to leave is sent.
    """

    place: Callable[[], GroupMetadata | None]
    subscription: SubscriptionState

    def poll(self, now: float) -> PollResult:
        """Hold back; there is never anything to send."""
        del now
        place = self.place()
        if place is not None and place.generation < 0:
            self.subscription.lose()
        return NOTHING

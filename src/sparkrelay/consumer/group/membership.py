"""Membership in a group: what the rest of the consumer knows of it, and what both protocols do alike.

Two kinds: ``classic_membership`` (JoinGroup, SyncGroup, Heartbeat, LeaveGroup; assignors run in a member) and
``consumer_membership`` (KIP-848: one heartbeat for everything; the broker assigns). ``group.protocol`` chooses. Each
has a table of the states that may follow each state; docs/internals/consumer.md draws both, and says what leads from
one to the next. A change that is not in the table raises, which ends the consumer with that error.
"""

from __future__ import annotations

import abc
import enum
import math
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.consumer.base.assignor import GroupMetadata
from sparkrelay.state_machine import StateMachine

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Mapping

    from sparkrelay.consumer.base.events import (
        Adopted,
        AdoptNeeded,
        Assigned,
        AssignNeeded,
        Call,
        JoinNeeded,
        Prepared,
    )
    from sparkrelay.consumer.base.requests import PollResult, Unsent
    from sparkrelay.consumer.group.classic_requests import MemberSettings
    from sparkrelay.consumer.group.coordinator import CoordinatorManager
    from sparkrelay.errors import KafkaException

__all__ = ["MemberState", "Membership"]


class MemberState(enum.Enum):
    """Where a member stands. Each protocol has its part of them."""

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


class Steps:
    """The application's part in a rebalance that is under way: one numbered step at a time.

    A step that was overtaken is cancelled, and answers to any other than the present one are ignored (KAFKA-16375).

    Args:
        on_step: takes steps for the application.

    Attributes:
        current: the step that is not answered yet, None if there is none.
    """

    def __init__(self, on_step: Callable[[JoinNeeded | AssignNeeded | AdoptNeeded], None]) -> None:
        self._on_step = on_step
        self._count = 0
        self.current: JoinNeeded | AssignNeeded | AdoptNeeded | None = None

    def number(self) -> int:
        """Return the number for a new step."""
        self._count += 1
        return self._count

    def announce(self, step: JoinNeeded | AssignNeeded | AdoptNeeded) -> None:
        """Ask the application for a step."""
        self.current = step
        self._on_step(step)

    def answered(self, number: int) -> JoinNeeded | AssignNeeded | AdoptNeeded | None:
        """Return the step that an answer ends, None if it was overtaken."""
        step = self.current
        if step is None or step.number != number:
            return None
        self.current = None
        return step

    def cancel(self) -> None:
        """Make the answer to the present step meaningless."""
        if self.current is not None:
            self.current.cancelled = True
            self.current = None


class Membership(abc.ABC):
    """One consumer's membership in its group: a state machine that is told the time.

    Threading: everything here belongs to the network thread and returns at once; nothing blocks, does I/O, reads a
    clock or calls the user's code. ``metadata``, ``awaits_poll`` and ``given_up`` may be read by any thread: what they
    read is replaced as a whole. Work of the application thread is announced as a numbered step (``events.Step``), and
    its answer comes by ``answered``.

    Args:
        settings: the member's.
        following: for each state of the protocol, those that may come after it.
        coordinator: finds the broker to talk to.
        on_step: takes steps for the application.
        fail: takes errors that the next ``poll`` raises.

    Attributes:
        metadata: our place in the group; generation (or member epoch) -1 while we have none.
        reason: why the present rebalance began, or the last one; for the log.
        heartbeat_interval: seconds between heartbeats.
    """

    def __init__(
        self,
        settings: MemberSettings,
        following: Mapping[MemberState, Collection[MemberState]],
        *,
        coordinator: CoordinatorManager,
        on_step: Callable[[JoinNeeded | AssignNeeded | AdoptNeeded], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._settings = settings
        self._machine = StateMachine(f"member of group {settings.group_id}", MemberState.UNSUBSCRIBED, following)
        self._coordinator = coordinator
        self._steps = Steps(on_step)
        self._fail = fail
        self.reason = ""
        self.heartbeat_interval = settings.heartbeat_interval
        self._polled_at = -math.inf
        self._life = 0
        #: Requests that say to the coordinator that we leave, and wait for nothing.
        self._parting: tuple[Unsent, ...] = ()
        self._place(-1, "")

    @property
    def state(self) -> MemberState:
        """Where the member stands."""
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

    # -- events of the application -----------------------------------------------------------------------------------

    @abc.abstractmethod
    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None, now: float) -> None:
        """Be a member for ``topics``, or for those that match ``pattern``."""

    def polled(self, now: float) -> None:
        """Note that the application lives; a member that left because it did not comes back."""
        self._polled_at = max(now, self._polled_at)
        if self.state is MemberState.STALE:
            self._join_again()

    @abc.abstractmethod
    def poll_missed(self) -> None:
        """Leave, because the application did not poll for ``max.poll.interval.ms``: others can do its work."""

    @abc.abstractmethod
    def rejoin(self, reason: str) -> None:
        """Ask for a rebalance: now, or after the one that is under way."""

    @abc.abstractmethod
    def answered(self, answer: Prepared | Assigned | Adopted, now: float) -> None:
        """Take the application's answer to a step; answers to other steps than the present one are ignored."""

    @abc.abstractmethod
    def leave(self, call: Call, reason: str, *, for_good: bool = False) -> None:
        """Leave the group; ``call`` is resolved when the broker knows, or cannot be reached.

        A static member keeps its place for the session timeout, unless it goes ``for_good``.
        """

    # -- news from the coordinator -----------------------------------------------------------------------------------

    @abc.abstractmethod
    def fenced(self, code: int) -> bool:
        """Take it that the group expelled us: what we hold is lost. Return False if we are only between generations."""

    @abc.abstractmethod
    def refused(self, error: Exception) -> None:
        """Give up: joining again would not help."""

    # -- heartbeats: ``HeartbeatManager`` sends them ------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def beats(self) -> bool:
        """Whether heartbeats are to be sent."""

    @property
    def hurried(self) -> bool:
        """Whether the next heartbeat must not wait for the end of the interval."""
        return False

    @property
    def life(self) -> int:
        """A number that changes when answers to heartbeats that are under way lose their meaning.

        Not the generation: a static member that joins again may get its old one.
        """
        return self._life

    @property
    def awaits_another(self) -> bool:
        """Whether a rebalance is over that is often followed by another, which only a heartbeat announces."""
        return False

    @abc.abstractmethod
    def heartbeat(self) -> Any:
        """Return the heartbeat to send now; at most one is under way."""

    @abc.abstractmethod
    def heartbeat_answered(self, message: Any) -> None:
        """Take the answer to a heartbeat of the present life."""

    @abc.abstractmethod
    def heartbeat_failed(self, error: KafkaException) -> None:
        """Take it that a heartbeat of the present life was not dealt with; another follows if that may help."""

    # -- driving -----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def poll(self, now: float) -> PollResult:
        """Return the request that the present state calls for; see ``requests.RequestManager``."""

    # -- for the protocols -------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _join_again(self) -> None:
        """Join again: the application polls again."""

    def _place(self, generation: int, member_id: str) -> None:
        self.metadata = GroupMetadata(self._settings.group_id, generation, member_id, self._settings.group_instance_id)

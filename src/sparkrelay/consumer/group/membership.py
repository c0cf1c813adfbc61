"""What the rest of the consumer knows of group membership, whichever protocol the group speaks.

Two implementations: ``classic_membership`` (JoinGroup, SyncGroup, Heartbeat, LeaveGroup; assignors run in a member) and
``consumer_membership`` (KIP-848: one heartbeat for everything; the broker assigns). ``group.protocol`` chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import re

    from sparkrelay.consumer.base.assignor import GroupMetadata
    from sparkrelay.consumer.base.events import Adopted, Assigned, Call, Prepared
    from sparkrelay.consumer.base.requests import PollResult
    from sparkrelay.errors import KafkaException

__all__ = ["Membership"]


class Membership(Protocol):
    """One consumer's membership in its group: a state machine that is told the time.

    Threading: everything here belongs to the network thread and returns at once; nothing blocks, does I/O, reads a
    clock or calls the user's code. ``metadata``, ``awaits_poll`` and ``given_up`` may be read by any thread: what they
    read is replaced as a whole. Work of the application thread is announced as a numbered step (``events.Step``), and
    its answer comes by ``answered``.
    """

    @property
    def metadata(self) -> GroupMetadata:
        """Our place in the group; generation (or member epoch) -1 while we have none."""

    @property
    def subscribed(self) -> bool:
        """Whether the consumer subscribed, in the group or not; False for partitions assigned by hand."""

    @property
    def active(self) -> bool:
        """Whether we are a member or about to become one."""

    @property
    def reason(self) -> str:
        """Why the present rebalance began, or the last one; for the log."""

    @property
    def awaits_poll(self) -> bool:
        """Whether we have left and join again when polled."""

    @property
    def given_up(self) -> bool:
        """Whether we will not join again."""

    # -- events of the application -----------------------------------------------------------------------------------

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None, now: float) -> None:
        """Be a member for ``topics``, or for those that match ``pattern``."""

    def polled(self, now: float) -> None:
        """Hear that the application lives."""

    def rejoin(self, reason: str) -> None:
        """Ask for a rebalance: now, or after the one that is under way."""

    def answered(self, answer: Prepared | Assigned | Adopted, now: float) -> None:
        """Take the application's answer to a step; answers to other steps than the present one are ignored."""

    def leave(self, call: Call, reason: str) -> None:
        """Leave the group; ``call`` is settled when the broker knows, or cannot be told."""

    # -- news from the coordinator -----------------------------------------------------------------------------------

    def fenced(self, code: int) -> None:
        """Hear that the group goes on without us: what we hold is lost."""

    def refused(self, error: Exception) -> None:
        """Give up: joining again would not help."""

    # -- heartbeats: ``HeartbeatManager`` sends them ------------------------------------------------------------------

    @property
    def beats(self) -> bool:
        """Whether heartbeats are to be sent."""

    @property
    def hurried(self) -> bool:
        """Whether the next heartbeat must not wait for the end of the interval."""

    @property
    def life(self) -> int:
        """A number that changes when answers to heartbeats that are under way lose their meaning."""

    @property
    def heartbeat_interval(self) -> float:
        """Seconds between heartbeats."""

    @property
    def awaits_another(self) -> bool:
        """Whether a rebalance is over that is often followed by another, which only a heartbeat tells of."""

    def heartbeat(self) -> Any:
        """Return the heartbeat to send now; at most one is under way."""

    def heartbeat_answered(self, message: Any) -> None:
        """Take the answer to a heartbeat of the present life."""

    def heartbeat_failed(self, error: KafkaException) -> None:
        """Hear that a heartbeat of the present life was not dealt with; another follows if that may help."""

    # -- driving -----------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """Return the request that the present state calls for; see ``requests.RequestManager``."""

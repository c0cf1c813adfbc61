"""Events between the two threads of a consumer.

The application thread (whoever calls the consumer) puts *application events* into the network thread's queue; the
network thread puts *background events* into the ``Mailbox``. An event that is answered carries a ``Call`` with a
deadline. See the consumer threading refactor, "Events and EventHandler".

The application's steps of a rebalance (callbacks, client-side assignors) are background events with a number, which the
answer repeats. An overtaken step is cancelled: the application skips it, and the membership ignores its answer.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import re
    import uuid
    from collections.abc import Mapping

    from sparkrelay.client.group_requests import GroupMetadata, OffsetAndMetadata
    from sparkrelay.consumer.base.assignor import ClusterView, MemberAssignment, MemberSubscription
    from sparkrelay.consumer.base.call import Call
    from sparkrelay.types import TopicPartition

# -- application events: the application thread to the network thread -------------------------------------------------


class ApplicationEvent:
    """An event for the network thread."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Polled(ApplicationEvent):
    """``poll`` was called at monotonic ``time``; ``missed`` if ``max.poll.interval.ms`` had passed before."""

    time: float
    missed: bool = False


@dataclass(frozen=True, slots=True)
class Subscribe(ApplicationEvent):
    """Be a member for topics, or for those that match a pattern."""

    topics: frozenset[str]
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class PartitionsChanged(ApplicationEvent):
    """The application assigned, sought, paused or resumed partitions; the subscription state has the change."""


@dataclass(frozen=True, slots=True)
class Rejoin(ApplicationEvent):
    """Request a rebalance."""

    reason: str


@dataclass(frozen=True, slots=True)
class ExpectRebalance(ApplicationEvent):
    """Send heartbeats quickly for a while, because a rebalance is about to begin."""


@dataclass(frozen=True, slots=True)
class Leave(ApplicationEvent):
    """Leave the group; a static member only if ``for_good``. Resolved once the broker knows or is unreachable."""

    call: Call
    reason: str
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class Commit(ApplicationEvent):
    """Commit offsets.

    Attributes:
        found_in: ids of the topics in which positions were found; other partitions are missing.
    """

    call: Call  # resolved once the broker has them
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    retry: bool  # whether to repeat retriable failures until the call's deadline
    automatic: bool = False  # whether it is an automatic commit, which is not repeated for missing topics
    found_in: Mapping[TopicPartition, uuid.UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FetchCommitted(ApplicationEvent):
    """Fetch committed offsets."""

    call: Call
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class ListOffsets(ApplicationEvent):
    """List offsets by timestamp, -1 (end) or -2 (start)."""

    call: Call
    wanted: Mapping[TopicPartition, int]
    read_committed: bool


@dataclass(frozen=True, slots=True)
class TopicsAsked(ApplicationEvent):
    """Fetch the metadata of topics; None for all of them."""

    call: Call
    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Prepared(ApplicationEvent):
    """Answer to ``JoinNeeded``: the partitions that the member holds now, and each assignor's user data."""

    number: int
    owned: frozenset[TopicPartition] = frozenset()
    user_data: Mapping[str, bytes] = field(default_factory=dict)
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Assigned(ApplicationEvent):
    """Answer to ``AssignNeeded``."""

    number: int
    assignments: Mapping[str, MemberAssignment] = field(default_factory=dict)
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Adopted(ApplicationEvent):
    """Answer to ``AdoptNeeded``, after the callbacks: the partitions held now, and whether others wait for some."""

    number: int
    revoked: bool = False
    owned: frozenset[TopicPartition] = frozenset()


# -- background events: the network thread to the application thread --------------------------------------------------


@dataclass(frozen=True, slots=True)
class ErrorRaised:
    """An error that the next ``poll`` must raise."""

    error: Exception
    fatal: bool = False  # whether the member has given up because of it, so that every ``poll`` raises it
    topic: str | None = None  # its topic, None if it concerns no single one


class Hold(enum.Enum):
    """What happens to a member's partitions before it joins."""

    KEEP = "keep"  # cooperative: all but those of topics no longer subscribed
    REVOKE = "revoke"  # eager: all are revoked
    LOSE = "lose"  # the group has given them to others


@dataclass(slots=True, eq=False)
class Step:
    """A rebalance step for the application thread. The network thread may set ``cancelled`` at any time."""

    number: int
    cancelled: bool = field(default=False, init=False)


@dataclass(slots=True, eq=False)
class JoinNeeded(Step):
    """CALLBACK_NEEDED: run ``on_revoked`` or ``on_lost`` as ``hold`` says, and ask the assignors for user data."""

    hold: Hold
    topics: frozenset[str]
    dropped: frozenset[str]


@dataclass(slots=True, eq=False)
class AssignNeeded(Step):
    """ASSIGN_NEEDED: this member leads; run the assignor."""

    assignor: str
    cluster: ClusterView
    members: Mapping[str, MemberSubscription]


@dataclass(slots=True, eq=False)
class AdoptNeeded(Step):
    """CALLBACK_NEEDED: take the assignment: ``on_assignment``, ``on_revoked``, ``on_assigned``."""

    assignor: str
    assignment: MemberAssignment
    metadata: GroupMetadata


BackgroundEvent: TypeAlias = ErrorRaised | JoinNeeded | AssignNeeded | AdoptNeeded

"""A member of a group under KIP-848 (``group.protocol=consumer``): one heartbeat for everything, the broker assigns.

``FOLLOWING`` lists the allowed state changes; docs/internals/consumer.md gives their causes.

Pure, see ``requests``. Each stay in the group is a *life*: answers to heartbeats of an earlier life, and to overtaken
steps, are ignored by their numbers (KAFKA-16375).

**Declared partitions are binding**: partitions that the coordinator wants back are free as soon as a heartbeat leaves
    them out. So no step begins while such a heartbeat is unanswered, because it may give away what the step takes; and
    a heartbeat during a step also names what the step may take. Kafka's own client did neither in October 2024.
"""

from __future__ import annotations

import logging
import math
import uuid
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error, error_name, is_retriable
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, Hold, JoinNeeded, Prepared
from sparkrelay.consumer.base.requests import PollResult, Unsent
from sparkrelay.consumer.group.consumer_heartbeat import JOIN_EPOCH, HeartbeatWriter, leave_heartbeat
from sparkrelay.consumer.group.coordinator import GROUP_LANE
from sparkrelay.consumer.group.membership import Membership, MemberState
from sparkrelay.consumer.group.pattern_topics import pattern_for_broker
from sparkrelay.errors import UnsupportedVersionException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from sparkrelay.consumer.base.call import Call
    from sparkrelay.consumer.base.events import Assigned, AssignNeeded
    from sparkrelay.errors import KafkaException

    PartitionsById = Mapping[uuid.UUID, frozenset[int]]

_log = logging.getLogger(__name__)
#: Until the broker sets the interval.
_FIRST_INTERVAL_SECONDS: Final = 5.0
#: Pauses between requests for the names of topic ids: after an answer, and without one.
_LOOK_UP_SECONDS: Final = 1.0
_LOOK_UP_UNANSWERED_SECONDS: Final = 30.0
_NONE: Final[PartitionsById] = MappingProxyType({})
_EXPELLED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
_NAME_TAKEN: Final = frozenset({ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID})
_ASSIGNED: Final = "the coordinator assigned"
_INSIDE: Final = frozenset(
    {MemberState.JOINING, MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE}
)
_OUT: Final = frozenset({MemberState.UNSUBSCRIBED, MemberState.FATAL})
_AWAY: Final = _OUT | {MemberState.LEAVING, MemberState.FENCED, MemberState.STALE}
#: The states that may follow each state.
FOLLOWING: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    MemberState.UNSUBSCRIBED: frozenset({MemberState.JOINING, MemberState.FATAL}),
    MemberState.JOINING: _AWAY | {MemberState.RECONCILING},
    MemberState.RECONCILING: _AWAY | {MemberState.ACKNOWLEDGING, MemberState.STABLE},
    MemberState.ACKNOWLEDGING: _AWAY | {MemberState.RECONCILING, MemberState.STABLE},
    MemberState.STABLE: _AWAY | {MemberState.RECONCILING},
    MemberState.FENCED: _OUT | {MemberState.JOINING},
    MemberState.STALE: _OUT | {MemberState.JOINING},
    MemberState.LEAVING: _OUT | {MemberState.JOINING},
    MemberState.FATAL: _OUT,
}


@dataclass(eq=False)
class ConsumerMembership(Membership):
    """A membership that declares its partitions in heartbeats, and takes what the broker assigns."""

    FOLLOWING = FOLLOWING

    def __post_init__(self) -> None:
        super().__post_init__()
        self._writer = HeartbeatWriter(self.settings)
        self.reason = _ASSIGNED
        self.heartbeat_interval = _FIRST_INTERVAL_SECONDS
        #: One for the consumer's lifetime, whatever happens to its membership (KIP-1082).
        self._member_id = str(uuid.uuid4())
        self._place(-1, self._member_id)
        self._topics: frozenset[str] = frozenset()
        self._pattern = ""
        self._introduced = False
        #: Whether an earlier heartbeat of ours may hold our group.instance.id, and whether to free that first.
        self._holds_name = self._frees_name = False
        self._released = self._polled_again = False
        self._look_up_at = -math.inf
        self._forget_assignment()

    def _forget_assignment(self) -> None:
        #: The broker's assignment, and how often it changed.
        self._target: PartitionsById = _NONE
        self._target_number = 0
        #: What the application holds, by its last answer (None: nothing was ever adopted); what the step adds to that.
        self._owned: frozenset[TopicPartition] | None = None
        self._owned_ids: PartitionsById = _NONE
        self._taking: frozenset[TopicPartition] = frozenset()
        self._taking_ids: PartitionsById = _NONE
        #: The target of the present step, of the last finished one, and of the last acknowledgement.
        self._adopting = self._adopted = self._acknowledged = -1
        self._incomplete = False
        #: Whether a heartbeat that declares our partitions may be on its way.
        self._declaring = False
        self._names: dict[uuid.UUID, str] = {}

    # -- events of the application ------------------------------------------------------------------------------------

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None, now: float) -> None:
        """Join, or declare the new subscription; the broker matches the pattern, as RE2."""
        self._topics, self._pattern = topics, "" if pattern is None else pattern_for_broker(pattern)
        self._polled_at = now
        if self.state in {MemberState.UNSUBSCRIBED, MemberState.LEAVING}:
            self._join("the consumer subscribed")

    def _join_again(self) -> None:
        self._polled_again = True
        self._maybe_return()

    def rejoin(self, reason: str) -> None:
        """Log that only the broker starts a rebalance under KIP-848."""
        _log.warning(
            "group %s: a rebalance was asked for (%s); with group.protocol=consumer only the broker starts one, so "
            "nothing happens",
            self.settings.group_id, reason,
        )  # fmt: skip

    def _answered(
        self, step: JoinNeeded | AssignNeeded | AdoptNeeded, answer: Prepared | Assigned | Adopted, now: float
    ) -> None:
        del step, now
        if isinstance(answer, Adopted):
            self._take_adopted(answer)
        elif isinstance(answer, Prepared) and answer.error is not None:
            self._release()  # interrupted: it may hold something still
        elif self.state is MemberState.FENCED:
            self._join("the member was expelled")
        else:
            self._released = True
            self._maybe_return()

    def leave(self, call: Call, reason: str, *, for_good: bool = False) -> None:
        """Leave the group; the application has run its callbacks."""
        if self.state in {MemberState.UNSUBSCRIBED, MemberState.LEAVING}:
            call.resolve(None)
            return
        inside = self.state in _INSIDE
        self._end_life()
        if inside:
            _log.info("group %s: member %s leaves: %s", self.settings.group_id, self._member_id, reason)
            self._parting = self._leave_group(call, for_good=for_good)
        self._machine.move(MemberState.LEAVING if inside and self._parting else MemberState.UNSUBSCRIBED, reason)
        if not inside:
            call.resolve(None)

    # -- news from the coordinator ------------------------------------------------------------------------------------

    def fenced(self, code: int) -> bool:
        """Have the application drop its partitions, then join again. A KIP-848 member always is in one epoch."""
        if self.state not in _INSIDE:
            return True
        _log.warning(
            "group %s: member %s was expelled (%s): it was silent for longer than the broker's "
            "group.consumer.session.timeout.ms, or gave up partitions too slowly (max.poll.interval.ms=%d)",
            self.settings.group_id, self._member_id, error_name(code), self.settings.max_poll_interval * 1000,
        )  # fmt: skip
        self._end_life()
        self._machine.move(MemberState.FENCED, f"expelled ({error_name(code)})")
        self.reason = "the coordinator expelled the member"
        self._release()
        return True

    def refused(self, error: Exception) -> None:
        """Leave for good: joining again would not help."""
        leave = self._leave_group(None) if self.state in _INSIDE else ()
        self._end_life()
        self._introduced = False
        self._machine.move(MemberState.FATAL, f"refused: {error!r}")
        self._parting += leave
        self.fail(error)

    # -- heartbeats ---------------------------------------------------------------------------------------------------

    @property
    def beats(self) -> bool:
        """Whether the member is in the group or joins; False while its name must be freed first."""
        return self.state in _INSIDE and not self._frees_name

    @property
    def hurried(self) -> bool:
        """Whether there is news: that we join, what we hold, or a new subscription."""
        return self.state in {MemberState.JOINING, MemberState.ACKNOWLEDGING} or self._writer.differs(
            self._topics, self._pattern
        )

    def heartbeat(self) -> Any:
        """Return ConsumerGroupHeartbeat with what the coordinator does not know."""
        acknowledging = self.state is MemberState.ACKNOWLEDGING
        self._introduced = True
        request = self._writer.write(
            self._member_id,
            JOIN_EPOCH if self.state is MemberState.JOINING else self.metadata.generation,
            topics=self._topics,
            pattern=self._pattern,
            owned=_union(self._owned_ids, self._taking_ids),
            acknowledge=acknowledging,
        )
        self._declaring = request.topic_partitions is not None
        if acknowledging:
            self._acknowledged = self._adopted
            done = self._acknowledged == self._target_number and not self._incomplete
            self._machine.move(MemberState.STABLE if done else MemberState.RECONCILING, "the member acknowledged")
        return request

    def heartbeat_answered(self, message: Any) -> None:
        """Take over epoch, interval and assignment, or act on the refusal."""
        if message.error_code:
            self._heartbeat_refused(message.error_code, message.error_message)
            return
        self._declaring = self._holds_name = False
        if message.heartbeat_interval_ms > 0:
            self.heartbeat_interval = message.heartbeat_interval_ms / 1000
        if message.member_id:
            self._member_id = message.member_id
        if message.member_epoch != self.metadata.generation:
            _log.info(
                "group %s: member %s is in epoch %d", self.settings.group_id, self._member_id, message.member_epoch
            )
            self._place(message.member_epoch, self._member_id)
        target = message.assignment
        if target is None and self.state is not MemberState.JOINING:
            return
        assigned = [] if target is None else target.topic_partitions
        self._take_target({t.topic_id: frozenset(t.partitions) for t in assigned if t.partitions})

    def heartbeat_failed(self, error: KafkaException) -> None:
        """Make the next heartbeat a full one: the coordinator may have processed this one or not."""
        self._writer.forget()
        if self.state is MemberState.JOINING:
            self._free_name()
        if isinstance(error, UnsupportedVersionException):
            self._introduced = False
            self.refused(self._no_protocol(error))
        elif not error.retriable:
            self.refused(error)

    def _heartbeat_refused(self, code: int, text: str | None) -> None:
        self._writer.forget()
        joining = self.state is MemberState.JOINING
        said = f" ({text})" if text else ""
        error = broker_error(code, f"heartbeat of member {self._member_id!r} in {self._described()}{said}")
        if code in _EXPELLED and not (joining and code == ErrorCode.GROUP_ID_NOT_FOUND):
            self.fenced(code)
        elif code == ErrorCode.UNSUPPORTED_VERSION:
            self._introduced = False
            self.refused(self._no_protocol(error))
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # The member stays and repeats it: rights can be granted without a restart.
            self.fail(error)
        elif code == ErrorCode.UNRELEASED_INSTANCE_ID and joining and self._holds_name:
            self._free_name()
        elif not is_retriable(code):
            if joining or code in _NAME_TAKEN:
                self._introduced = False  # not a member, so there is nothing to leave
            self.refused(error)

    def _no_protocol(self, error: KafkaException) -> UnsupportedVersionException:
        wrapped = UnsupportedVersionException(
            f"the cluster does not offer group.protocol='consumer' (KIP-848), {self._described()}: it needs Kafka 4.0 "
            "with the feature group.version=1, and 'consumer' in the brokers' group.coordinator.rebalance.protocols; "
            f"set group.protocol='classic' until then ({error})"
        )
        wrapped.__cause__ = error
        return wrapped

    # -- reconciling --------------------------------------------------------------------------------------------------

    def _take_target(self, target: PartitionsById) -> None:
        if self.state is MemberState.JOINING or target != self._target:
            self._target = target
            self._target_number += 1
            self._look_up_at = -math.inf
        if self.state is MemberState.JOINING or (
            self.state is MemberState.STABLE and self._target_number != self._acknowledged
        ):
            self._machine.move(MemberState.RECONCILING, f"target {self._target_number}")

    def _reconcile(self, now: float) -> float:
        """Begin the step to the target, as far as it has names; return seconds until the next look."""
        wanted, unnamed = self._resolve()
        wait = self._look_up(now) if unnamed else math.inf
        if self._owned is None and unnamed and not wanted:
            return wait  # nothing for the application to do yet
        if wanted != self._owned:
            self._adopting, self._incomplete = self._target_number, unnamed
            self._taking = wanted
            self._taking_ids = self._by_id(wanted)
            given = MemberAssignment(tuple(sorted(wanted)))
            _log.debug("group %s: reconciling to %s", self.settings.group_id, ", ".join(map(str, given.partitions)))
            self._announce(AdoptNeeded, "", given, self.metadata)
        elif self._acknowledged != self._target_number:
            self._adopted, self._incomplete = self._target_number, unnamed
            # The names may belong to other topics by now; we declare today's ids.
            self._owned_ids = self._by_id(wanted)
            self._machine.move(MemberState.ACKNOWLEDGING, "the target is what the application holds")
        elif not unnamed:
            self._machine.move(MemberState.STABLE, "the target is acknowledged")
        return wait

    def _take_adopted(self, answer: Adopted) -> None:
        """Declare what the application holds now, which differs from the step if a callback was interrupted."""
        self._owned = answer.owned
        self._owned_ids = self._by_id(answer.owned)
        self._adopted = self._adopting if answer.owned == self._taking else -1
        self._taking, self._taking_ids = frozenset(), _NONE
        kept = {p.topic for p in answer.owned}
        self._names = {i: n for i, n in self._names.items() if n in kept}
        self._machine.move(MemberState.ACKNOWLEDGING, "the application has adopted its assignment")

    def _resolve(self) -> tuple[frozenset[TopicPartition], bool]:
        """Return the part of the target whose topics have names, and whether there is more."""
        found: list[TopicPartition] = []
        unnamed = False
        for topic_id, numbers in self._target.items():
            name = self.cluster.topic_name(topic_id) or self._names.get(topic_id)
            if name is None:
                unnamed = True
            else:
                self._names[topic_id] = name
                found += [TopicPartition(name, number) for number in numbers]
        return frozenset(found), unnamed

    def _by_id(self, partitions: frozenset[TopicPartition]) -> PartitionsById:
        ids = {name: i for i, name in self._names.items()}
        # A recreated topic goes by the id in the target.
        ids |= {name: i for i in self._target if (name := self._names.get(i)) is not None}
        found: dict[uuid.UUID, frozenset[int]] = {}
        for topic, number in partitions:
            if (topic_id := ids.get(topic)) is not None:  # else it is not from this group
                found[topic_id] = found.get(topic_id, frozenset()) | {number}
        return found

    def _look_up(self, now: float) -> float:
        """Request the names of topic ids: of the subscribed topics, or of all if the broker matched a pattern."""
        if now >= self._look_up_at:
            self._look_up_at = now + _LOOK_UP_UNANSWERED_SECONDS
            life = self.life

            def known() -> None:
                if life == self.life:
                    self._look_up_at = now + _LOOK_UP_SECONDS

            self.topics.ask(None if self._pattern else self._topics, known)
        return self._look_up_at - now

    # -- joining and leaving ------------------------------------------------------------------------------------------

    def _join(self, why: str) -> None:
        _log.info("group %s: member %s joins: %s", self.settings.group_id, self._member_id, why)
        self._end_life()
        self._machine.move(MemberState.JOINING, why)
        if self._introduced:
            self._free_name()

    def _free_name(self) -> None:
        """Have a static member leave before it joins: the broker refuses it while its name is taken (KIP-848).

        It may hold the name by a heartbeat whose answer was lost, and does after FENCED_MEMBER_EPOCH. The request to
        leave uses the same connection, before the join. If the broker answers that the name is another member's, a
        refused join is final.
        """
        if self.settings.group_instance_id is not None:
            self._holds_name = self._frees_name = True

    def _end_life(self) -> None:
        """Ignore the answers to everything under way, and hold nothing."""
        self.life += 1
        self._cancel_step()
        self.reason = _ASSIGNED
        self._place(-1, self._member_id)
        self._writer.forget()
        self._forget_assignment()
        self._released = self._polled_again = False
        self._holds_name = self._frees_name = False

    def _release(self) -> None:
        """Have the application drop its partitions: others have them, or will."""
        self._announce(JoinNeeded, Hold.LOSE, self._topics, frozenset())

    def _maybe_return(self) -> None:
        if self._released and self._polled_again:
            self._join("the application polls again")

    def _go(self, why: str) -> tuple[Unsent, ...]:
        # The next poll joins again, once the application has dropped its partitions.
        leave = self._leave_group(None)
        self._end_life()
        self._machine.move(MemberState.STALE, why)
        self._release()
        return leave

    def _leave_group(self, call: Call | None, *, for_good: bool = False) -> tuple[Unsent, ...]:
        """Return the leave heartbeat; nothing if the coordinator is unknown or does not know us."""
        node = self.coordinator.node
        if node is None or not self._introduced:
            if call is not None:
                call.resolve(None)
            return ()
        self._introduced = False

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            del now
            if message is not None and message.error_code == ErrorCode.FENCED_INSTANCE_ID:
                self._holds_name = False
            if error is not None or message.error_code:
                said = error if error is not None else error_name(message.error_code)
                _log.info("group %s: leaving was not confirmed: %s", self.settings.group_id, said)
            if call is not None:
                call.resolve(None)

        leaves = leave_heartbeat(self.settings, self._member_id, for_good=for_good)
        return (Unsent(leaves, handle, node, GROUP_LANE),)

    # -- driving ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """Return the leave heartbeat, if any; begin to reconcile when it is time for it."""
        if self._parting:
            parting, self._parting = self._parting, ()
            if self.state is MemberState.LEAVING:
                self._machine.move(MemberState.UNSUBSCRIBED, "the member has left")
            return PollResult(parting, 0.0)
        if self.state not in _INSIDE:
            return PollResult()
        left = self._poll_due_in(now)
        if left <= 0:
            return PollResult(self._give_up_polling())
        if self._frees_name and self.coordinator.need() is not None:
            self._frees_name = False
            return PollResult(self._leave_group(None), left)
        if not self._frees_name and self.state is MemberState.RECONCILING and self.step is None and not self._declaring:
            return PollResult(wait=min(left, self._reconcile(now)))
        return PollResult(wait=left)

    # -- small things -------------------------------------------------------------------------------------------------

    def _described(self) -> str:
        """Return the settings that may be at fault."""
        settings = {
            "group.instance.id": self.settings.group_instance_id,
            "group.remote.assignor": self.settings.remote_assignor,
            "pattern": self._pattern or None,
        }
        said = "".join(f", {key}={value!r}" for key, value in settings.items() if value is not None)
        return f"group.id={self.settings.group_id!r}{said}"


def _union(one: PartitionsById, other: PartitionsById) -> PartitionsById:
    if not other:
        return one
    return {i: one.get(i, frozenset()) | other.get(i, frozenset()) for i in {*one, *other}}

"""A member of a group under the classic protocol: JoinGroup, SyncGroup, LeaveGroup, as a state machine.

``FOLLOWING`` lists the allowed state changes; docs/internals/consumer.md gives their causes.

Pure, see ``requests``. Work of the application is a numbered step; answers to overtaken steps are ignored. Kafka's own
threaded consumer knows only KIP-848, so there is no model for the classic protocol in this shape; the wire protocol
follows KIP-429 (cooperative rebalancing), KIP-394 (member ids before joining), KIP-345 (static members) and KIP-800
(reasons).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import HeartbeatRequest
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, Assigned, AssignNeeded, Hold, JoinNeeded, Prepared
from sparkrelay.consumer.base.requests import PollResult, Unsent
from sparkrelay.consumer.group.classic_requests import ClassicLeave, join_request, refusal, sync_request
from sparkrelay.consumer.group.coordinator import JOIN_LANE
from sparkrelay.consumer.group.leading import TopicWatch
from sparkrelay.consumer.group.membership import Membership, MemberState
from sparkrelay.consumer.group.pattern_topics import PatternTopics
from sparkrelay.consumer.group.wire import decode_assignment, decode_subscription
from sparkrelay.errors import SparkRelayError

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping

    from sparkrelay.consumer.base.assignor import MemberAssignment
    from sparkrelay.consumer.base.call import Call
    from sparkrelay.consumer.base.requests import RequestState
    from sparkrelay.errors import KafkaException

_log = logging.getLogger(__name__)
_AWAY: Final = frozenset({MemberState.STALE, MemberState.LEAVING, MemberState.FATAL})
_AGAIN: Final = _AWAY | {MemberState.PREPARING}
#: The broker does not know the member, or not in this generation.
_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
#: The states that may follow each state.
FOLLOWING: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    MemberState.UNSUBSCRIBED: frozenset({MemberState.PREPARING, MemberState.LEAVING, MemberState.FATAL}),
    MemberState.PREPARING: _AGAIN | {MemberState.JOINING},
    MemberState.JOINING: _AGAIN | {MemberState.ASSIGNING, MemberState.SYNCING},
    MemberState.ASSIGNING: _AGAIN | {MemberState.SYNCING},
    MemberState.SYNCING: _AGAIN | {MemberState.ADOPTING},
    MemberState.ADOPTING: _AGAIN | {MemberState.STABLE},
    MemberState.STABLE: _AGAIN,
    MemberState.STALE: frozenset({MemberState.PREPARING, MemberState.LEAVING, MemberState.FATAL}),
    MemberState.LEAVING: frozenset({MemberState.UNSUBSCRIBED}),
    MemberState.FATAL: frozenset({MemberState.LEAVING, MemberState.FATAL}),
}


@dataclass(eq=False)
class ClassicMembership(Membership):
    """A membership that joins, has a leader assign, and syncs.

    Args:
        matched: takes the topics that match the subscribed pattern, whenever they change.
    """

    FOLLOWING = FOLLOWING

    matched: Callable[[frozenset[str]], None]
    retry: RequestState  # pauses after failures

    def __post_init__(self) -> None:
        super().__post_init__()
        self._subscription: frozenset[str] = frozenset()
        self._joined_for: frozenset[str] = frozenset()
        #: Counts attempts; answers to requests of an earlier one are ignored.
        self._attempt = 0
        self._hold = Hold.KEEP
        self._again = ""
        self._prepared = Prepared(0)
        self._assignments: Mapping[str, MemberAssignment] = {}
        self._protocol = ""
        self._watch = TopicWatch(self.cluster, self.topics, by_rack=bool(self.settings.rack))
        self._pattern = PatternTopics(self.cluster, self.topics)
        self._leave = ClassicLeave(self.settings, self.coordinator, lambda: self.metadata)

    @property
    def subscribed(self) -> bool:
        """Whether the consumer subscribed, perhaps anew while it is still leaving."""
        return bool(self._subscription) or self._pattern.watching or super().subscribed

    # -- events of the application ------------------------------------------------------------------------------------

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None, now: float) -> None:
        """Join, or have the group rebalance; with a pattern once all topics of the cluster are known."""
        self._polled_at = now
        self._pattern.watch(pattern)
        if pattern is None:
            self._subscribe(topics)

    def _subscribe(self, topics: frozenset[str]) -> None:
        self._subscription = topics
        if self.state is MemberState.UNSUBSCRIBED:
            self._prepare(Hold.KEEP, "the consumer subscribed")
        elif isinstance(self.step, JoinNeeded):
            if topics != self.step.topics:
                self._prepare_anew()
        elif self.active and topics != self._joined_for:
            self.rejoin("the subscription changed")

    def _join_again(self) -> None:
        self._prepare(Hold.LOSE, "the application polls again")

    def rejoin(self, reason: str) -> None:
        """Join again: now, or after the present rebalance."""
        if self.active:
            self._again = reason

    def _answered(
        self, step: JoinNeeded | AssignNeeded | AdoptNeeded, answer: Prepared | Assigned | Adopted, now: float
    ) -> None:
        if isinstance(answer, Prepared):
            self._take_prepared(answer, now)
        elif isinstance(answer, Assigned):
            self._take_assigned(answer, now)
        else:
            self._machine.move(MemberState.STABLE, "the application has adopted its assignment")
            self.retry.succeeded()
            if answer.revoked:
                self._again = self._again or "partitions were given up for others to take"
            elif isinstance(step, AdoptNeeded) and answer.owned != frozenset(step.assignment.partitions):
                self._again = self._again or "the member was interrupted before it had taken its partitions"

    def leave(self, call: Call, reason: str, *, for_good: bool = False) -> None:
        """Leave the group once the broker has given us a member id; it would wait for us otherwise.

        A static member that leaves ``for_good`` does so even without a member id: a former run may have left its place.
        """
        # A member may have given up because another has its group.instance.id; that one must stay.
        for_good = for_good and self.state is not MemberState.FATAL
        frees_name = for_good and self.settings.group_instance_id is not None
        if self.state is MemberState.LEAVING or (self.state is MemberState.UNSUBSCRIBED and not frees_name):
            self._forget_subscription()
            call.resolve(None)
            return
        self._cancel()
        # The answer to a heartbeat under way does not matter any more.
        self.life += 1
        self._machine.move(MemberState.LEAVING, reason)
        self._leave.begin(call, reason, for_good=for_good)
        self._forget_subscription()

    # -- news from the coordinator ------------------------------------------------------------------------------------

    @property
    def beats(self) -> bool:
        """Whether there is a generation to send heartbeats for, and no JoinGroup that shows we are alive."""
        return self.metadata.generation >= 0 and self.active and self.state is not MemberState.JOINING

    @property
    def awaits_another(self) -> bool:
        """Whether a rebalance has ended: we get in the next one what others give up in this (KIP-429)."""
        return self.settings.cooperative and self.state is MemberState.STABLE

    def heartbeat(self) -> Any:
        """Return Heartbeat."""
        return HeartbeatRequest(
            group_id=self.metadata.group_id,
            generation_id=self.metadata.generation,
            member_id=self.metadata.member_id,
            group_instance_id=self.metadata.group_instance_id,
            min_version=3,
        )

    def heartbeat_answered(self, message: Any) -> None:
        """Rebalance, join anew or give up if the broker says so."""
        code = message.error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is MemberState.STABLE:
                self._prepare(self._planned_hold(), "the group is rebalancing")
            elif self.state is MemberState.ADOPTING:
                self._again = self._again or "the group is rebalancing"
        elif code in _UNKNOWN:
            self.fenced(code)
        elif code:
            self.refused(refusal(code, f"heartbeat of member {self.metadata.member_id!r}", self.settings))

    def heartbeat_failed(self, error: KafkaException) -> None:
        """Give up if no other heartbeat would be answered either."""
        if not error.retriable:
            self.refused(error)

    def fenced(self, code: int) -> bool:
        """Join again without claims; return False if JoinGroup is under way instead."""
        if not self.active or self.metadata.generation < 0:
            return True
        if self.state is MemberState.JOINING and self.retry.in_flight:
            # The group may have begun the generation that we are joining; the answer to JoinGroup decides.
            return False
        # The group waits while the application gives up partitions, but no longer than this.
        busy = self.state is MemberState.PREPARING
        limit = "max.poll.interval.ms" if busy else "session.timeout.ms"
        _log.warning(
            "group %s: member %s was expelled (%s): %s for %s=%d, or the group moved on",
            self.settings.group_id, self.metadata.member_id, ErrorCode(code).name,
            "poll() or a callback within it kept a rebalance waiting" if busy else "it was silent", limit,
            (self.settings.max_poll_interval if busy else self.settings.session_timeout) * 1000,
        )  # fmt: skip
        self._forget_generation(forget_member=code == ErrorCode.UNKNOWN_MEMBER_ID)
        self._hold = Hold.LOSE
        # A step of preparation continues; its answer says whether there is anything to lose.
        if self.state is not MemberState.PREPARING:
            self._prepare(Hold.LOSE, "the member was expelled")
        return True

    def refused(self, error: Exception) -> None:
        """Give up: joining again would not help. Leave, so that the others need not wait."""
        self._parting += self._leave.request(f"the member gave up: {error}")
        self._cancel()
        self._forget_generation(forget_member=True)
        self._machine.move(MemberState.FATAL, f"refused: {error!r}")
        self.fail(error)

    # -- driving ------------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """Return JoinGroup, SyncGroup or LeaveGroup when it is time for it."""
        if (found := self._pattern.changed()) is not None:
            self.matched(found)
            self._subscribe(found)
        if self._parting:
            parting, self._parting = self._parting, ()
            return PollResult(parting, 0.0)
        if self.state is MemberState.LEAVING:
            requests = self._leave.poll()
            if self._leave.over:
                self._left()
            return PollResult(requests)
        if not self.active:
            return PollResult()
        left = self._poll_due_in(now)
        if left <= 0:
            return PollResult(self._give_up_polling())
        if self.state is MemberState.STABLE:
            if changed := self._watch.changed():
                self._again = self._again or f"partitions changed of {', '.join(changed[:5])}"
            if self._again:
                self._prepare(self._planned_hold(), self._again)
        if self.state in {MemberState.JOINING, MemberState.SYNCING} and not self.retry.in_flight:
            wait = self.retry.wait(now)
            if wait > 0:
                return PollResult(wait=min(wait, left))
            node = self.coordinator.need()
            if node is not None:
                return PollResult((self._join(node) if self.state is MemberState.JOINING else self._sync(node),), left)
        return PollResult(wait=left)

    def _prepare(self, hold: Hold, reason: str) -> None:
        """Begin a rebalance: first the application gives up what it must."""
        self._cancel()
        self._machine.move(MemberState.PREPARING, reason)
        self._again = ""
        self.reason = reason
        self._hold = hold
        self._assignments = {}
        dropped = self._joined_for - self._subscription
        self._announce(JoinNeeded, hold, self._subscription, dropped)

    def _prepare_anew(self) -> None:
        """Have the application prepare for another subscription; nobody was asked to join yet."""
        again = self._again
        self._prepare(self._hold, self.reason)
        self._again = again

    def _planned_hold(self) -> Hold:
        if self.metadata.generation < 0:
            return Hold.LOSE
        return Hold.KEEP if self.settings.cooperative else Hold.REVOKE

    def _take_prepared(self, answer: Prepared, now: float) -> None:
        if answer.error is not None:
            # poll() raises the error itself; we must not join without what the leader needs.
            self._step_out(now, f"the assignor failed to describe this member: {answer.error}")
            return
        if self._hold is Hold.LOSE and answer.owned:
            # We were expelled while the application was giving up partitions in good order.
            self._prepare(Hold.LOSE, "the member was expelled")
            return
        self._hold = Hold.KEEP
        self._prepared = answer
        self._joined_for = self._subscription
        self._machine.move(MemberState.JOINING, "the application is prepared")

    def _join(self, node: int) -> Unsent:
        attempt = self._attempt
        request = join_request(self.settings, self.metadata, self._joined_for, self._prepared, self.reason)
        self.retry.sent()
        nameless = not self.metadata.member_id
        self._leave.awaits_name = nameless

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            if nameless:
                self._leave.awaits_name = False
                if message is not None and message.member_id and self.state in {MemberState.LEAVING, MemberState.STALE}:
                    # Otherwise the broker would wait for a member that never arrives.
                    self._name(message.member_id)
            if attempt == self._attempt:
                self._joined(message, error, now)

        return Unsent(request, handle, node, JOIN_LANE, self.settings.join_timeout)

    def _joined(self, message: Any, error: KafkaException | None, now: float) -> None:
        if error is not None:
            self._unanswered(error, now)
            return
        code = message.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.retry.answered()
            self._name(message.member_id)
        elif code:
            self._join_refused(code, now)
        elif message.protocol_name not in dict(self.settings.assignors):
            self._name(message.member_id)
            self.refused(refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "joining", self.settings))
        else:
            self.retry.answered()  # only STABLE is a success
            self.life += 1
            self._place(message.generation_id, message.member_id)
            self._protocol = message.protocol_name
            if message.leader == message.member_id:
                self._lead(message.members, now, skip_assignment=message.skip_assignment)
            else:
                self._assignments = {}
                self._machine.move(MemberState.SYNCING, "another member leads")

    def _join_refused(self, code: int, now: float) -> None:
        error = refusal(code, "joining", self.settings)
        if code in _UNKNOWN:
            self.retry.failed(now)
            self._forget_generation(forget_member=code == ErrorCode.UNKNOWN_MEMBER_ID)
            self._prepare(Hold.LOSE, f"the coordinator does not know the member ({ErrorCode(code).name})")
        elif error.retriable or code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.coordinator.moved(code)
            self.retry.failed(now)
        else:
            self.refused(error)

    def _unanswered(self, error: KafkaException, now: float) -> None:
        self.retry.failed(now)
        self.coordinator.lost(error)
        if not error.retriable:
            self.refused(error)

    # -- leading ------------------------------------------------------------------------------------------------------

    def _lead(self, members: list[Any], now: float, *, skip_assignment: bool) -> None:
        """Get fresh metadata of the members' topics, then run the assignor, unless the assignment stands."""
        self._machine.move(MemberState.ASSIGNING, "the member leads")
        try:
            subscriptions = {
                m.member_id: decode_subscription(bytes(m.metadata), group_instance_id=m.group_instance_id)
                for m in members
            }
        except SparkRelayError as error:
            self.fail(error)
            self._step_out(now, str(error))
            return
        topics = frozenset[str]().union(*(s.topics for s in subscriptions.values()))
        if skip_assignment:
            # Only once it watches: partitions that are added after the application has its own must be seen.
            self._assignments = {}
            self._watch.resume(topics, lambda: self._machine.move(MemberState.SYNCING, "the assignment stands"))
            return
        members_said = MappingProxyType(subscriptions)
        self._watch.view(topics, lambda view: self._announce(AssignNeeded, self._protocol, view, members_said))

    def _take_assigned(self, answer: Assigned, now: float) -> None:
        if answer.error is not None:
            self._step_out(now, f"the assignor failed: {answer.error}")
            return
        self._assignments = answer.assignments
        self._machine.move(MemberState.SYNCING, "the assignor has run")
        self._watch.assigned({p.topic for a in answer.assignments.values() for p in a.partitions})

    # -- syncing ------------------------------------------------------------------------------------------------------

    def _sync(self, node: int) -> Unsent:
        attempt = self._attempt
        self.retry.sent()

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            if attempt == self._attempt:
                self._synced(message, error, now)

        request = sync_request(self.metadata, self._protocol, self._assignments)
        return Unsent(request, handle, node, JOIN_LANE, self.settings.join_timeout)

    def _synced(self, message: Any, error: KafkaException | None, now: float) -> None:
        if error is not None:
            self._unanswered(error, now)
            if self.state is MemberState.SYNCING:
                self._prepare(self._planned_hold(), "the coordinator was lost")
            return
        if message.error_code:
            self._sync_refused(message.error_code, now)
            return
        self.retry.answered()
        try:
            assignment = decode_assignment(bytes(message.assignment))
        except SparkRelayError as unreadable:
            self.refused(unreadable)
            return
        self._machine.move(MemberState.ADOPTING, "the assignment has arrived")
        self._announce(AdoptNeeded, self._protocol, assignment, self.metadata)

    def _sync_refused(self, code: int, now: float) -> None:
        error = refusal(code, "getting the assignment", self.settings)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.retry.answered()
        else:
            self.retry.failed(now)
        if code in _UNKNOWN:
            self.fenced(code)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS or error.retriable:
            self.coordinator.moved(code)
            self._prepare(self._planned_hold(), f"the rebalance began anew ({ErrorCode(code).name})")
        else:
            self.refused(error)

    # -- leaving ------------------------------------------------------------------------------------------------------

    def _step_out(self, now: float, why: str) -> None:
        """Leave, so that the group does not wait for us, and join again when polled again."""
        _log.warning("group %s: the member leaves: %s", self.settings.group_id, why)
        self._parting = self._go(why)
        self.retry.failed(now)

    def _go(self, why: str) -> tuple[Unsent, ...]:
        self._cancel()
        requests = self._leave.request(why)
        self._forget_generation(forget_member=self.settings.group_instance_id is None)
        self._machine.move(MemberState.STALE, why)
        return requests

    def _left(self) -> None:
        self._forget_generation(forget_member=True)
        self._machine.move(MemberState.UNSUBSCRIBED, "the member has left")
        self._hold = Hold.KEEP
        if self._subscription:
            self._prepare(Hold.KEEP, "the consumer subscribed while it was leaving")

    def _forget_subscription(self) -> None:
        self._subscription = self._joined_for = frozenset()
        self._pattern.watch(None)

    # -- small things -------------------------------------------------------------------------------------------------

    def _cancel(self) -> None:
        """Ignore the answers to everything under way."""
        self._attempt += 1
        self._watch.stop()
        self.retry.answered()
        self._cancel_step()

    def _name(self, member_id: str) -> None:
        self._place(self.metadata.generation, member_id)

    def _forget_generation(self, *, forget_member: bool) -> None:
        self.life += 1
        self._place(-1, "" if forget_member else self.metadata.member_id)

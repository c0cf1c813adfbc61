"""The application's part in a rebalance: callbacks and client-side assignors, run by the polling thread or task.

Whatever they raise, the membership gets its answer, so that the group continues; ``poll`` then raises the error
(KAFKA-18160, KAFKA-16933). The same holds for interrupts and cancelled tasks: the rest of the step is done first.
Overtaken steps are not run.

Callbacks may call the consumer. One that unsubscribes or closes passes the remaining partitions to ``on_revoked`` or
``on_lost``, but never a partition that one of these has already; the present step then takes nothing more.
"""

from __future__ import annotations

import logging
import weakref
from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.consumer.api.exchanges import attempt, first_failure
from sparkrelay.consumer.assignors.assignor_check import checked_assignment, checked_user_data
from sparkrelay.consumer.base.events import Adopted, AdoptNeeded, Assigned, AssignNeeded, Hold, JoinNeeded, Prepared
from sparkrelay.errors import KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparkrelay.consumer.api.exchanges import Exchange
    from sparkrelay.consumer.base.assignor import PartitionAssignor
    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.types import TopicPartition

    Callback = Callable[[Any, list[TopicPartition]], object]

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class RebalanceSteps:
    """Runs the steps of one consumer's rebalances, as exchanges."""

    consumer: InitVar[object]  # first argument of callbacks; not kept alive
    subscription: SubscriptionState
    assignors: InitVar[Sequence[PartitionAssignor]]  # what it offers to its group
    before_revoking: Callable[[], object]  # the automatic commit before partitions are revoked; may return an exchange
    #: Called after ``on_revoked``, before the partitions are dropped; may return an exchange.
    after_revoking: Callable[[], object] = lambda: None
    #: Called after each callback; raises if a guest of the callback still uses the consumer.
    after_callback: Callable[[], None] = lambda: None

    def __post_init__(self, consumer: object, assignors: Sequence[PartitionAssignor]) -> None:
        self._consumer = weakref.ref(consumer)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._cooperative = all(assignor.supports_cooperative for assignor in assignors)
        self._on_assigned: Callback | None = None
        self._on_revoked: Callback | None = None
        self._on_lost: Callback | None = None
        #: Partitions for which ``on_assigned`` has not returned: it may be about to seek.
        self._unannounced: list[TopicPartition] = []
        #: How often everything was given up; a step that began earlier takes nothing more.
        self._endings = 0

    def set_callbacks(
        self, on_assigned: Callback | None, on_revoked: Callback | None, on_lost: Callback | None
    ) -> None:
        """Set the callbacks; ``on_lost`` defaults to ``on_revoked``, as in Kafka."""
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost if on_lost is not None else on_revoked

    def forget(self) -> None:
        """Record that the application has given up everything, perhaps in a callback."""
        self._endings += 1
        self._unannounced = []

    def prepare(self, step: JoinNeeded, answer: Callable[[Prepared], None]) -> Exchange[BaseException | None]:
        """Give up partitions as necessary, and collect user data; return the first error."""
        failures: list[BaseException] = []
        prepared = Prepared(step.number, error=_INTERRUPTED)
        try:
            if step.hold is Hold.LOSE:
                yield from self.lose(failures)
            else:
                held = self.subscription.assigned
                gone = held if step.hold is Hold.REVOKE else {p for p in held if p.topic in step.dropped}
                yield from self.revoke(gone, failures)
            user_data, error = self._user_data(step.topics)
            prepared = Prepared(step.number, self.subscription.assigned, user_data, error)
            if error is not None:
                failures.append(error)
        finally:
            answer(prepared)
        return first_failure(failures)

    def assign(self, step: AssignNeeded, answer: Callable[[Assigned], None]) -> Exception | None:
        """Run the leader's assignor; return its error."""
        assigned = Assigned(step.number, error=_INTERRUPTED)
        try:
            assignor = self._assignors[step.assignor]
            said = assignor.assign(step.cluster, step.members)
            assigned = Assigned(step.number, checked_assignment(assignor, said, step.cluster, step.members))
        except Exception as error:  # noqa: BLE001 - the assignor is the user's; poll raises it
            assigned = Assigned(step.number, error=error)
            return error
        finally:
            answer(assigned)
        return None

    def adopt(self, step: AdoptNeeded, answer: Callable[[Adopted], None]) -> Exchange[BaseException | None]:
        """Take an assignment: notify the assignor, then ``on_revoked``, then ``on_assigned``."""
        failures: list[BaseException] = []
        endings = self._endings
        held = self.subscription.assigned
        given = dict.fromkeys(step.assignment.partitions)
        gone = {p for p in held if p not in given}
        try:
            assignor = self._assignors.get(step.assignor)
            if assignor is not None:  # under KIP-848 the broker assigns
                yield from attempt(failures, lambda: assignor.on_assignment(step.assignment, step.metadata))
            if gone:
                yield from self.revoke(gone, failures)
            # If the member was expelled, or a callback unsubscribed, others may own these partitions.
            if not step.cancelled and endings == self._endings:
                # In this order: after an interrupt, on_assigned must still get all partitions.
                self._unannounced = [p for p in sorted(given) if p not in held or p in self._unannounced]
                self.subscription.assign_from_group(list(given))
                yield from self._introduce(failures)
        finally:
            if not step.cancelled and endings == self._endings:
                self.subscription.release(but_not=self._unannounced)
            answer(Adopted(step.number, bool(gone) and self._cooperative, self.subscription.assigned))
        return first_failure(failures)

    def introduce_again(self) -> Exchange[BaseException | None]:
        """Call ``on_assigned`` again for the partitions for which it failed, as Kafka does; return its error."""
        self._unannounced = [p for p in self._unannounced if self.subscription.get(p) is not None]
        if not self._unannounced:
            return None
        failures: list[BaseException] = []
        yield from self._introduce(failures)
        if not self._unannounced:
            self.subscription.release()
        return first_failure(failures)

    def _introduce(self, failures: list[BaseException]) -> Exchange[None]:
        failed = yield from self._call(self._on_assigned, list(self._unannounced), failures)
        if not failed:
            self._unannounced = []

    def revoke(self, partitions: Iterable[TopicPartition], failures: list[BaseException]) -> Exchange[None]:
        """Revoke partitions; their positions can be read and committed in the callback."""
        gone = sorted(partitions)
        try:
            if given_up := self.subscription.give_up(gone):
                yield from attempt(failures, self.before_revoking)
                yield from self._call(self._on_revoked, given_up, failures)
                yield from attempt(failures, self.after_revoking)
        finally:
            self.subscription.drop(gone)

    def lose(self, failures: list[BaseException]) -> Exchange[None]:
        """Drop all partitions: others own them already."""
        gone = sorted(self.subscription.assigned)
        try:
            if given_up := self.subscription.give_up(gone):
                yield from self._call(self._on_lost, given_up, failures)
        finally:
            self.subscription.drop(gone)

    def _call(
        self, callback: Callback | None, partitions: list[TopicPartition], failures: list[BaseException]
    ) -> Exchange[bool]:
        """Call the application; return whether that failed."""
        if callback is None:
            return False
        before = len(failures)
        yield from attempt(failures, lambda: callback(self._consumer(), partitions))
        if failed := len(failures) > before:
            level = logging.ERROR if before else logging.DEBUG  # the first one comes out of poll
            _log.log(level, "a rebalance callback failed", exc_info=failures[-1])
        yield from attempt(failures, self.after_callback)
        return failed

    def _user_data(self, topics: frozenset[str]) -> tuple[Mapping[str, bytes], Exception | None]:
        try:
            said = {name: (a, a.subscription_user_data(topics)) for name, a in self._assignors.items()}
            return {name: checked_user_data(*one) for name, one in said.items()}, None
        except Exception as error:  # noqa: BLE001 - the assignor is the user's; poll raises it
            return {}, error


#: The error of a step that ended by KeyboardInterrupt or the like.
_INTERRUPTED: Final = KafkaException("the step was interrupted")

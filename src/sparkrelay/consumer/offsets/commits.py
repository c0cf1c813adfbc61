"""Committing offsets, and fetching committed ones. See the consumer threading refactor, "CommitRequestManager".

Commits are sent in the order of their submission, over one connection. After a commit that may be repeated, the next
one waits for its outcome: a repeated older commit must not overwrite a newer one. The application thread decides what
to commit, from what ``poll`` has returned to it (KAFKA-18641).

Offsets are committed under the id of the topic in which they were found (``client.group_requests``); brokers before
Kafka 4.1 know names only, so the newest metadata decides. Offsets of a vanished topic are left out, and the others
committed.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.client.group_requests import OffsetAndMetadata, fetched_offsets, offset_commit, offset_fetch
from sparkrelay.client.messages.per_topic import each_partition
from sparkrelay.consumer.base.requests import NOTHING, PollResult, RequestState, Unsent
from sparkrelay.consumer.group.coordinator import GROUP_LANE
from sparkrelay.errors import CommitFailedException, KafkaException, RebalanceInProgressException, UnknownTopicException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Mapping

    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.call import Call
    from sparkrelay.consumer.base.events import Commit
    from sparkrelay.consumer.group.coordinator import CoordinatorManager

#: Bounded because heartbeats queue after them: the broker handles one request of a connection at a time.
_MOST_UNDER_WAY: Final = 10
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND})
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_OUTDATED: Final = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

#: Committed offsets; partitions without one are missing.
Committed = dict[TopicPartition, OffsetAndMetadata]


@dataclass(eq=False)
class CommitManager:
    """Talks to the coordinator about offsets.

    Args:
        place: returns the member's identity in the group, None for a consumer that assigns by hand.
        fenced: called with the code by which the group refuses a member; returns False if the member is only between
            two generations.
        member_reads: whether committed offsets are fetched as a member, so that none is of an older epoch (KIP-848).
    """

    group_id: str
    coordinator: CoordinatorManager
    metadata: Metadata
    stale: Callable[[str], None]  # called with a topic that may have been recreated
    place: Callable[[], GroupMetadata | None]
    fenced: Callable[[int], bool]
    make_state: Callable[[], RequestState]  # returns the pauses of one conversation
    member_reads: bool = False

    def __post_init__(self) -> None:
        #: Commits to be sent, each with whether it was submitted as a member.
        self._commits: deque[tuple[Commit, bool]] = deque()
        self._under_way = 0
        #: The pauses of commits that may be repeated.
        self._commit_state = self.make_state()
        self._fetches: list[tuple[Call, frozenset[TopicPartition], RequestState]] = []

    def commit(self, commit: Commit) -> None:
        """Commit offsets; the call is resolved with None."""
        if not commit.offsets:
            commit.call.resolve(None)
        else:
            self._commits.append((commit, self.place() is not None))

    def fetch(self, call: Call, partitions: frozenset[TopicPartition]) -> None:
        """Fetch committed offsets; the call is resolved with ``Committed``."""
        if not partitions:
            call.resolve({})
        else:
            self._fetches.append((call, partitions, self.make_state()))

    def refused(self, error: KafkaException) -> bool:
        """Fail all calls that wait for a coordinator, because we may not know it. Return whether there were any."""
        calls = [commit.call for commit, _ in self._commits]
        calls += [call for call, _, state in self._fetches if not state.in_flight]
        waiting = [call for call in calls if not call.done]
        for call in waiting:
            call.fail(error)
        return bool(waiting)

    def poll(self, now: float) -> PollResult:
        """Return the next commits and all fetches that are not under way."""
        while self._commits and self._commits[0][0].call.done:
            self._commits.popleft()
        self._fetches = [one for one in self._fetches if not one[0].done]
        if not self._commits and not self._fetches:
            return NOTHING
        node = self.coordinator.need()
        if node is None:
            self._explain()
            return NOTHING
        requests, wait = [], math.inf
        for call, partitions, state in self._fetches:
            wait = min(wait, pause := state.wait(now))
            if pause <= 0:
                requests.append(self._fetch(node, call, partitions, state))
        while self._commits and self._under_way < _MOST_UNDER_WAY:
            wait = min(wait, pause := self._commit_state.wait(now))
            if pause > 0:
                break
            commit, as_member = self._commits.popleft()
            if not commit.call.done and (request := self._commit(node, commit, as_member)) is not None:
                requests.append(request)
        return PollResult(tuple(requests), wait if not requests else math.inf)

    def _explain(self) -> None:
        """Set the coordinator's error as the last error of all waiting calls."""
        if (error := self.coordinator.last_error) is not None:
            for call in [commit.call for commit, _ in self._commits] + [one[0] for one in self._fetches]:
                call.last_error = error

    def _commit(self, node: int, commit: Commit, as_member: bool) -> Unsent | None:
        place, what = self.place(), commit.call.what
        if (place is None and as_member) or (place is not None and place.generation < 0):
            # Even in a group without members, which accepts anybody's commits, others may have been members since.
            state, remedy = (
                (f"has left group {self.group_id!r}", "commit before unsubscribe() and close()")
                if place is None
                else (f"is not in group {self.group_id!r} at present", "poll() joins again")
            )
            commit.call.fail(
                CommitFailedException(
                    f"{what}: this consumer {state}, so its partitions may be owned by others already; {remedy}"
                )
            )
            return None
        ids, gone = sort_out(commit.offsets, commit.found_in, self.metadata)
        offsets = {p: offset for p, offset in commit.offsets.items() if p not in gone}
        if not offsets:
            commit.call.fail(_gone_error(what, gone, commit.offsets))
            return None
        names = {topic_id: partition.topic for partition, topic_id in ids.items()}
        self._under_way += 1
        if commit.retry:
            self._commit_state.sent()

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            self._under_way -= 1
            if error is None:
                error = self._first_error(commit, place, message, names, gone)
            else:
                self.coordinator.lost(error)
            if self._committed(commit, error, now):
                self._commits.appendleft((commit, as_member))

        return Unsent(offset_commit(self.group_id, offsets, member=place, ids=ids), handle, node, GROUP_LANE)

    def _committed(self, commit: Commit, error: KafkaException | None, now: float) -> bool:
        """Handle an outcome; return whether the commit is to be repeated."""
        if error is not None and error.retriable and commit.retry and not commit.call.done:
            commit.call.last_error = error
            self._commit_state.failed(now)
            return True
        if commit.retry:
            self._commit_state.succeeded()
        if error is None:
            commit.call.resolve(None)
        else:
            commit.call.fail(error)
        return False

    def _first_error(
        self,
        commit: Commit,
        place: GroupMetadata | None,
        message: Any,
        names: Mapping[uuid.UUID, str],
        left_out: frozenset[TopicPartition],
    ) -> KafkaException | None:
        gone, what = set(left_out), commit.call.what
        for partition, answer in each_partition(message.topics, names):
            code = answer.error_code
            if not code:
                continue
            if code in _GONE and partition in commit.offsets:
                # A coordinator may learn of a new topic late: before a repetition, metadata decides.
                self.stale(partition.topic)
                if commit.automatic or (partition in commit.found_in and not commit.retry):
                    # A deleted topic does not return, and the group waits for us. Errors of others may pass.
                    gone.add(partition)
                    continue
            self.coordinator.moved(code)
            if code == ErrorCode.STALE_MEMBER_EPOCH:
                # If we are still a member, a heartbeat brings the new epoch, and the commit is repeated.
                error = CommitFailedException(
                    f"{what}: group {self.group_id!r} has given this consumer a newer epoch "
                    "(STALE_MEMBER_EPOCH); call poll() and commit again"
                )
                error.retriable = True
                return error
            if code == ErrorCode.REBALANCE_IN_PROGRESS or (code in _FENCED and not self._expelled(place, code)):
                return RebalanceInProgressException(
                    f"{what}: group {self.group_id!r} is rebalancing ({ErrorCode(code).name}); call "
                    "poll() and commit again what this consumer still owns"
                )
            if code in _FENCED:
                return CommitFailedException(
                    f"{what}: group {self.group_id!r} does not count this consumer as a member "
                    f"({ErrorCode(code).name}): it was silent or did not poll for too long, and others own its "
                    "partitions now. Poll more often, take fewer records a time, or raise max.poll.interval.ms"
                )
            return broker_error(code, f"{what}: {partition}")
        return _gone_error(what, gone, commit.offsets) if gone else None

    def _expelled(self, place: GroupMetadata | None, code: int) -> bool:
        """Return whether the group expelled the member that sent a commit; if so, have it join again.

        A cooperative consumer reads on during a rebalance, and may commit under a generation that has just ended.
        """
        now = self.place()
        if place is None or now is None or now.generation < 0:
            return True
        # A deleted group has forgotten its members.
        known = ErrorCode.UNKNOWN_MEMBER_ID if code == ErrorCode.GROUP_ID_NOT_FOUND else code
        return place == now and self.fenced(known)

    def _fetch(self, node: int, call: Call, partitions: frozenset[TopicPartition], state: RequestState) -> Unsent:
        place = self.place() if self.member_reads else None
        member = place if place is not None and place.generation >= 0 else None
        known = ((topic, self.metadata.topic_id(topic)) for topic in {partition.topic for partition in partitions})
        ids = {topic: topic_id for topic, topic_id in known if topic_id is not None}
        state.sent()

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            found: Committed = {}
            if error is None:
                found, error = self._read_fetched(call.what, ids, message)
            else:
                self.coordinator.lost(error)
            if error is None:
                state.succeeded()
                call.resolve({p: found[p] for p in partitions if p in found})
            elif error.retriable:
                call.last_error = error
                state.failed(now)
            else:
                call.fail(error)

        request = offset_fetch(self.group_id, partitions, stable=True, member=member, ids=ids)
        return Unsent(request, handle, node, GROUP_LANE)

    def _read_fetched(
        self, what: str, ids: Mapping[str, uuid.UUID], message: Any
    ) -> tuple[Committed, KafkaException | None]:
        group = message.groups[0]
        code = group.error_code
        names = {topic_id: name for name, topic_id in ids.items()}
        for (topic, _), answer in each_partition(group.topics, names):
            if topic in ids and self.metadata.topic_id(topic) != ids[topic]:
                # It was recreated since the request: the offset may belong to either topic.
                code = code or ErrorCode.UNKNOWN_TOPIC_ID
            code = code or answer.error_code
            if answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                self.stale(topic)
        self.coordinator.moved(code)
        found = fetched_offsets(group, names)
        if not code:
            return found, None
        error = broker_error(code, what)
        # The next heartbeat brings our epoch, or that we have none.
        error.retriable = error.retriable or (self.member_reads and code in _OUTDATED)
        return found, error


def sort_out(
    partitions: Iterable[TopicPartition], found_in: Mapping[TopicPartition, uuid.UUID], metadata: Metadata
) -> tuple[dict[TopicPartition, uuid.UUID], frozenset[TopicPartition]]:
    """Return the known topic ids by partition, and the partitions whose topic has vanished since.

    ``found_in`` are the ids of the topics in which positions were found. Of other partitions only the name is known.
    """
    ids: dict[TopicPartition, uuid.UUID] = {}
    gone = set()
    for partition in partitions:
        found, there = found_in.get(partition), metadata.topic_id(partition.topic)
        missing = metadata.topic_error(partition.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if found is not None and (missing or there not in (None, found)):
            gone.add(partition)
        elif (topic_id := found or there) is not None:
            ids[partition] = topic_id
    return ids, frozenset(gone)


def _gone_error(
    what: str, gone: Iterable[TopicPartition], offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> UnknownTopicException:
    names = ", ".join(f"{partition} at {offsets[partition].offset}" for partition in sorted(gone))
    return UnknownTopicException(
        f"{what}: not committed: {names}: the topic was deleted, or deleted and created again, so its offsets belong "
        "to other records now; seek() to continue"
    )

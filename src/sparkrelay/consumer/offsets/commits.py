"""Committing offsets, and asking for committed ones. See the consumer threading refactor, "CommitRequestManager".

Commits go out in the order in which they were asked for, over one connection. Nothing goes out behind one that may be
repeated before it is decided: a repeated older commit must not overwrite a newer one. What to commit was decided by the
application thread, from what ``poll`` had returned to it (KAFKA-18641). Offsets of a topic that is there no more are
left out, and the others committed: see ``offset_topics``.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.client.group_requests import offset_commit, offset_fetch
from sparkrelay.consumer.base.requests import NOTHING, PollResult, RequestState, Unsent
from sparkrelay.consumer.group.coordinator import GROUP_LANE
from sparkrelay.consumer.offsets.offset_topics import (
    gone_error,
    ids_by_topic,
    sort_out,
    topic_names,
)
from sparkrelay.errors import CommitFailedException, KafkaException, RebalanceInProgressException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Mapping

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.assignor import GroupMetadata
    from sparkrelay.consumer.base.events import Call, Commit
    from sparkrelay.consumer.group.coordinator import CoordinatorManager

__all__ = ["CommitManager", "Committed"]

#: Heartbeats stand behind them: the broker takes one request of a connection at a time.
_MOST_UNDER_WAY: Final = 10
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.GROUP_ID_NOT_FOUND})
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_OUTDATED: Final = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

#: Committed offsets: (offset, leader epoch, metadata); partitions without one are missing.
Committed = dict[TopicPartition, tuple[int, int, str]]


class CommitManager:
    """Talks to the coordinator about offsets.

    Args:
        group_id: whose offsets.
        coordinator: where to.
        metadata: which topics there are.
        stale: called with a topic that may be another one by now.
        place: returns the member's place in the group, None for a consumer that assigns by hand.
        fenced: called with the code by which the group refuses a member; returns False if the member is only between
            two generations.
        member_reads: whether committed offsets are asked for as a member, so that they are none of an older epoch
            (KIP-848).
        make_state: returns pauses for one conversation.
    """

    def __init__(
        self,
        group_id: str,
        *,
        coordinator: CoordinatorManager,
        metadata: Metadata,
        stale: Callable[[str], None],
        place: Callable[[], GroupMetadata | None],
        fenced: Callable[[int], bool],
        member_reads: bool = False,
        make_state: Callable[[], RequestState],
    ) -> None:
        self._group_id = group_id
        self._coordinator = coordinator
        self._metadata = metadata
        self._stale_topic = stale
        self._place = place
        self._fenced = fenced
        self._member_reads = member_reads
        self._make_state = make_state
        #: Those that are not under way, each with whether it was asked for as a member.
        self._commits: deque[tuple[Commit, bool]] = deque()
        self._under_way = 0
        #: Of commits that may be repeated.
        self._commit_state = make_state()
        self._fetches: list[tuple[Call, frozenset[TopicPartition], RequestState]] = []

    def commit(self, commit: Commit) -> None:
        """Commit offsets; the call is resolved with None."""
        if not commit.offsets:
            commit.call.resolve(None)
        else:
            self._commits.append((commit, self._place() is not None))

    def fetch(self, call: Call, partitions: frozenset[TopicPartition]) -> None:
        """Ask for committed offsets; the call is resolved with ``Committed``."""
        if not partitions:
            call.resolve({})
        else:
            self._fetches.append((call, partitions, self._make_state()))

    def refused(self, error: KafkaException) -> bool:
        """Fail whatever waits for a coordinator: we may not know it. Return whether anybody waited."""
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
        node = self._coordinator.need()
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
        """Let calls that may run out of time say that there is no coordinator."""
        error = self._coordinator.last_error
        if error is not None:
            for call in [commit.call for commit, _ in self._commits] + [one[0] for one in self._fetches]:
                call.last_error = error

    # -- committing --------------------------------------------------------------------------------------------------

    def _commit(self, node: int, commit: Commit, as_member: bool) -> Unsent | None:
        place = self._place()
        if place is None and as_member:
            # A group without members takes commits of anybody, but others may have been in it meanwhile.
            commit.call.fail(
                CommitFailedException(
                    f"{commit.call.what}: this consumer has left group {self._group_id!r}, so its partitions may be "
                    "others' already; commit before unsubscribe() and close()"
                )
            )
            return None
        if place is not None and place.generation < 0:
            commit.call.fail(
                CommitFailedException(
                    f"{commit.call.what}: this consumer is not in group {self._group_id!r} at present, so its "
                    "partitions may be others' already; poll() joins again"
                )
            )
            return None
        ids, gone = sort_out(commit.offsets, commit.found_in, self._metadata)
        offsets = {p: offset for p, offset in commit.offsets.items() if p not in gone}
        if not offsets:
            commit.call.fail(gone_error(commit.call.what, gone, commit.offsets))
            return None
        request = offset_commit(self._group_id, offsets, member=place, ids=ids)
        names = topic_names(ids)
        self._under_way += 1
        if commit.retry:
            self._commit_state.sent()

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            self._under_way -= 1
            if error is None:
                error = self._first_error(commit, place, message, names, gone)
            else:
                self._coordinator.lost(error)
            if self._committed(commit, error, now):
                self._commits.appendleft((commit, as_member))

        return Unsent(request, handle, node, GROUP_LANE)

    def _committed(self, commit: Commit, error: KafkaException | None, now: float) -> bool:
        """Take an outcome; return whether the commit is to be repeated."""
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
        gone = set(left_out)
        for topic in message.topics:
            name = topic.name or names.get(topic.topic_id, "")
            for answer in topic.partitions:
                code = answer.error_code
                if not code:
                    continue
                partition = TopicPartition(name, answer.partition_index)
                where = f"{commit.call.what}: {partition}"
                if code in _GONE and partition in commit.offsets:
                    # A coordinator may know of a new topic later than others: before this is repeated, the metadata
                    # decides whether it is gone.
                    self._stale_topic(name)
                    if commit.automatic or (partition in commit.found_in and not commit.retry):
                        # A topic that was deleted does not come back, and the group waits for us; the others may be
                        # refused for something that passes.
                        gone.add(partition)
                        continue
                self._coordinator.moved(code)
                if code == ErrorCode.STALE_MEMBER_EPOCH:
                    return self._stale(commit)
                if code == ErrorCode.REBALANCE_IN_PROGRESS or (code in _FENCED and not self._expelled(place, code)):
                    return RebalanceInProgressException(
                        f"{commit.call.what}: group {self._group_id!r} is rebalancing ({ErrorCode(code).name}); call "
                        "poll() and commit again what this consumer still has"
                    )
                if code in _FENCED:
                    return CommitFailedException(
                        f"{commit.call.what}: group {self._group_id!r} does not count this consumer as a member "
                        f"({ErrorCode(code).name}): it was silent or did not poll for too long, and its partitions "
                        "are others' now. Poll more often, take fewer records a time, or raise max.poll.interval.ms"
                    )
                return broker_error(code, where)
        return gone_error(commit.call.what, gone, commit.offsets) if gone else None

    def _expelled(self, place: GroupMetadata | None, code: int) -> bool:
        """Return whether the group expelled the member that has sent a commit; have it join again if so.

        A consumer that reads on during a rebalance (cooperative) may commit under a generation that has just ended.
        """
        now = self._place()
        if place is None or now is None or now.generation < 0:
            return True
        # With a group that is gone its members are forgotten.
        known = ErrorCode.UNKNOWN_MEMBER_ID if code == ErrorCode.GROUP_ID_NOT_FOUND else code
        return place == now and self._fenced(known)

    def _stale(self, commit: Commit) -> CommitFailedException:
        """The group is an epoch further: if we are still in it, a heartbeat brings it, and the commit is repeated."""
        error = CommitFailedException(
            f"{commit.call.what}: group {self._group_id!r} has given this consumer a newer epoch meanwhile "
            "(STALE_MEMBER_EPOCH); call poll() and commit again"
        )
        error.retriable = True
        return error

    # -- asking for committed offsets ----------------------------------------------------------------------------------

    def _fetch(self, node: int, call: Call, partitions: frozenset[TopicPartition], state: RequestState) -> Unsent:
        place = self._place() if self._member_reads else None
        member = place if place is not None and place.generation >= 0 else None
        ids = ids_by_topic(partitions, self._metadata)
        request = offset_fetch(self._group_id, partitions, stable=True, member=member, ids=ids)
        state.sent()

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            self._fetched((call, partitions, state), ids, message, error, now)

        return Unsent(request, handle, node, GROUP_LANE)

    def _fetched(
        self,
        fetch: tuple[Call, frozenset[TopicPartition], RequestState],
        ids: Mapping[str, uuid.UUID],
        message: Any,
        error: KafkaException | None,
        now: float,
    ) -> None:
        call, partitions, state = fetch
        found: Committed = {}
        if error is not None:
            self._coordinator.lost(error)
        else:
            group = message.groups[0]
            code = group.error_code
            names = {topic_id: name for name, topic_id in ids.items()}
            for topic in group.topics:
                name = topic.name or names.get(topic.topic_id, "")
                if name in ids and self._metadata.topic_id(name) != ids[name]:
                    # It was made again while we asked: the offset may be of either.
                    code = code or ErrorCode.UNKNOWN_TOPIC_ID
                for answer in topic.partitions:
                    code = code or answer.error_code
                    if answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                        self._stale_topic(name)
                    if answer.committed_offset >= 0:
                        partition = TopicPartition(name, answer.partition_index)
                        text = answer.metadata or ""
                        found[partition] = answer.committed_offset, answer.committed_leader_epoch, text
            self._coordinator.moved(code)
            if code:
                error = broker_error(code, call.what)
                # The next heartbeat brings our epoch, or that we have none.
                error.retriable = error.retriable or (self._member_reads and code in _OUTDATED)
        if error is None:
            state.succeeded()
            call.resolve({p: found[p] for p in partitions if p in found})
        elif error.retriable:
            call.last_error = error
            state.failed(now)
        else:
            call.fail(error)

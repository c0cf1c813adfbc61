"""What a broker remembers of our fetches, so that a request names only what has changed (KIP-227).

A session is a list of partitions, with where to read each, that broker and consumer keep alike. A full request (epoch
0) makes one; each further request has the next epoch and names what is new, changed or forgotten; the broker reads all
of the list, and answers with the partitions that have news. Whatever goes wrong, the way out is the same: a full
request.

A list of partitions that shrinks and grows with each request would make the session useless, and brokers would throw
whole sessions out of their cache (KAFKA-17182). So nothing leaves it because its data has not been consumed yet: see
the consumer's ``fetch_buffer`` for the rule that keeps the broker from sending such data twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import FetchRequest

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition

__all__ = ["CLOSING_EPOCH", "SESSIONS_SINCE", "Asked", "Change", "FetchSession", "by_name", "fetch_request"]

#: The first version of Fetch with sessions.
SESSIONS_SINCE: Final = 7

_LAST_VERSION_WITH_NAMES: Final = 12
_NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = (1 << 31) - 1
#: In a request: end the session. With session 0: make none.
CLOSING_EPOCH: Final = -1


class Asked(NamedTuple):
    """What a session says of a partition: where to read, under which leader epoch, how much at most."""

    offset: int
    leader_epoch: int
    max_bytes: int
    topic_id: uuid.UUID | None


class Change(NamedTuple):
    """What a request has to say.

    Attributes:
        session_id: 0 for a new one.
        epoch: 0 for a full request.
        asked: partitions to name.
        forgotten: partitions to take out, with the topic id they had.
    """

    session_id: int
    epoch: int
    asked: Mapping[TopicPartition, Asked]
    forgotten: Mapping[TopicPartition, Asked]


class FetchSession:
    """Our side of the session with one broker. One request at a time: ``change``, then ``answered`` or ``lost``."""

    def __init__(self) -> None:
        self.session_id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._partitions: dict[TopicPartition, Asked] = {}
        #: The mapping of the last call: the same object has not changed.
        self._given: Mapping[TopicPartition, Asked] | None = None
        #: True if topics are named by name, because an id is unknown. Then every request of the session must do so.
        self.by_name = False
        self._names: dict[uuid.UUID, str] = {}

    @property
    def names(self) -> Mapping[uuid.UUID, str]:
        """Names of the session's topics by id."""
        return self._names

    def change(self, wanted: Mapping[TopicPartition, Asked]) -> Change:
        """Make ``wanted`` the session's list, and return the difference to send. ``wanted`` must not change later."""
        known = self._partitions
        if wanted is self._given and self._epoch != _FIRST_EPOCH:
            return Change(self.session_id, self._epoch, {}, {})
        self._given = wanted
        before, self.by_name = self.by_name, by_name(wanted)
        if before != self.by_name:
            # A session names its topics all alike. Epoch 0 with the old id ends the old one.
            self._epoch = _FIRST_EPOCH
        self._partitions = dict(wanted)
        self._names = {asked.topic_id: p.topic for p, asked in wanted.items() if asked.topic_id is not None}
        if self._epoch == _FIRST_EPOCH:
            return Change(self.session_id, self._epoch, self._partitions, {})
        changed = {p: asked for p, asked in wanted.items() if known.get(p) != asked}
        # A topic made again has another id: the old one is forgotten, the new one added.
        forgotten = {p: asked for p, asked in known.items() if p not in wanted or wanted[p].topic_id != asked.topic_id}
        return Change(self.session_id, self._epoch, changed, forgotten)

    def answered(self, message: Any) -> bool:
        """Take an answer; return False if it refuses the request as a whole."""
        code = message.error_code
        if code:
            self._epoch = _FIRST_EPOCH
            if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = _NO_SESSION
            return False
        if self._epoch == _FIRST_EPOCH or message.session_id == _NO_SESSION:
            # No id: the broker has no room for a session, or has ended it. The next request tries again.
            self.session_id = message.session_id
            self._epoch = _FIRST_EPOCH if message.session_id == _NO_SESSION else 1
        elif message.session_id != self.session_id:
            self.lost()
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """Begin anew: an answer did not come, so the two lists may differ."""
        self._epoch = _FIRST_EPOCH


def by_name(asked: Mapping[TopicPartition, Asked]) -> bool:
    """Return whether a request must name topics by name, because the id of one is unknown."""
    return any(one.topic_id is None for one in asked.values())


def fetch_request(
    change: Change,
    *,
    by_name: bool,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    read_committed: bool,
    min_version: int,
    rack: str = "",
) -> Any:
    """Return a Fetch request that changes a session.

    Args:
        change: the difference to the session's list.
        by_name: see :attr:`FetchSession.by_name`.
        max_wait_ms: how long the broker may hold the request back.
        min_bytes: the broker answers earlier once it has this many bytes.
        max_bytes: the most bytes in the answer.
        read_committed: whether to leave out records of open and aborted transactions.
        min_version: the oldest acceptable version of the request.
        rack: ``client.rack``.
    """
    make = FetchRequest.FetchTopic
    topics: dict[tuple[str, uuid.UUID | None], list[Any]] = {}
    for partition, asked in change.asked.items():
        topics.setdefault((partition.topic, asked.topic_id), []).append(
            make.FetchPartition(
                partition=partition.partition,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.offset,
                partition_max_bytes=asked.max_bytes,
            )
        )
    forgotten: dict[tuple[str, uuid.UUID | None], list[int]] = {}
    for partition, asked in change.forgotten.items():
        forgotten.setdefault((partition.topic, asked.topic_id), []).append(partition.partition)
    versions = {"min_version": min_version}
    if by_name:
        versions["max_version"] = _LAST_VERSION_WITH_NAMES
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=1 if read_committed else 0,
        session_id=change.session_id,
        session_epoch=change.epoch,
        topics=[make(topic=name, topic_id=id_, partitions=parts) for (name, id_), parts in topics.items()],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(topic=name, topic_id=id_, partitions=parts)
            for (name, id_), parts in forgotten.items()
        ],
        rack_id=rack,
        **versions,
    )

"""Incremental fetch sessions, in which a request names only changed partitions (KIP-227).

A session is a list of partitions with fetch positions that broker and consumer keep in step. A full request (epoch 0)
creates it. Each further request carries the next epoch and names new, changed and forgotten partitions; the broker
reads all of the list and answers with the partitions that have news. After any failure the remedy is a full request.

A list that shrinks and grows with every request would make the session useless, and brokers would evict whole sessions
from their cache (KAFKA-17182). So a partition stays listed while its data has not been consumed: see the consumer's
``fetch_buffer`` for how the broker is kept from sending such data twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import FetchRequest
from sparkrelay.client.messages.per_topic import grouped

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition

#: The first versions of Fetch with read_committed, and with sessions.
READ_COMMITTED_SINCE: Final = 4
SESSIONS_SINCE: Final = 7
_LAST_VERSION_WITH_NAMES: Final = 12
_NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = (1 << 31) - 1
#: In a request: close the session. With session 0: create none.
CLOSING_EPOCH: Final = -1


class Asked(NamedTuple):
    """A session's entry for a partition."""

    offset: int
    leader_epoch: int
    max_bytes: int
    topic_id: uuid.UUID | None


class Change(NamedTuple):
    """The content of a request: session 0 creates one, epoch 0 is a full request."""

    session_id: int
    epoch: int
    asked: Mapping[TopicPartition, Asked]
    forgotten: Mapping[TopicPartition, Asked]


class FetchSession:
    """The client's side of a broker's session. One request at a time: ``change``, then ``answered`` or ``lost``."""

    def __init__(self) -> None:
        self.session_id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._partitions: dict[TopicPartition, Asked] = {}
        #: The mapping of the last call, recognized by identity.
        self._given: Mapping[TopicPartition, Asked] | None = None
        #: Whether topics go by name, because an id is unknown. All requests of a session must agree.
        self.by_name = False
        #: Topic names by id.
        self.names: Mapping[uuid.UUID, str] = {}

    def change(self, wanted: Mapping[TopicPartition, Asked]) -> Change:
        """Make ``wanted`` the session's list and return the difference to send. Do not change ``wanted`` afterwards."""
        known = self._partitions
        if wanted is self._given and self._epoch != _FIRST_EPOCH:
            return Change(self.session_id, self._epoch, {}, {})
        self._given = wanted
        before, self.by_name = self.by_name, by_name(wanted)
        if before != self.by_name:
            # Epoch 0 with the old id replaces the old session.
            self._epoch = _FIRST_EPOCH
        self._partitions = dict(wanted)
        self.names = {asked.topic_id: p.topic for p, asked in wanted.items() if asked.topic_id is not None}
        if self._epoch == _FIRST_EPOCH:
            return Change(self.session_id, self._epoch, self._partitions, {})
        changed = {p: asked for p, asked in wanted.items() if known.get(p) != asked}
        # A recreated topic has another id: the old one is forgotten, the new one added.
        forgotten = {p: asked for p, asked in known.items() if p not in wanted or wanted[p].topic_id != asked.topic_id}
        return Change(self.session_id, self._epoch, changed, forgotten)

    def answered(self, message: Any) -> bool:
        """Take an answer; return False if it rejects the whole request."""
        code = message.error_code
        if code:
            self._epoch = _FIRST_EPOCH
            if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = _NO_SESSION
            return False
        if self._epoch == _FIRST_EPOCH or message.session_id == _NO_SESSION:
            # No id: the broker's cache is full, or it ended the session. The next request tries again.
            self.session_id = message.session_id
            self._epoch = _FIRST_EPOCH if message.session_id == _NO_SESSION else 1
        elif message.session_id != self.session_id:
            self.lost()
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """Start over after a lost answer: the two lists may differ."""
        self._epoch = _FIRST_EPOCH


def by_name(asked: Mapping[TopicPartition, Asked]) -> bool:
    """Return whether a request must use topic names, because an id is unknown."""
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
    """Return a Fetch request for a session's change.

    The broker answers after ``max_wait_ms``, or once it has ``min_bytes``, with about ``max_bytes`` at most.
    ``min_version`` is the oldest acceptable version; ``rack`` is ``client.rack``.
    """
    make = FetchRequest.FetchTopic
    topics = grouped(
        (
            (partition.topic, asked.topic_id),
            make.FetchPartition(
                partition=partition.partition,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.offset,
                partition_max_bytes=asked.max_bytes,
            ),
        )
        for partition, asked in change.asked.items()
    )
    forgotten = grouped(((at.topic, asked.topic_id), at.partition) for at, asked in change.forgotten.items())
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

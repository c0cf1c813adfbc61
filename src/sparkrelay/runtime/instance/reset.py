"""Resetting an application: its offsets, internal topics and local state, all or nothing.

Like Kafka's StreamsResetter, with the additional steps that exactly-once needs. Local state and changelogs record the
input that they have seen, so neither may outlive the other or the group's offsets. No order of the steps is safe if an
instance starts in between: empty state would meet old offsets, or repartitioned records would be counted twice. So the
first step creates a marker topic, which stops every instance, and the last one deletes it. A killed reset leaves the
marker and is run again: every step can be repeated.

The marker is created before the last look at the group: an instance that joined earlier is seen, one that joins later
sees the marker. Suspended owners are fenced: one that wakes up could still commit its transaction.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from sparkrelay.client.admin import EARLIEST, LATEST, TopicSpec
from sparkrelay.client.transactions import TransactionCoordinator
from sparkrelay.errors import ConfigException, LockException, StreamsException, UnknownTopicException
from sparkrelay.runtime.contract.owners import writes_for
from sparkrelay.runtime.instance.stopped_group import TIMEOUT_S, StoppedGroup, require_application_id, require_stopped
from sparkrelay.runtime.topics.ownership import doubtful_topics
from sparkrelay.state.home.application_home import ApplicationHome, remove_state
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sized
    from pathlib import Path

    from sparkrelay.client.kafka_client import KafkaClient

#: Only for fencing: nothing is written in these transactions.
_TRANSACTION_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """A requested reset.

    Attributes:
        to: where to read its source topics from.
        topics: source topics to read again; None for all with offsets of the group.
        internal_topics: the application's own topics; None for all with such names.
        state_dir: the ``state.dir`` whose local state is removed; None keeps this host's state.
    """

    application_id: str
    to: Literal["earliest", "latest"] = "earliest"
    topics: tuple[str, ...] | None = None
    internal_topics: tuple[str, ...] | None = None
    state_dir: Path | None = None

    def __post_init__(self) -> None:
        require_application_id(self.application_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """What a reset would do, as of now.

    Attributes:
        members: members of the group, by member id and host.
        offsets: partition -> the group's offset before (None without one) and after.
        kept: offsets of topics that are not read again.
        forgotten: the group's partitions of internal topics.
        doubtful: internal topics that another application may own, with the reason.
        holders: slots held by running processes.
        begun: whether an earlier reset was interrupted.
    """

    members: tuple[str, ...]
    offsets: Mapping[TopicPartition, tuple[int | None, int]]
    kept: Mapping[TopicPartition, int]
    forgotten: frozenset[TopicPartition]
    internal_topics: tuple[str, ...]
    doubtful: Mapping[str, str]
    transactional_ids: tuple[str, ...]
    directories: tuple[Path, ...]
    holders: Mapping[Path, str]
    begun: bool

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to reset."""
        offsets = [at for at, (before, _) in self.offsets.items() if before is not None]
        rest = (self.members, offsets, self.kept, self.forgotten, self.internal_topics, self.directories)
        return not (any(rest) or self.begun)


class Resetter(StoppedGroup):
    """Inspects and resets an application. Used on the thread of its (bootstrapped) client."""

    def __init__(self, client: KafkaClient, request: ResetRequest, *, timeout: float = TIMEOUT_S) -> None:
        super().__init__(client, request.application_id, timeout=timeout)
        self._request = request
        #: The group's offset of the marker's only partition is the token of the newest reset.
        self._seal = TopicPartition(self._names.reset_marker, 0)
        self._token = secrets.randbelow(1 << 62)
        self._marker_id: dict[str, str] = {}
        self._transactions = TransactionCoordinator(client, timeout=timeout)
        self._home = None if request.state_dir is None else ApplicationHome.of(request.state_dir, self._id)

    def look(self) -> ResetPlan:
        """Return what would be done, without changing anything.

        Raises:
            StreamsException: the group is not an application's.
            UnknownTopicException: a named topic does not exist.
            ConfigException: a named topic is of the wrong kind.
        """
        members = self._members()
        topics = self._admin.list_topics()
        known = self._committed()
        internal = self._internal(topics, {at.topic for at in known})
        own = {at for at in known if at.topic in internal or self._is_deleted_repartition(at.topic, topics)}
        sources = self._sources(topics, {at.topic for at in known.keys() - own}, internal)
        begin = EARLIEST if self._request.to == "earliest" else LATEST
        partitions = {
            TopicPartition(topic, number): begin
            for topic, numbers in (self._admin.partitions(sources) if sources else {}).items()
            for number in numbers or ()
        }
        # Only decided records: "latest" must not skip an open transaction.
        ends = self._admin.list_offsets(partitions, read_committed=True) if partitions else {}
        return ResetPlan(
            members=members,
            offsets={at: (known.get(at), end) for at, end in sorted(ends.items())},
            kept={at: known[at] for at in sorted(known.keys() - own) if at.topic not in sources},
            forgotten=frozenset(own),
            internal_topics=internal,
            doubtful=self._doubtful(internal, {at.topic for at in known}),
            transactional_ids=tuple(self._transactional_ids()),
            directories=tuple(self._home.state()) if self._home is not None else (),
            holders=self._home.holders() if self._home is not None else {},
            begun=self._names.reset_marker in topics,
        )

    def require_possible(self, plan: ResetPlan) -> None:
        """Check that the plan can be carried out.

        Raises:
            StreamsException: instances run, or there is no such application.
            LockException: a process on this host uses the local state.
            ConfigException: it is unclear which topics are the application's own.
        """
        name = self._id
        require_stopped(name, plan.members)
        if plan.holders:
            holders = ", ".join(f"{slot} by {holder}" for slot, holder in plan.holders.items())
            raise LockException(f"application {name!r} runs on this host: {holders}. Stop it first")
        if plan.doubtful:
            topics = ", ".join(f"{topic} ({why})" for topic, why in sorted(plan.doubtful.items()))
            name_them = "Name" if self._home is not None else "Give --state-dir on a host with local state, or name"
            raise ConfigException(
                f"it is not clear whether these topics belong to application {name!r} or to another one: {topics}. "
                f"{name_them} its own ones out of these: --internal-topics {','.join(plan.internal_topics)}"
            )
        if plan.nothing:
            where = "" if self._home is None else f", and no local state in {self._home.path}"
            raise StreamsException(
                f"there is nothing to start over: this Kafka has no group and no internal topic of application "
                f"{name!r}{where}: is the application.id right?"
            )

    def carry_out(self, on_step: Callable[[str], object]) -> None:
        """Reset the application; ``on_step`` gets a description of each finished step.

        Raises:
            SparkRelayError: as :meth:`require_possible` and :meth:`look`, or the broker refuses a step.
        """
        self.require_possible(self.look())
        if self._home is None:
            self._carry_out(on_step)
            return
        with self._home.claimed():
            self._carry_out(on_step)

    def _carry_out(self, on_step: Callable[[str], object]) -> None:
        marker = self._seal.topic
        # Before the first step: a reset without this permission then changes nothing.
        self._application.delete_offsets([self._seal])
        made = self._admin.create_topics({marker: TopicSpec(1)}, exist_ok=True)
        self._marker_id = self._admin.await_topic_ids([marker], bool)
        plan = self.look()
        if plan.members:
            if made:
                self._admin.delete_topics([marker], missing_ok=True)
            self.require_possible(plan)
        self._application.set_offsets({self._seal: self._token})
        on_step(f"no instance starts from here on: made topic {marker}")
        self._require_alone()
        if plan.transactional_ids:
            self._transactions.init(plan.transactional_ids, transaction_timeout_ms=_TRANSACTION_MS)
        on_step(f"fenced {_count(plan.transactional_ids, 'transactional id')}")
        self._require_alone()
        # Before the local state, which a repeated reset may need to prove that the topics are the application's.
        if plan.internal_topics:
            self._admin.delete_topics(plan.internal_topics, missing_ok=True)
        on_step(f"deleted {_count(plan.internal_topics, 'internal topic')}")
        self._require_alone()
        for directory in plan.directories:
            remove_state(directory)
        on_step(f"removed {_count(plan.directories, 'local directory', 'local directories')}")
        self._require_alone()
        self._application.delete_offsets(plan.forgotten)
        self._application.set_offsets({at: then for at, (_, then) in plan.offsets.items()})
        on_step(f"set the offsets of {_count(plan.offsets, 'partition')}")
        self._require_alone()
        self._application.delete_offsets([self._seal])
        self._admin.delete_topics([marker], missing_ok=True)
        on_step(f"deleted topic {marker}: the application may be started")

    def _require_alone(self) -> None:
        """Check before a step that nobody else works on the application.

        The newest reset continues: its token replaces that of the others, which then end. So two resets never both take
        steps, and the marker is deleted by the one that took all of them.

        Raises:
            StreamsException: another reset has begun or ended since this one began, or an instance has joined.
        """
        name, marker = self._id, self._seal.topic
        if self._application.offsets().get(self._seal) != self._token or not self._marker_is_ours():
            raise StreamsException(
                f"another sparkrelay reset of application {name!r} was started, on this host or another one. This one "
                "stops here and leaves the rest to it; run it again once the other one has ended"
            )
        if members := self._members():
            raise StreamsException(
                f"an instance joined application {name!r} during the reset: {members[0]}. Stop it and run sparkrelay "
                f"reset again: until then topic {marker!r} prevents every instance from running"
            )

    def _marker_is_ours(self) -> bool:
        def ours(ids: Mapping[str, str]) -> bool:
            return ids == self._marker_id

        return ours(self._admin.await_topic_ids([self._seal.topic], ours))

    # -- what belongs to the application ----------------------------------------------------------------------------

    def _internal(self, topics: frozenset[str], known: set[str]) -> tuple[str, ...]:
        """Return the topics to delete; ``known`` are those with offsets of the group.

        The group never has offsets of its changelogs. A topic named like one, with offsets, is a source, such as a
        database's changes.
        """
        named = self._request.internal_topics
        if named is None:
            sources = {topic for topic in known if topic.endswith("-changelog")}.union(self._request.topics or ())
            return tuple(sorted(filter(self._names.is_internal, topics - sources)))
        for topic in named:
            if not topic.startswith(f"{self._id}-"):
                raise ConfigException(
                    f"--internal-topics: {topic!r} does not begin with {self._id + '-'!r}, so it is "
                    "not the application's own; leave it out, or name source topics with --topics"
                )
        # An interrupted reset may have deleted some.
        return tuple(sorted(set(named) & topics))

    def _is_deleted_repartition(self, topic: str, topics: frozenset[str]) -> bool:
        """Return whether an interrupted reset deleted a topic with offsets of the group."""
        return topic not in topics and self._names.is_internal(topic) and topic.endswith("-repartition")

    def _sources(self, topics: frozenset[str], read: set[str], internal: tuple[str, ...]) -> list[str]:
        if self._request.topics is None:
            return sorted(read & topics)
        for topic in self._request.topics:
            if topic in internal:
                raise ConfigException(f"--topics: {topic!r} is an internal topic; leave it out: a reset deletes it")
            if topic not in topics:
                known = ", ".join(sorted(read & topics)) or "none"
                raise UnknownTopicException(
                    f"--topics: topic {topic!r} does not exist. Topics that the group has read: {known}; without "
                    "--topics all of them are read again"
                )
        return sorted(set(self._request.topics))

    def _doubtful(self, internal: tuple[str, ...], known: set[str]) -> dict[str, str]:
        """Return topics whose names also fit another application's; ``known`` are those with offsets of the group."""
        if self._request.internal_topics is not None or not internal:
            return {}
        made = self._home.topics() if self._home is not None else {}
        ids = self._admin.topic_ids(sorted(made.keys() & set(internal)))
        proven = {topic for topic in internal if topic in known or (topic in ids and ids[topic] == made[topic])}
        groups = self._application.other_groups()
        return doubtful_topics(self._id, internal, groups=groups, proven=proven)

    def _transactional_ids(self) -> list[str]:
        return [id_ for id_ in self._application.transactional_ids() if writes_for(self._id, id_)]


def _count(things: Sized, one: str, many: str = "") -> str:
    number = len(things)
    return f"{number} {one if number == 1 else many or one + 's'}"

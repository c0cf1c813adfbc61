"""Starting an application over: its positions, its own topics, its local state, all or nothing.

After Kafka's StreamsResetter, with what exactly-once asks for besides. Local state and changelogs say which input they
have seen, so neither may outlive the other, nor the group's offsets. No order of the steps is safe when an instance
starts between two of them: empty state would meet old offsets, or repartitioned records be counted twice. So the first
step makes a topic that every instance refuses to run beside, and the last one deletes it. A reset that was killed
leaves it there, and is run again: every step may be repeated.

The topic is made before the group is looked at for the last time: who joined earlier is seen, who joins later sees it.
Owners that are stopped but not dead are fenced, or one that wakes up could still commit its transaction.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from sparkrelay.client.admin import EARLIEST, LATEST, Admin, TopicSpec
from sparkrelay.client.application_admin import ApplicationAdmin
from sparkrelay.client.transactions import TransactionCoordinator
from sparkrelay.errors import ConfigException, LockException, StreamsException, UnknownTopicException
from sparkrelay.runtime.contract.owners import writes_for
from sparkrelay.runtime.instance.stopped_group import members_of, require_application_id, require_stopped
from sparkrelay.runtime.topics.ownership import doubtful_topics
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.state.home.application_home import ApplicationHome, remove_state
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sized
    from pathlib import Path

    from sparkrelay.client.kafka_client import KafkaClient

__all__ = ["ResetPlan", "ResetRequest", "Resetter"]

_TIMEOUT_S: Final = 60.0
#: Only to fence: nothing is written under these transactions.
_TRANSACTION_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """What is asked for.

    Attributes:
        application_id: the application.
        to: where its source topics are to be read from.
        topics: source topics to be read anew; None for all that the group has offsets of.
        internal_topics: its own topics; None for all that are called as such topics are.
        state_dir: the ``state.dir`` whose local state goes; None leaves that of this host alone.
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
        members: who is in the group, by member id and host.
        offsets: partition -> the group's offset now (None if it has none) and then.
        kept: offsets of topics that are not to be read anew.
        forgotten: the group's offsets of internal topics.
        internal_topics: topics to be deleted.
        doubtful: of these, the ones that another application may own, with what speaks for that.
        transactional_ids: whose holders are fenced.
        directories: local state to be removed.
        holders: slots that living processes hold.
        begun: True if an earlier reset was interrupted.
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
        """True if there is nothing that could be started over."""
        offsets = [at for at, (before, _) in self.offsets.items() if before is not None]
        rest = (self.members, offsets, self.kept, self.forgotten, self.internal_topics, self.directories)
        return not (any(rest) or self.begun)


class Resetter:
    """Looks at an application and starts it over. Belongs to the client's thread.

    Args:
        client: must be bootstrapped.
        request: what is asked for.
    """

    def __init__(self, client: KafkaClient, request: ResetRequest, *, timeout: float = _TIMEOUT_S) -> None:
        self._request = request
        self._names = TopicNames(request.application_id)
        #: The group's offset of the marker's only partition is the number of the reset that was begun last.
        self._seal = TopicPartition(self._names.reset_marker, 0)
        self._token = secrets.randbelow(1 << 62)
        self._marker_id: dict[str, str] = {}
        self._admin = Admin(client, timeout=timeout)
        self._application = ApplicationAdmin(client, request.application_id, timeout=timeout)
        self._transactions = TransactionCoordinator(client, timeout=timeout)
        self._home = (
            None if request.state_dir is None else ApplicationHome.of(request.state_dir, request.application_id)
        )

    def look(self) -> ResetPlan:
        """Return what would be done; changes nothing.

        Raises:
            StreamsException: the group is not one of an application.
            UnknownTopicException: a topic that was named does not exist.
            ConfigException: a topic that was named is of the wrong kind.
        """
        members = members_of(self._admin, self._request.application_id)
        topics = self._admin.list_topics()
        known = {at: offset for at, offset in self._application.offsets().items() if at.topic != self._seal.topic}
        internal = self._internal(topics, {at.topic for at in known})
        own = {at for at in known if at.topic in internal or self._is_deleted_repartition(at.topic, topics)}
        sources = self._sources(topics, {at.topic for at in known.keys() - own}, internal)
        begin = EARLIEST if self._request.to == "earliest" else LATEST
        partitions = {
            TopicPartition(topic, number): begin
            for topic, numbers in (self._admin.partitions(sources) if sources else {}).items()
            for number in numbers or ()
        }
        # What is read again is what is decided: an open transaction of somebody else is not skipped over.
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
        """Refuse what must not or need not be done.

        Raises:
            StreamsException: instances run, or there is no such application.
            LockException: a process of this host uses the local state.
            ConfigException: it is not clear which topics are the application's own.
        """
        name = self._request.application_id
        require_stopped(name, plan.members)
        if plan.holders:
            holders = ", ".join(f"{slot} by {holder}" for slot, holder in plan.holders.items())
            raise LockException(f"application {name!r} runs on this host: {holders}. Stop it first")
        if plan.doubtful:
            topics = ", ".join(f"{topic} ({why})" for topic, why in sorted(plan.doubtful.items()))
            name_them = "Name" if self._home is not None else "Give --state-dir on a host with local state; or name"
            raise ConfigException(
                f"it is not clear whether these topics are of application {name!r} or of another: {topics}. "
                f"{name_them} its own ones, out of all that were found: "
                f"--internal-topics {','.join(plan.internal_topics)}"
            )
        if plan.nothing:
            where = "" if self._home is None else f", and no local state in {self._home.path}"
            raise StreamsException(
                f"there is nothing to start over: no group and no internal topic of application {name!r} on this "
                f"Kafka{where}; is the application.id right"
            )

    def carry_out(self, on_step: Callable[[str], object]) -> None:
        """Start the application over; ``on_step`` is called after each step with what it did.

        Raises:
            SparkRelayError: as :meth:`require_possible` and :meth:`look`, and what the broker refuses.
        """
        self.require_possible(self.look())
        if self._home is None:
            self._carry_out(on_step)
            return
        with self._home.claimed():
            self._carry_out(on_step)

    def _carry_out(self, on_step: Callable[[str], object]) -> None:
        marker = self._seal.topic
        # Before the first step, so that a reset without this permission changes nothing.
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
        # Before the local state, which may be what proves whose they are when an interrupted reset is run again.
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
        """Make sure, before a step, that nobody else works on the application.

        Whoever begins last goes on: it leaves its number with the group, and who finds another there ends. So two that
        run at once never both take steps, and the marker is deleted by the one that has taken all of them.

        Raises:
            StreamsException: another reset has begun, or ended, since this one did; or an instance has joined.
        """
        name, marker = self._request.application_id, self._seal.topic
        if self._application.offsets().get(self._seal) != self._token or not self._marker_is_ours():
            raise StreamsException(
                f"another sparkrelay reset of application {name!r} was begun while this one was under way, on this "
                "host or another. This one ends here and leaves the rest to it; run it again once the other has ended"
            )
        if members := members_of(self._admin, name):
            raise StreamsException(
                f"an instance joined application {name!r} while it was being started over: {members[0]}. "
                f"Stop it and run sparkrelay reset again: until then topic {marker!r} "
                "keeps every instance from running"
            )

    def _marker_is_ours(self) -> bool:
        def ours(ids: Mapping[str, str]) -> bool:
            return ids == self._marker_id

        return ours(self._admin.await_topic_ids([self._seal.topic], ours))

    # -- what belongs to it -----------------------------------------------------------------------------------------

    def _internal(self, topics: frozenset[str], known: set[str]) -> tuple[str, ...]:
        """Return the topics to delete; ``known`` are those that the group has offsets of.

        It never has any of a changelog. So one with that name and offsets is a source, such as a database's changes.
        """
        named = self._request.internal_topics
        if named is None:
            sources = {topic for topic in known if topic.endswith("-changelog")}.union(self._request.topics or ())
            return tuple(sorted(filter(self._names.is_internal, topics - sources)))
        for topic in named:
            if not topic.startswith(f"{self._request.application_id}-"):
                raise ConfigException(
                    f"--internal-topics: {topic!r} does not begin with {self._names.application_id + '-'!r}, so it is "
                    "not the application's own; leave it out, or name source topics by --topics"
                )
        # One that is gone was deleted by a reset that was interrupted.
        return tuple(sorted(set(named) & topics))

    def _is_deleted_repartition(self, topic: str, topics: frozenset[str]) -> bool:
        """Return whether an interrupted reset has deleted a topic of which the group still has offsets."""
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
                    "--topics all of them are read anew"
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
        return doubtful_topics(self._request.application_id, internal, groups=groups, proven=proven)

    def _transactional_ids(self) -> list[str]:
        return [id_ for id_ in self._application.transactional_ids() if writes_for(self._request.application_id, id_)]


def _count(things: Sized, one: str, many: str = "") -> str:
    number = len(things)
    return f"{number} {one if number == 1 else many or one + 's'}"

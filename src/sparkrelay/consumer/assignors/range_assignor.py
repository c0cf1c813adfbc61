"""The stateless assignors ``range`` and ``roundrobin``, with exactly the results of Kafka's.

Any client may lead a group, so these two give the same result as Java's: a leader that is replaced by another client's
member must not shuffle the partitions. ``range`` gives each member consecutive partitions of every topic, so that equal
partitions of topics with equal counts meet in one member. Where members and brokers name racks, each member first gets
partitions of its own rack, as far as that permits (KIP-881). ``roundrobin`` deals out the partitions of all topics one
by one.

Static members (KIP-345) come first, in the order of their names, so that a restart under another member id changes
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.client.messages.per_topic import grouped
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.consumer.base.assignor import ClusterView, MemberSubscription


class _Forgetful:
    """An assignor without user data."""

    supports_cooperative = False

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """Return nothing."""
        del topics
        return b""

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Do nothing."""


class RangeAssignor(_Forgetful):
    """Kafka's ``range``; eager: all partitions are given up before a rebalance."""

    name = "range"

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Divide each topic separately."""
        ranked = _ranked(members)
        shares = [
            _Share(topic, cluster, [m for m in ranked if topic in members[m].topics], members)
            for topic in sorted(cluster.partitions)
        ]
        if any(share.rack_aware for share in shares):
            _match_racks(shares)
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for share in shares:
            share.deal(lambda _member, _partition: True)
            for member, partitions in share.given.items():
                given[member] += sorted(TopicPartition(share.topic, p) for p in partitions)
        return {member: MemberAssignment(tuple(parts)) for member, parts in given.items()}


class RoundRobinAssignor(_Forgetful):
    """Kafka's ``roundrobin``; eager."""

    name = "roundrobin"

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Deal out the partitions; members that do not read a topic are skipped."""
        ranked = _ranked(members)
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        wanted = frozenset[str]().union(*(s.topics for s in members.values()))
        at = 0
        for topic in sorted(wanted & cluster.partitions.keys()):
            for partition in cluster.partitions[topic]:
                while topic not in members[ranked[at % len(ranked)]].topics:
                    at += 1
                given[ranked[at % len(ranked)]].append(TopicPartition(topic, partition))
                at += 1
        return {member: MemberAssignment(tuple(parts)) for member, parts in given.items()}


def rack_aware(racks: Iterable[str | None], partitions: Sequence[frozenset[str]]) -> bool:
    """Return whether racks matter: some member's rack has replicas, but not of every partition.

    ``racks`` are the members', None or empty if unknown; ``partitions`` are the racks that hold a copy of each
    partition.
    """
    members = {rack for rack in racks if rack}
    everywhere = frozenset[str]().union(*partitions)
    return not members.isdisjoint(everywhere) and any(here != everywhere for here in partitions)


def _ranked(members: Mapping[str, MemberSubscription]) -> list[str]:
    def rank(member: str) -> tuple[bool, str]:
        instance = members[member].group_instance_id
        return (True, member) if instance is None else (False, instance)

    return sorted(members, key=rank)


class _Share:
    """The division of one topic among its readers."""

    def __init__(
        self, topic: str, cluster: ClusterView, takers: list[str], members: Mapping[str, MemberSubscription]
    ) -> None:
        self.topic = topic
        #: Rack by member; None if unknown.
        self.takers = {member: members[member].rack or None for member in takers}
        self.partitions = cluster.partitions[topic]
        self.given: dict[str, list[int]] = {member: [] for member in takers}
        self._left = dict.fromkeys(self.partitions)
        self._least, self._longer = divmod(len(self.partitions), len(takers)) if takers else (0, 0)
        self._racks = {p: cluster.racks.get(TopicPartition(topic, p), frozenset()) for p in self.partitions}
        self.rack_aware = rack_aware(self.takers.values(), list(self._racks.values()))

    @property
    def alike(self) -> tuple[tuple[tuple[str, str], ...], int]:
        """What topics have in common whose equal partitions are to meet: their readers' racks, and their number."""
        return tuple((member, rack or "") for member, rack in self.takers.items()), len(self.partitions)

    def room(self, member: str) -> int:
        """Return how many more partitions a member may take."""
        return max(0, self._least + (self._longer > 0) - len(self.given[member]))

    def near(self, member: str, partition: int) -> bool:
        """Return whether a partition has a copy in the member's rack, or the member has none."""
        rack = self.takers[member]
        return rack is None or rack in self._racks.get(partition, ())

    def give(self, member: str, partitions: Sequence[int]) -> None:
        """Give partitions to a member."""
        self.given[member] += partitions
        if len(self.given[member]) > self._least:
            self._longer -= 1
        for partition in partitions:
            del self._left[partition]

    def deal(self, may: Callable[[str, int], bool]) -> None:
        """Give each member in turn as many of the first remaining partitions as it has room for."""
        for member in self.takers:
            if not self._left:
                return
            run = [p for p in self._left if may(member, p)][: self.room(member)]
            if run:
                self.give(member, run)


def _match_racks(shares: list[_Share]) -> None:
    """Give members near partitions; topics that are alike are divided together, partition by partition."""
    for together in grouped((share.alike, share) for share in shares if any(share.takers.values())).values():
        if len(together) == 1:
            if together[0].rack_aware:
                together[0].deal(together[0].near)
            continue
        takers = list(together[0].takers)
        for partition in together[0].partitions:
            for member in takers:
                if all(share.near(member, partition) and share.room(member) for share in together):
                    for share in together:
                        share.give(member, [partition])
                    if not any(share.room(member) for share in together):
                        takers.remove(member)
                    break

"""The built-in client-side assignors, by the names that other clients give them: ``range`` and ``cooperative-sticky``.

``range`` gives each member a run of neighbouring partitions of every topic, so that equal partitions of topics with
equal counts meet in one member. ``cooperative-sticky`` balances the number of partitions, keeps what it can where it
is, and never gives a partition to a member before its holder has let go of it (KIP-429).
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from sparkrelay.consumer.assignor import MemberAssignment
from sparkrelay.errors import ConfigException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.consumer.assignor import ClusterView, GroupMetadata, MemberSubscription, PartitionAssignor

__all__ = ["CooperativeStickyAssignor", "RangeAssignor", "built_in"]


class _Plain:
    """What assignors without bytes of their own say and hear: nothing."""

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """Return nothing."""
        del topics
        return b""

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Do nothing."""


class RangeAssignor(_Plain):
    """See the module; eager: all partitions are given up before a rebalance."""

    name = "range"
    supports_cooperative = False

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Share out each topic for itself; members in the order of their static names, then ids."""
        given: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for topic, partitions in cluster.partitions.items():
            takers = [m for m in sorted(members, key=lambda m: _order(m, members[m])) if topic in members[m].topics]
            if not takers:
                continue
            share, more = divmod(len(partitions), len(takers))
            start = 0
            for index, member in enumerate(takers):
                count = share + (index < more)
                given[member] += [TopicPartition(topic, p) for p in partitions[start : start + count]]
                start += count
        return {member: MemberAssignment(tuple(parts)) for member, parts in given.items()}


class CooperativeStickyAssignor(_Plain):
    """See the module."""

    name = "cooperative-sticky"
    supports_cooperative = True

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Balance; partitions that must change hands go to nobody until their holder has given them up."""
        everything = [TopicPartition(topic, p) for topic, parts in cluster.partitions.items() for p in parts]
        holders = _holders(everything, members)
        given = _balanced(everything, holders, members)
        return {
            member: MemberAssignment(tuple(sorted(p for p in parts if holders.get(p, member) == member)))
            for member, parts in given.items()
        }


def _order(member: str, subscription: MemberSubscription) -> tuple[bool, str]:
    instance = subscription.group_instance_id
    return instance is None, instance if instance is not None else member


def _holders(
    partitions: Iterable[TopicPartition], members: Mapping[str, MemberSubscription]
) -> dict[TopicPartition, str]:
    """Return who holds what. If two say so, the one with the newer generation is right; if equal, neither is."""
    existing = set(partitions)
    holders: dict[TopicPartition, str] = {}
    newest: dict[TopicPartition, int] = {}
    disputed: set[TopicPartition] = set()
    for member in sorted(members):
        subscription = members[member]
        for partition in subscription.owned_partitions & existing:
            if partition.topic not in subscription.topics:
                continue
            known = newest.get(partition)
            if known is not None and known == subscription.generation:
                disputed.add(partition)
            elif known is None or known < subscription.generation:
                disputed.discard(partition)
                holders[partition], newest[partition] = member, subscription.generation
    return {p: m for p, m in holders.items() if p not in disputed}


def _balanced(
    partitions: list[TopicPartition], holders: Mapping[TopicPartition, str], members: Mapping[str, MemberSubscription]
) -> dict[str, set[TopicPartition]]:
    """Return who should hold what: as even as subscriptions allow, moving as little as possible."""
    takers = {
        topic: [m for m in sorted(members) if topic in members[m].topics] for topic in {p.topic for p in partitions}
    }
    given: dict[str, set[TopicPartition]] = {member: set() for member in members}
    for partition, member in holders.items():
        given[member].add(partition)
    # Those that few can take first, so that others are left for whoever is free.
    loose = sorted(
        (p for p in partitions if p not in holders and takers[p.topic]), key=lambda p: (len(takers[p.topic]), p)
    )
    for partition in loose:
        given[min(takers[partition.topic], key=lambda m: (len(given[m]), m))].add(partition)
    _even_out(given, takers)
    return given


def _even_out(given: dict[str, set[TopicPartition]], takers: Mapping[str, list[str]]) -> None:
    """Move partitions from the fullest member to the emptiest that may take one, while that makes them more even."""
    queue = [(-len(parts), member) for member, parts in given.items()]
    heapq.heapify(queue)
    while queue:
        size, member = heapq.heappop(queue)
        if -size != len(given[member]):
            continue  # an older entry
        moved = False
        for partition in sorted(given[member], reverse=True):
            target = min(takers[partition.topic], key=lambda m: (len(given[m]), m))
            if len(given[target]) + 1 < len(given[member]):
                given[member].remove(partition)
                given[target].add(partition)
                heapq.heappush(queue, (-len(given[member]), member))
                heapq.heappush(queue, (-len(given[target]), target))
                moved = True
                break
        if not moved:
            continue


_BUILT_IN: Final = {kind.name: kind for kind in (RangeAssignor, CooperativeStickyAssignor)}


def built_in(names: Iterable[str]) -> tuple[PartitionAssignor, ...]:
    """Return assignors by name.

    Raises:
        ConfigException: there is none of that name.
    """
    found: list[PartitionAssignor] = []
    for name in names:
        if name not in _BUILT_IN:
            raise ConfigException(
                f"partition.assignment.strategy={name!r} is none of {', '.join(_BUILT_IN)}; pass assignors of your own "
                "as Consumer(config, assignors=...)"
            )
        found.append(_BUILT_IN[name]())
    if not found:
        raise ConfigException(f"partition.assignment.strategy is empty; give one of {', '.join(_BUILT_IN)}")
    return tuple(found)

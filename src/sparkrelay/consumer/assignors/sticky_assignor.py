"""The stateful assignors ``sticky`` and ``cooperative-sticky``, which move as few partitions as possible.

Both use ``sticky_balance``; they differ in how members report their partitions. Under ``sticky`` a member gives up
everything before it joins, so it sends the leader its last assignment in user data: topics, partitions and the
generation, in the layout of Java's StickyAssignor. Under ``cooperative-sticky`` it reports its present partitions and
their generation in fields of the subscription (KIP-792); older clients put the generation in user data only, Java as
one number, librdkafka in the layout of ``sticky``. All of these are read, and Java's is written.

``cooperative-sticky`` never gives a partition to a member before its holder has given it up (KIP-429).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from sparkrelay.client.messages.per_topic import grouped
from sparkrelay.consumer.assignors.sticky_balance import balanced
from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.consumer.base.assignor import ClusterView, MemberSubscription

_UNKNOWN: Final = -1
_INT: Final = struct.Struct(">i")


class Claim(NamedTuple):
    """The partitions that a member claims, and their generation; -1 if unknown."""

    partitions: frozenset[TopicPartition] = frozenset()
    generation: int = _UNKNOWN


class StickyAssignor:
    """Kafka's ``sticky``; eager: all partitions are given up before a rebalance, and most return."""

    name = "sticky"
    supports_cooperative = False

    def __init__(self) -> None:
        self._last: Claim | None = None

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """Return the last assignment."""
        del topics
        return b"" if self._last is None else encode_claim(self._last)

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Remember it."""
        self._last = Claim(frozenset(assignment.partitions), metadata.generation)

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Balance, moving as little as possible."""
        claims = {member: decode_claim(subscription.user_data) for member, subscription in members.items()}
        given = balanced(cluster, _holders(cluster, claims, members), members)
        return {member: MemberAssignment(tuple(sorted(parts))) for member, parts in given.items()}


class CooperativeStickyAssignor:
    """Kafka's ``cooperative-sticky``."""

    name = "cooperative-sticky"
    supports_cooperative = True

    def __init__(self) -> None:
        self._generation = _UNKNOWN

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """Return the generation of the last assignment, for leaders that look for it here."""
        del topics
        return _INT.pack(self._generation)

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Remember its generation."""
        del assignment
        self._generation = metadata.generation

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Balance; partitions that must move are given to nobody until all claimants have given them up."""
        claims = {member: Claim(s.owned_partitions, _since(s)) for member, s in members.items()}
        holders = _holders(cluster, claims, members)
        claimed = {partition for claim in claims.values() for partition in claim.partitions}
        given = balanced(cluster, holders, members)
        return {
            member: MemberAssignment(tuple(sorted(p for p in parts if p not in claimed or holders.get(p) == member)))
            for member, parts in given.items()
        }


def encode_claim(claim: Claim) -> bytes:
    """Encode a claim as Java's StickyAssignor does (version 1)."""
    topics = grouped(sorted(claim.partitions))
    parts = [_INT.pack(len(topics))]
    for topic, partitions in topics.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si{len(partitions)}i", len(name), name, len(partitions), *partitions))
    parts.append(_INT.pack(claim.generation))
    return b"".join(parts)


def decode_claim(data: bytes) -> Claim:
    """Decode a claim, with or without a generation. Unreadable bytes claim nothing, as in Java."""
    try:
        (topics,), at = _INT.unpack_from(data), _INT.size
        partitions: set[TopicPartition] = set()
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", data, at)
            topic = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (count,) = _INT.unpack_from(data, at)
            if length < 0 or count < 0:
                return Claim()
            numbers = struct.unpack_from(f">{count}i", data, at + _INT.size)
            at += _INT.size * (1 + count)
            partitions.update(TopicPartition(topic, number) for number in numbers)
    except (struct.error, UnicodeDecodeError):
        return Claim()
    generation = _INT.unpack_from(data, at)[0] if len(data) >= at + _INT.size else _UNKNOWN
    return Claim(frozenset(partitions), generation)


def _since(subscription: MemberSubscription) -> int:
    """Return the generation in which a member got its partitions."""
    if subscription.generation >= 0:
        return subscription.generation
    if len(subscription.user_data) == _INT.size:
        return int(_INT.unpack(subscription.user_data)[0])
    return decode_claim(subscription.user_data).generation


def _holders(
    cluster: ClusterView, claims: Mapping[str, Claim], members: Mapping[str, MemberSubscription]
) -> dict[TopicPartition, str]:
    """Return the holder of each partition. Of two claims the newer generation wins; with equal ones nobody does."""
    existing = {TopicPartition(topic, p) for topic, parts in cluster.partitions.items() for p in parts}
    holders: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    for member in sorted(claims):
        generation = claims[member].generation
        for partition in claims[member].partitions & existing:
            if partition.topic not in members[member].topics:
                continue
            rival = holders.get(partition)
            if rival is None or claims[rival].generation < generation:
                disputed.discard(partition)
                holders[partition] = member
            elif claims[rival].generation == generation:
                disputed.add(partition)
    return {p: m for p, m in holders.items() if p not in disputed}

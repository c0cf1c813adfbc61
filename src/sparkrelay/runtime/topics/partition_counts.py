"""How many partitions each topic of a topology has, or is to have. Pure.

A repartition topic has as many as the widest of the topics that it is written from; one whose stream looks into a table
has as many as the table's topic, and those of two streams that are joined have equally many, so that both sides of a
key are in one task (co-partitioning).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.errors import MissingSourceTopicException, StreamsException
from sparkrelay.operators.stream_join.step import StreamJoin
from sparkrelay.topology import TableJoin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg, Lookup, Topology

__all__ = ["absent", "count_partitions", "missing"]


def count_partitions(topology: Topology, names: TopicNames, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the partition count of every topic that is read, and of every repartition topic.

    Args:
        topology: what to run.
        names: Kafka's names of its topics.
        partitions: partition count of every topic that exists.

    Raises:
        MissingSourceTopicException: a source topic does not exist.
        StreamsException: two streams that are joined, or a stream and a table, have topics with other counts.
    """
    for leg in topology.global_tables:
        for topic in leg.source.topics:
            if not partitions.get(topic):
                others = absent(topology, partitions)
                raise MissingSourceTopicException(missing(f"topic {topic!r} of a global table", topic, others))
    counts: dict[str, int] = {}
    for leg in topology.legs:
        for topic in () if leg.source.internal else leg.source.topics:
            found = partitions.get(topic)
            if not found:
                others = absent(topology, partitions)
                raise MissingSourceTopicException(missing(f"source topic {topic!r}", topic, others))
            counts[topic] = found
    exact: dict[str, int] = {}
    tied = _tied(topology, names)
    # Each round says of more topics how many they have, or is the last one.
    while True:
        counts |= _internal(topology, names, counts, exact)
        said = dict(exact)
        for group in tied:
            given = {topic: counts[topic] for topic in group.topics if topic not in group.ours}
            wanted = set(given.values()) or {max(counts[topic] for topic in group.topics)}
            if len(wanted) > 1:
                raise StreamsException(_apart(group, given))
            said |= dict.fromkeys(group.ours, wanted.pop())
        if said == exact:
            return counts
        exact = said


def absent(topology: Topology, partitions: Mapping[str, int]) -> list[str]:
    """Return the topics that a user has to create and has not."""
    read = (topic for leg in topology.legs if not leg.source.internal for topic in leg.source.topics)
    looked_up = (topic for leg in topology.global_tables for topic in leg.source.topics)
    written = (leg.sink.topic for leg in topology.legs if leg.sink is not None and not leg.sink.internal)
    return [topic for topic in dict.fromkeys([*read, *looked_up, *written]) if not partitions.get(topic)]


def missing(what: str, topic: str, absent: Sequence[str] = ()) -> str:
    """Return what to say of a topic that does not exist, and of others that do not."""
    others = [other for other in absent if other != topic]
    more = f", nor {'do' if others[1:] else 'does'} {', '.join(map(repr, others))}" if others else ""
    return (
        f"{what} does not exist{more}; create {'them' if others else 'it'} (kafka-topics.sh --create --topic {topic} "
        f"..., or on the development Kafka sparkrelay broker create-topic {topic}) and start again"
    )


def _internal(
    topology: Topology, names: TopicNames, counts: Mapping[str, int], exact: Mapping[str, int]
) -> dict[str, int]:
    """Return the counts of repartition topics; of some it is known already."""
    found = dict(counts)
    width: dict[int, int] = {}
    internal: dict[str, int] = {}
    # A subtopology is as wide as its widest topic, and what it writes as wide as it is: until nothing grows.
    for _ in range(len(topology.legs) + 1):
        for leg in topology.upstream_first:
            read = (found.get(names(topic, leg.source.internal), 0) for topic in leg.source.topics)
            width[leg.subtopology] = max(width.get(leg.subtopology, 0), *read)
        for leg in topology.upstream_first:
            if leg.sink is not None and leg.sink.internal:
                name = names(leg.sink.topic, internal=True)
                count = leg.sink.partitions or width[leg.subtopology]
                internal[name] = found[name] = exact.get(name) or max(internal.get(name, 0), count)
    return internal


@dataclass(slots=True)
class _Tied:
    """Topics that must have equally many partitions, because streams and tables of theirs are joined.

    Attributes:
        topics: Kafka's names.
        ours: those of them that are repartition topics of which the user has not said how wide they are.
        joins: what ties them.
    """

    topics: set[str]
    ours: set[str]
    joins: list[Lookup | StreamJoin | TableJoin]


def _tied(topology: Topology, names: TopicNames) -> list[_Tied]:
    """Return the groups of topics that joins tie together, directly or through others."""
    groups: list[_Tied] = []
    for join, readers in _joins(topology):
        new = _Tied(set(), set(), [join])
        for reader in readers:
            read = {names(topic, reader.source.internal) for topic in reader.source.topics}
            new.topics |= read
            new.ours |= read if _ours_to_say(topology, reader) else set()
        for group in [group for group in groups if not group.topics.isdisjoint(new.topics)]:
            groups.remove(group)
            new = _Tied(group.topics | new.topics, group.ours | new.ours, [*group.joins, *new.joins])
        groups.append(new)
    return groups


def _joins(topology: Topology) -> Iterator[tuple[Lookup | StreamJoin | TableJoin, list[Leg]]]:
    """Yield each join whose sides must be in one task, with the legs that read them."""
    keepers = {leg.aggregation.store: leg for leg in topology.legs if leg.aggregation is not None}
    for leg in topology.legs:
        yield from ((lookup, [leg, keepers[lookup.store]]) for lookup in leg.lookups if not lookup.is_global)
    for leg in topology.legs:
        if leg.table_join is not None:
            yield leg.table_join, [keepers[store] for store in leg.table_join.stores]
        if leg.aggregation is not None and (foreign := leg.aggregation.answers) is not None:
            yield foreign, [leg, *(keepers[store] for store in foreign.referencing_stores)]
    joins = {leg.join.store: leg.join for leg in topology.legs if leg.join is not None}
    for store, join in joins.items():
        yield join, [leg for leg in topology.legs if leg.join is not None and leg.store == store]


def _ours_to_say(topology: Topology, reader: Leg) -> bool:
    """Return whether the topics of a leg are repartition topics of which the user has not said how wide they are."""
    return reader.source.internal and not any(
        leg.sink is not None and leg.sink.internal and leg.sink.partitions and leg.sink.topic in reader.source.topics
        for leg in topology.legs
    )


def _apart(group: _Tied, given: Mapping[str, int]) -> str:
    join = group.joins[-1]
    found = ", ".join(f"{topic!r} has {count}" for topic, count in sorted(given.items()))
    sides, where = "a stream and the table that it looks into", "before the join or before to_table()"
    if isinstance(join, StreamJoin):
        sides, where = "two streams that are joined", "before the join"
    elif isinstance(join, TableJoin):
        sides, where = "tables that are joined", "before to_table(), or make one by to_stream()"
    columns = ", ".join(f'"{column}"' for column in join.columns)
    return (
        f"{join.call_site}: {join.text}: {sides} must have equally many partitions, or a key is in another task than "
        f"its row: {found}. Put repartition({columns}), without partitions=, {where}, which makes a topic that fits, "
        "or give the topics equally many partitions"
    )

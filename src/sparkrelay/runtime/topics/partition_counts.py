"""Partition counts of a topology's topics. Pure.

A repartition topic is as wide as the widest topic that it is written from. If its stream looks rows up in a table, or
joins another stream, it is as wide as that one's topic, so that both sides of a key are in one task (co-partitioning).
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


def count_partitions(topology: Topology, names: TopicNames, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the partition counts of all topics that are read, and of all repartition topics.

    ``partitions`` has the counts of existing topics.

    Raises:
        MissingSourceTopicException: a source topic does not exist.
        StreamsException: topics of joined streams or tables have different counts.
    """
    global_topics = [topic for leg in topology.global_tables for topic in leg.source.topics]
    sources = [topic for leg in topology.legs if not leg.source.internal for topic in leg.source.topics]
    for what, topics in ("topic {!r} of a global table", global_topics), ("source topic {!r}", sources):
        for topic in topics:
            if not partitions.get(topic):
                others = absent(topology, partitions)
                raise MissingSourceTopicException(missing(what.format(topic), topic, others))
    counts = {topic: partitions[topic] for topic in sources}
    exact: dict[str, int] = {}
    tied = _tied(topology, names)
    # Each round determines more topics, or is the last one.
    while True:
        counts |= _internal(topology, names, counts, exact)
        determined = dict(exact)
        for group in tied:
            given = {topic: counts[topic] for topic in group.topics if topic not in group.ours}
            wanted = set(given.values()) or {max(counts[topic] for topic in group.topics)}
            if len(wanted) > 1:
                raise StreamsException(_apart(group, given))
            determined |= dict.fromkeys(group.ours, wanted.pop())
        if determined == exact:
            return counts
        exact = determined


def absent(topology: Topology, partitions: Mapping[str, int]) -> list[str]:
    """Return the topics that the user must still create."""
    read = (topic for leg in topology.legs if not leg.source.internal for topic in leg.source.topics)
    looked_up = (topic for leg in topology.global_tables for topic in leg.source.topics)
    written = (leg.sink.topic for leg in topology.legs if leg.sink is not None and not leg.sink.internal)
    return [topic for topic in dict.fromkeys([*read, *looked_up, *written]) if not partitions.get(topic)]


def missing(what: str, topic: str, absent: Sequence[str] = ()) -> str:
    """Return the message for a topic that does not exist, naming the other ``absent`` ones."""
    others = [other for other in absent if other != topic]
    more = f", nor {'do' if others[1:] else 'does'} {', '.join(map(repr, others))}" if others else ""
    return (
        f"{what} does not exist{more}; create {'them' if others else 'it'} (kafka-topics.sh --create --topic {topic} "
        f"..., or on the development Kafka sparkrelay broker create-topic {topic}) and start again"
    )


def _internal(
    topology: Topology, names: TopicNames, counts: Mapping[str, int], exact: Mapping[str, int]
) -> dict[str, int]:
    """Return the counts of repartition topics; ``exact`` has those already determined."""
    found = dict(counts)
    width: dict[int, int] = {}
    internal: dict[str, int] = {}
    # A subtopology is as wide as its widest topic, and its repartition topics as wide as itself: until nothing grows.
    for _ in range(len(topology.legs) + 1):
        for leg in topology.upstream_first:
            read = (found.get(topic, 0) for topic in names.sources(leg))
            width[leg.subtopology] = max(width.get(leg.subtopology, 0), *read)
        for leg in topology.upstream_first:
            if leg.sink is not None and leg.sink.internal:
                name = names(leg.sink.topic, internal=True)
                count = leg.sink.partitions or width[leg.subtopology]
                internal[name] = found[name] = exact.get(name) or max(internal.get(name, 0), count)
    return internal


@dataclass(slots=True)
class _Tied:
    """Topics, by Kafka's names, that ``joins`` require to have the same partition count.

    ``ours`` are the repartition topics whose count the user has not set.
    """

    topics: set[str]
    ours: set[str]
    joins: list[Lookup | StreamJoin | TableJoin]


def _tied(topology: Topology, names: TopicNames) -> list[_Tied]:
    """Return the groups of co-partitioned topics, merged where they overlap."""
    groups: list[_Tied] = []
    for join, readers in _joins(topology):
        new = _Tied(set(), set(), [join])
        for reader in readers:
            read = set(names.sources(reader))
            new.topics |= read
            new.ours |= read if _is_ours(topology, reader) else set()
        for group in [group for group in groups if not group.topics.isdisjoint(new.topics)]:
            groups.remove(group)
            new = _Tied(group.topics | new.topics, group.ours | new.ours, [*group.joins, *new.joins])
        groups.append(new)
    return groups


def _joins(topology: Topology) -> Iterator[tuple[Lookup | StreamJoin | TableJoin, list[Leg]]]:
    """Yield each join that needs co-partitioning, with the legs that read its sides."""
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


def _is_ours(topology: Topology, reader: Leg) -> bool:
    """Return whether a leg reads repartition topics whose partition count the user has not set."""
    return reader.source.internal and not any(
        leg.sink is not None and leg.sink.internal and leg.sink.partitions and leg.sink.topic in reader.source.topics
        for leg in topology.legs
    )


def _apart(group: _Tied, given: Mapping[str, int]) -> str:
    join = group.joins[-1]
    found = ", ".join(f"{topic!r} has {count}" for topic, count in sorted(given.items()))
    sides, where = "a stream and the table that it joins", "before the join or before to_table()"
    if isinstance(join, StreamJoin):
        sides, where = "two streams that are joined", "before the join"
    elif isinstance(join, TableJoin):
        sides, where = "tables that are joined", "before to_table(), or make one by to_stream()"
    columns = ", ".join(f'"{column}"' for column in join.columns)
    return (
        f"{join.call_site}: {join.text}: {sides} must have the same number of partitions, so that "
        f"both sides of a key are in one task: {found}. Put repartition({columns}), without partitions=, {where}, "
        "which makes a topic that fits, or give the topics the same number of partitions"
    )

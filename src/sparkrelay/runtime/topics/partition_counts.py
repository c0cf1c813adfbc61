"""How many partitions each topic of a topology has, or is to have. Pure.

A repartition topic has as many as the widest of the topics that it is written from; one whose stream looks into a table
has as many as the table's topic, so that both sides of a key are in one task (co-partitioning).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import MissingSourceTopicException, StreamsException

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg, Lookup, Topology

__all__ = ["count_partitions", "missing"]


def count_partitions(topology: Topology, names: TopicNames, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the partition count of every topic that is read, and of every repartition topic.

    Args:
        topology: what to run.
        names: Kafka's names of its topics.
        partitions: partition count of every topic that exists.

    Raises:
        MissingSourceTopicException: a source topic does not exist.
        StreamsException: a stream and a table it looks into have topics with other counts.
    """
    counts: dict[str, int] = {}
    for leg in topology.legs:
        for topic in () if leg.source.internal else leg.source.topics:
            found = partitions.get(topic)
            if not found:
                raise MissingSourceTopicException(missing(f"source topic {topic!r}", topic))
            counts[topic] = found
    exact: dict[str, int] = {}
    # Each round says of another topic how many it has, or is the last one.
    while True:
        counts |= _internal(topology, names, counts, exact)
        said = dict(exact)
        for leg, lookup, keeper in _lookups(topology):
            stream = {names(topic, leg.source.internal): leg for topic in leg.source.topics}
            table = {names(topic, keeper.source.internal): keeper for topic in keeper.source.topics}
            both = stream | table
            given = {topic for topic in both if topic in exact or not _ours_to_say(topology, both[topic])}
            wanted = {counts[topic] for topic in given} or {max(counts[topic] for topic in both)}
            if len(wanted) > 1:
                raise StreamsException(_apart(lookup, stream, table, counts))
            said |= dict.fromkeys(both.keys() - given, wanted.pop())
        if said == exact:
            return counts
        exact = said


def missing(what: str, topic: str) -> str:
    """Return what to say of a topic that does not exist."""
    return (
        f"{what} does not exist; create it (kafka-topics.sh --create --topic {topic} ..., or on the development Kafka "
        f"sparkrelay broker create-topic {topic}) and start again"
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


def _lookups(topology: Topology) -> Iterator[tuple[Leg, Lookup, Leg]]:
    """Yield each lookup with its leg, and with the leg that keeps the table."""
    keepers = {leg.aggregation.store: leg for leg in topology.legs if leg.aggregation is not None}
    for leg in topology.legs:
        for lookup in leg.lookups:
            yield leg, lookup, keepers[lookup.store]


def _ours_to_say(topology: Topology, reader: Leg) -> bool:
    """Return whether the topics of a leg are repartition topics of which the user has not said how wide they are."""
    return reader.source.internal and not any(
        leg.sink is not None and leg.sink.internal and leg.sink.partitions and leg.sink.topic in reader.source.topics
        for leg in topology.legs
    )


def _apart(lookup: Lookup, stream: Mapping[str, Leg], table: Mapping[str, Leg], counts: Mapping[str, int]) -> str:
    sides = (", ".join(f"{topic!r} has {counts[topic]}" for topic in side) for side in (stream, table))
    return (
        f"{lookup.call_site}: {lookup.text}: the stream and the table must have equally many partitions, or a key is "
        f"in another task than its row: of the stream, {next(sides)}; of the table, {next(sides)}. Put "
        f'repartition("{lookup.columns[0]}") before the join, which makes a topic that fits, or give the topics '
        "equally many partitions"
    )

"""Source topics whose partition count has grown: keys move to tasks without their state. Pure.

Producers map keys to partitions by the partition count, so a key's records go on in another partition, whose task lacks
the state of the earlier ones. Reading the topic again from its beginning does not bring them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Topology


def grown_source(application_id: str, before: Mapping[str, int], *, now: int | None = None) -> StreamsException:
    """Return the error of source topics that have grown from the counts ``before`` (to ``now``, if known)."""
    many = "more" if now is None else now
    grown = ", ".join(f"{topic!r} has {many} partitions now, not {count}" for topic, count in sorted(before.items()))
    count = max(before.values())
    return StreamsException(
        f"source topic {grown}. Producers write some of its keys to other partitions now, which are read by tasks "
        "without the state of these keys, and Kafka cannot take partitions away. Stop all instances. Either start the "
        "application over: put repartition(..., partitions=N) before the first step with state, which sends the old "
        "and the new records of a key to one task, and run sparkrelay reset --application-id "
        f"{application_id} ... (a reset alone gives a key whose partition changed two results). Or keep the state: "
        f"make a new topic with {count} partitions, copy the unread records to it, in order, and have producers write "
        "to it and the pipeline read it. The topics of a pipeline with repartition(..., partitions=N) before its first "
        "step with state may grow"
    )


def sources_of(topology: Topology, names: TopicNames, internal: str) -> frozenset[str]:
    """Return the user's topics that determine the partition count of an internal topic, given by Kafka's name."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [internal]
    while waiting:
        if (topic := waiting.pop()) in seen:
            continue
        seen.add(topic)
        for part in topology.subtopologies:
            written = {names(leg.sink.topic, internal=True): leg.sink for leg in part.legs if leg.sink is not None}
            decides = topic in {names.changelog(store) for store in part.stores} or (
                topic in written and written[topic].internal and not written[topic].partitions
            )
            if decides:
                found |= part.source_topics
                waiting += [name for leg in part.legs if leg.source.internal for name in names.sources(leg)]
    return frozenset(found)

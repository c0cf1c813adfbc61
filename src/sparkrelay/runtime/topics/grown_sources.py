"""Source topics that have got partitions: keys move to tasks that have no state of theirs. Pure.

Producers choose a record's partition by its key and by the number of partitions. Once a topic has more, the records of
a key may go to another partition, new or old. So a task that ran all along gets keys whose state another task has.
The topic keeps both parts of such a key's records: to read it again from its beginning does not bring them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Topology

__all__ = ["grown_source", "sources_of"]


def grown_source(application_id: str, before: Mapping[str, int], *, now: int | None = None) -> StreamsException:
    """Return the error of source topics that have got partitions.

    Args:
        application_id: whose.
        before: topic -> how many it had when the work was shared out, or when the state was made.
        now: how many they have, if that is known.
    """
    many = f"{now}" if now is not None else "more"
    grown = ", ".join(f"{topic!r} has {many} partitions by now, not {count}" for topic, count in sorted(before.items()))
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
    """Return the user's topics whose partition counts decide how many partitions an internal topic has.

    Args:
        topology: what runs.
        names: Kafka's names of its topics.
        internal: a repartition topic or a changelog, as Kafka calls it.
    """
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [internal]
    while waiting:
        topic = waiting.pop()
        if topic in seen:
            continue
        seen.add(topic)
        for part in topology.subtopologies:
            written = {names(leg.sink.topic, internal=True): leg.sink for leg in part.legs if leg.sink is not None}
            decides = topic in {names.changelog(store) for store in part.stores} or (
                topic in written and written[topic].internal and not written[topic].partitions
            )
            if decides:
                found |= part.source_topics
                waiting += [
                    names(t, internal=True) for leg in part.legs if leg.source.internal for t in leg.source.topics
                ]
    return frozenset(found)

"""Tables whose source topic is their changelog, too: ``topology.optimization=reuse.ktable.source.topics``.

A table that is read from a topic holds what the topic has, so a second copy of it says nothing new. Its store is then
restored from the topic itself, up to where the group has read it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sparkrelay.topology.structure import Subtopology
from sparkrelay.topology.topology import Topology

if TYPE_CHECKING:
    from sparkrelay.topology.structure import Leg


def reusing_source_topics(topology: Topology, *, from_beginning: bool, leaves_out: bool = False) -> Topology:
    """Return a topology whose tables use the topic that they are read from as their changelog, where they can.

    A table that cannot keeps a changelog of its own, and its description says why.

    Args:
        topology: as it was written.
        from_beginning: False where topics are first read from their end (``auto.offset.reset=latest``).
        leaves_out: True where records that make a step fail are left out.
    """
    why = ""
    if leaves_out:
        why = "the table lacks the records that an exception handler has left out, and a restore would read them"
    return Topology(
        (
            Subtopology(part.id, tuple(_reusing(leg, part, why, from_beginning=from_beginning) for leg in part.legs))
            for part in topology.subtopologies
        ),
        topology.global_tables,
    )


def _reusing(leg: Leg, part: Subtopology, why: str, *, from_beginning: bool) -> Leg:
    table = leg.aggregation
    if table is None or not table.logged or not table.of_topic:
        return leg
    (topic,) = leg.source.topics
    others = sorted(
        other.store
        for other in part.legs
        if other.store not in {None, leg.store} and not other.source.internal and topic in other.source.topics
    )
    if table.history is not None:
        # As in Kafka Streams: a compacted topic has the newest row of each key alone.
        why = f"topic {topic} need not have the rows of the table's history any more"
    elif others:
        # Their changelogs say how far they have seen it, and that need not be where the group's offset is.
        why = f"store {others[0]} is made of topic {topic}, too"
    elif not (leg.source.starts[topic].is_beginning if topic in leg.source.starts else from_beginning):
        said = "starting=" if topic in leg.source.starts else "auto.offset.reset=latest"
        why = f"{said} leaves out what topic {topic} has at first, and a restore would read it"
    return replace(leg, aggregation=replace(table, reuses_topic=not why, keeps_changelog=why))

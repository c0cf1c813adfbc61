"""The card that members show of their topology, in the tag ``sparkrelay.topology``.

Leaders compare it, to refuse a member that runs something else in words. It names each sub-topology's sources and
stores as the topology calls them: with the topics that the members subscribe to and the topics' partition counts,
that gives the group's tasks, also to somebody who does not run the pipeline.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.assignment import TaskInfo
from sparkrelay.errors import StreamsException
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.types import TaskId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.topology import Topology

__all__ = ["SubtopologyMetadata", "difference", "metadata_tasks", "parse_topology_metadata", "topology_metadata"]

_SOURCE, _STORE, _REUSED = "source ", "store ", "reused topic "


@dataclass(frozen=True, slots=True)
class SubtopologyMetadata:
    """A sub-topology's topics and stores.

    Attributes:
        sources: The topics it reads, by Kafka's names.
        changelogs: Its stores' changelog topics, by store.
        reused: Those of them that are sources.
    """

    sources: tuple[str, ...]
    changelogs: Mapping[str, str]
    reused: frozenset[str] = frozenset()


def topology_metadata(topology: Topology) -> str:
    """Return what members compare: the fingerprint, and names that describe a difference."""
    parts = {
        str(subtopology.id): sorted(
            [f"source {topic}" for leg in subtopology.legs for topic in leg.source.topics]
            + [f"store {store}" for store in subtopology.logged_stores]
            + [f"{_REUSED}{topic} of store {store}" for store, topic in subtopology.reused_topics.items()]
            + [
                f"unlogged store {store}"
                for store in subtopology.stores
                if store not in {*subtopology.logged_stores, *subtopology.reused_topics}
            ]
            + [f"sink {leg.sink.topic}" for leg in subtopology.legs if leg.sink is not None]
        )
        for subtopology in topology.subtopologies
    }
    return json.dumps({"fingerprint": topology.fingerprint, "parts": parts}, sort_keys=True, separators=(",", ":"))


def difference(ours: str, theirs: str) -> str:
    """Return in words what a member's metadata has that the group's has not, and the other way round."""
    try:
        group, member = (
            {
                f"{name} of sub-topology {part}"
                for part, names in json.loads(metadata)["parts"].items()
                for name in names
            }
            for metadata in (ours, theirs)
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "its description cannot be read"
    differences = []
    if group - member:
        differences.append(f"it lacks {', '.join(sorted(group - member))}")
    if member - group:
        differences.append(f"it has {', '.join(sorted(member - group))} besides")
    return "; ".join(differences) or "the names agree, but formats, steps or aggregates differ"


def parse_topology_metadata(
    text: str, application_id: str, subscribed: Collection[str]
) -> dict[int, SubtopologyMetadata]:
    """Read a card.

    Args:
        text: The tag's value.
        application_id: It stands in front of internal topics' names.
        subscribed: Kafka's names of the topics that members read: they set internal topics apart from others.

    Raises:
        StreamsException: it is not a card.
    """
    names = TopicNames(application_id)
    try:
        parts = json.loads(text)["parts"]
        found = {}
        for number, entries in parts.items():
            topics = [entry.removeprefix(_SOURCE) for entry in entries if entry.startswith(_SOURCE)]
            stores = [entry.removeprefix(_STORE) for entry in entries if entry.startswith(_STORE)]
            reused = [entry.removeprefix(_REUSED).split(" of store ") for entry in entries if entry.startswith(_REUSED)]
            found[int(number)] = SubtopologyMetadata(
                tuple(names(topic, names(topic, internal=True) in subscribed) for topic in topics),
                {**{store: names.changelog(store) for store in stores}, **{store: topic for topic, store in reused}},
                frozenset(topic for topic, _ in reused),
            )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StreamsException(
            f"the topology that a member of {application_id!r} shows cannot be read; is it of another version of "
            "SparkRelay than this command"
        ) from error
    return found


def metadata_tasks(card: Mapping[int, SubtopologyMetadata], partitions: Mapping[str, int]) -> list[TaskInfo]:
    """Return the tasks: one for each partition of a sub-topology's widest source.

    Args:
        card: What is read and kept.
        partitions: Partition count of each source topic.
    """
    return [
        TaskInfo.of(
            TaskId(number, partition),
            inputs=[TopicPartition(topic, partition) for topic in part.sources if partition < partitions[topic]],
            changelogs=[
                TopicPartition(topic, partition)
                for topic in part.changelogs.values()
                if topic not in part.reused or partition < partitions[topic]
            ],
            stores=part.changelogs,
        )
        for number, part in sorted(card.items())
        for partition in range(max((partitions[topic] for topic in part.sources), default=0))
    ]

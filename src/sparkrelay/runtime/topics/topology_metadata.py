"""The topology as members describe it in the client tag ``sparkrelay.topology``.

Leaders compare it, to reject a member with another topology and name the difference. It names the sources and stores of
each sub-topology. With the members' subscriptions and the topics' partition counts that gives the group's tasks, also
to a tool that does not run the pipeline.
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

_SOURCE, _STORE, _REUSED = "source ", "store ", "reused topic "


@dataclass(frozen=True, slots=True)
class SubtopologyMetadata:
    """A sub-topology's source topics, and changelog topics by store; ``reused`` are both."""

    sources: tuple[str, ...]
    changelogs: Mapping[str, str]
    reused: frozenset[str] = frozenset()


def topology_metadata(topology: Topology) -> str:
    """Return the tag's value: the fingerprint, and names that describe differences."""
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
    """Return in words how a member's metadata differs from the group's."""
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
        return "its description is unreadable"
    differences = []
    if group - member:
        differences.append(f"it lacks {', '.join(sorted(group - member))}")
    if member - group:
        differences.append(f"it adds {', '.join(sorted(member - group))}")
    return "; ".join(differences) or "the names agree, but formats, steps or aggregates differ"


def parse_topology_metadata(
    text: str, application_id: str, subscribed: Collection[str]
) -> dict[int, SubtopologyMetadata]:
    """Parse the tag's value into sub-topologies by number.

    ``subscribed`` are Kafka's names of the topics that members read: they distinguish internal topics.

    Raises:
        StreamsException: the text is not topology metadata.
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
            f"the topology metadata of a member of {application_id!r} is unreadable; does it run another version of "
            "SparkRelay than this command"
        ) from error
    return found


def metadata_tasks(metadata: Mapping[int, SubtopologyMetadata], partitions: Mapping[str, int]) -> list[TaskInfo]:
    """Return the tasks, one for each partition of a sub-topology's widest source; ``partitions`` has the counts."""
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
        for number, part in sorted(metadata.items())
        for partition in range(max((partitions[topic] for topic in part.sources), default=0))
    ]

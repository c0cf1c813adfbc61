"""Reading a topology off the card that members show in the tag ``sparkrelay.topology``.

The card (``runtime.group_assignor``) names each sub-topology's sources and stores as the topology calls them. With
the topics that the members subscribe to and the topics' partition counts, that gives the group's tasks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.assignment import TaskInfo
from sparkrelay.errors import StreamsException
from sparkrelay.runtime.layout import TopicNames
from sparkrelay.types import TaskId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["SubtopologyCard", "card_tasks", "parse_card"]

_SOURCE, _STORE = "source ", "store "


@dataclass(frozen=True, slots=True)
class SubtopologyCard:
    """A sub-topology's topics and stores.

    Attributes:
        sources: The topics it reads, by Kafka's names.
        changelogs: Its stores' changelog topics, by store.
    """

    sources: tuple[str, ...]
    changelogs: Mapping[str, str]


def parse_card(text: str, application_id: str, subscribed: Collection[str]) -> dict[int, SubtopologyCard]:
    """Read a card.

    Args:
        text: The tag's value.
        application_id: It stands in front of internal topics' names.
        subscribed: Kafka's names of the topics that members read: they tell internal topics from others.

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
            found[int(number)] = SubtopologyCard(
                tuple(names(topic, names(topic, internal=True) in subscribed) for topic in topics),
                {store: names.changelog(store) for store in stores},
            )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StreamsException(
            f"the topology that a member of {application_id!r} shows cannot be read; is it of another version of "
            "SparkRelay than this command"
        ) from error
    return found


def card_tasks(card: Mapping[int, SubtopologyCard], partitions: Mapping[str, int]) -> list[TaskInfo]:
    """Return the tasks: one for each partition of a sub-topology's widest source.

    Args:
        card: What is read and kept.
        partitions: Partition count of each source topic.
    """
    return [
        TaskInfo.of(
            TaskId(number, partition),
            inputs=[TopicPartition(topic, partition) for topic in part.sources if partition < partitions[topic]],
            changelogs=[TopicPartition(topic, partition) for topic in part.changelogs.values()],
            stores=part.changelogs,
        )
        for number, part in sorted(card.items())
        for partition in range(max((partitions[topic] for topic in part.sources), default=0))
    ]

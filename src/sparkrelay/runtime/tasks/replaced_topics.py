"""Source topics that were deleted and created again: the positions of tasks mean nothing in the new topic. Pure.

Kafka forgets a group's offsets of a topic with the topic, but the state of a task outlives it. Each position in the
state belongs to a topic id, so that the state's position is never taken for one of the new topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException
from sparkrelay.state.header import replaced_topics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["of_replaced_topics", "replaced_topic"]


def of_replaced_topics(
    partitions: Iterable[TopicPartition], known: Mapping[str, str], now: Mapping[str, str]
) -> frozenset[TopicPartition]:
    """Return the partitions of topics that have another id now."""
    replaced = replaced_topics(known, now)
    return frozenset(partition for partition in partitions if partition.topic in replaced)


def replaced_topic(application: str, task: TaskId, topics: Collection[str], *, stateful: bool) -> StreamsException:
    """Return the error of a task whose source topics were replaced."""
    names = ", ".join(map(repr, sorted(topics)))
    if not stateful:
        return StreamsException(
            f"task {task}: source topic {names} was deleted and created again while the task read it. Start the "
            "instance again: it reads the new topic from where auto.offset.reset says"
        )
    options = " ".join(f"--topic {topic}" for topic in sorted(topics)[:1])
    return StreamsException(
        f"task {task}: source topic {names} was deleted and created again. The state of the task has the records of "
        "the old topic, and its position means nothing in the new one. Stop all instances. To drop the state and "
        f"read the new topic from its beginning: sparkrelay reset --application-id {application} ... To keep the "
        "state and add the records of the new topic to it: sparkrelay offsets set --application-id "
        f"{application} {options} --to earliest ..."
    )

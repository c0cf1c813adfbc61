"""Source topics that were deleted and created again: the positions of tasks mean nothing in the new topic. Pure.

Kafka forgets a group's offsets of a topic with the topic, but the state of a task outlives it. Each position in the
state belongs to a topic id, so that the state's position is never taken for one of the new topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkrelay.types import TaskId

__all__ = ["replaced_topic"]


def replaced_topic(application: str, task: TaskId, topics: Collection[str], *, stateful: bool) -> StreamsException:
    """Return the error of a task whose source topics were replaced."""
    names = ", ".join(map(repr, sorted(topics)))
    if not stateful:
        return StreamsException(
            f"task {task}: source topic {names} was deleted and created again while the task read it. Start the "
            "instance again: it reads the new topic from where auto.offset.reset says"
        )
    return StreamsException(
        f"task {task}: source topic {names} was deleted and created again. The state of the task has the records of "
        "the old topic, and its position means nothing in the new one. Stop all instances. To drop the state and "
        f"read the new topic from its beginning: sparkrelay reset --application-id {application} ... To keep the "
        "state and add the records of the new topic to it: sparkrelay offsets set --application-id "
        f"{application} --topic {min(topics)} --to earliest ..."
    )

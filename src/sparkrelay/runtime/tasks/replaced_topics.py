"""Topics that were deleted and created again, by their ids. Pure.

A source topic: Kafka forgets a group's offsets of a topic with the topic, but the state of a task outlives it. Each
position in the state belongs to a topic id, so that the state's position is never taken for one of the new topic.

A changelog: local state names the ids of its changelogs. Where none is left, only the group's commits still say that
there was state: each names the ids of the changelogs that have it. While a task runs, its records go to its changelogs
by their ids: a new changelog that has some records would be taken for a copy of the old one. Where brokers are too old
for that, the ids are compared before each micro-batch is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.commit_notes import noted_changelogs
from sparkrelay.state.checks import lost_changelog_remedy

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["lost_changelogs", "lost_state", "replaced_changelog", "replaced_topic"]


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
        f"start over: sparkrelay reset --application-id {application} ... (the new topic is then read from where "
        "auto.offset.reset says, unless --topics names all source topics). To keep the state and add the "
        f"records of the new topic to it: sparkrelay offsets set --application-id {application} "
        f"--topic {min(topics)} --to earliest ..."
    )


def lost_changelogs(
    stores: Mapping[str, TopicPartition], notes: Mapping[TopicPartition, str], topic_ids: Mapping[str, str]
) -> dict[str, frozenset[str]]:
    """Return the stores whose state was lost with their changelogs.

    Args:
        stores: store -> its changelog, of those in which no state was found.
        notes: input of the task -> what is noted with the group's offset.
        topic_ids: changelog topic -> its id now, as far as known.

    Returns:
        Store -> the input topics whose offsets name another changelog.
    """
    noted = {partition: noted_changelogs(text) for partition, text in notes.items()}
    lost = {}
    for store, changelog in stores.items():
        now = topic_ids.get(changelog.topic)
        named = {partition: ids[store] for partition, ids in noted.items() if store in ids}
        # An older note may be left on an input that has had no records since.
        if now is not None and named and now not in named.values():
            lost[store] = frozenset(partition.topic for partition in named)
    return lost


def lost_state(
    application: str, task: TaskId, lost: Mapping[str, frozenset[str]], changelogs: Mapping[str, TopicPartition]
) -> StreamsException:
    """Return the error of a task whose state was lost with its changelogs; ``lost`` as :func:`lost_changelogs`."""
    names = ", ".join(f"{store!r} ({changelogs[store].topic!r})" for store in sorted(lost))
    remedy = lost_changelog_remedy(
        application,
        "the local state of this task on other hosts, if any (an instance that has some is refused, and its error "
        "names the directory)",
        frozenset().union(*lost.values()),
    )
    return StreamsException(
        f"task {task}: the changelog of store {names} was deleted and created again, and has no state. The group has "
        f"committed offsets, so results would lack all records before them. {remedy}"
    )


def replaced_changelog(application: str, task: Task, topics: Collection[str]) -> StreamsException:
    """Return the error of a task whose changelogs were replaced while it ran."""
    names = ", ".join(map(repr, sorted(topics)))
    remedy = lost_changelog_remedy(
        application,
        f"{task.directory}, and on each host the state of other tasks with this changelog",
        {partition.topic for partition in task.inputs},
    )
    return StreamsException(
        f"task {task.id}: changelog {names} was deleted and created again while the instance ran. The new topic lacks "
        "the rows of the local state, so other instances could not restore them. The micro-batch is not committed. "
        f"{remedy}"
    )

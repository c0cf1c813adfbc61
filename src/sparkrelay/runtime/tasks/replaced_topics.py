"""Topics that were deleted and created again, detected by their ids. Pure.

Source topics: Kafka forgets the group's offsets of a deleted topic, but a task's state outlives it. Each position in
the state belongs to a topic id, so it is never applied to the new topic.

Changelogs: local state names the ids of its changelogs. Without local state, only the group's commits show that there
was state: each names the ids of the changelogs that have it. A running task writes to its changelogs by their ids: with
a few records, a new changelog would look like a copy of the old one. With brokers that are too old for that, the ids
are compared before each commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.commit_notes import noted_changelogs
from sparkrelay.state.preconditions import lost_changelog_remedy

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.types import TaskId, TopicPartition


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
    """Return store -> the input topics whose notes name another changelog than the current one.

    ``stores`` are those without any state; ``notes`` those of the group's offsets of the task's inputs.
    """
    noted = {partition: noted_changelogs(text) for partition, text in notes.items()}
    lost = {}
    for store, changelog in stores.items():
        now = topic_ids.get(changelog.topic)
        named = {partition: ids[store] for partition, ids in noted.items() if store in ids}
        # An input without records since then may have an older note.
        if now is not None and named and now not in named.values():
            lost[store] = frozenset(partition.topic for partition in named)
    return lost


def lost_state(
    application: str, task: TaskId, lost: Mapping[str, frozenset[str]], changelogs: Mapping[str, TopicPartition]
) -> StreamsException:
    """Return the error of a task with stores from :func:`lost_changelogs`."""
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

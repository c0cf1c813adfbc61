"""Warnings about a changed pipeline that still runs, but perhaps not as intended: state is found by name. Pure.

Changes that it cannot survive are rejected elsewhere (``layout``, ``store``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sparkrelay.runtime.topics.layout import TaskLayout
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.types import TaskId, TopicPartition


def changed_topics(layout: TaskLayout, names: TopicNames, topics: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each internal topic that the pipeline no longer uses."""
    for topic in sorted(topics):
        if not names.is_internal(topic) or topic in layout.internal_topics:
            continue
        if topic.endswith("-changelog"):
            store = topic.removeprefix(f"{names.application_id}-").removesuffix("-changelog")
            yield (
                f"topic {topic!r} is the changelog of store {store!r}, which this pipeline does not have. If the store "
                "was renamed, the new one starts empty: restore its old name, by name=, to keep its state. If it was "
                "removed, delete the topic"
            )
        else:
            yield (
                f"repartition topic {topic!r} is not read by this pipeline. Records that an earlier one wrote and did "
                "not read are in no result; once that does not matter, delete the topic"
            )


def new_stores(layout: TaskLayout, missing: Collection[str], committed: Mapping[TopicPartition, int]) -> Iterator[str]:
    """Yield a sentence for each store that starts in the middle of its input.

    ``missing`` are internal topics that did not exist, ``committed`` the group's offsets.
    """
    named = set()
    for id_, shape in sorted(layout.tasks.items()):
        for store, changelog in sorted(shape.changelogs.items()):
            read = [p for p in shape.inputs if p.topic in shape.state_topics and committed.get(p, 0) > 0]
            if changelog.topic in missing and read and store not in named:
                named.add(store)
                yield (
                    f"store {store!r} is new, or its changelog {changelog.topic!r} was deleted: it starts empty, and "
                    f"sees only records after the group's offsets (task {id_}: {read[0]} at {committed[read[0]]}). "
                    "To start from the beginning, reset the application: sparkrelay reset"
                )


def other_inputs(
    task: TaskId, seen: Collection[TopicPartition], inputs: Collection[TopicPartition], state_topics: Collection[str]
) -> str | None:
    """Return a warning if a task's state has seen topics that it no longer reads, and none of some that it reads."""
    unread = sorted(set(seen) - set(inputs))
    unseen = sorted(p for p in inputs if p.topic in state_topics and p not in seen)
    if not unread or not unseen:
        return None
    return (
        f"task {task}: its state includes records of {', '.join(map(str, unread))}, which this pipeline does not "
        f"read, and continues with {', '.join(map(str, unseen))}: was a source topic renamed? To start without the old "
        "records, give the aggregation another name (name=), or reset the application: sparkrelay reset"
    )

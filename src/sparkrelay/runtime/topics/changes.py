"""What a pipeline's change means for what is there already, in words. Pure.

A changed pipeline that cannot go on is refused where that is found (``layout``, ``store``). These are the changes with
which it can go on, but perhaps not as its author thinks: state is found by name, so a renamed store is a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sparkrelay.runtime.topics.layout import TaskLayout
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["changed_topics", "new_stores", "other_inputs"]


def changed_topics(layout: TaskLayout, names: TopicNames, topics: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each internal topic that the pipeline has no more use for."""
    for topic in sorted(topics):
        if not names.is_internal(topic) or topic in layout.internal_topics:
            continue
        if topic.endswith("-changelog"):
            store = topic.removeprefix(f"{names.application_id}-").removesuffix("-changelog")
            yield (
                f"topic {topic!r} is the changelog of store {store!r}, which this pipeline does not have. If the store "
                "was renamed, the new one starts empty: give it its old name back, by name=, to go on with what it "
                "had. If it was removed, delete the topic"
            )
        else:
            yield (
                f"repartition topic {topic!r} is not read by this pipeline. What an earlier one wrote to it and did "
                "not read yet is in no result; once that does not matter, delete the topic"
            )


def new_stores(layout: TaskLayout, missing: Collection[str], committed: Mapping[TopicPartition, int]) -> Iterator[str]:
    """Yield a sentence for each store that begins in the middle of its input.

    Args:
        layout: what is to run.
        missing: internal topics that did not exist.
        committed: the group's offsets.
    """
    named = set()
    for id_, shape in sorted(layout.tasks.items()):
        for store, changelog in sorted(shape.changelogs.items()):
            read = [p for p in shape.inputs if p.topic in shape.state_topics and committed.get(p, 0) > 0]
            if changelog.topic in missing and read and store not in named:
                named.add(store)
                yield (
                    f"store {store!r} is new, or its changelog {changelog.topic!r} was deleted: it starts empty, and "
                    f"sees only what comes after the group's offsets (task {id_}: {read[0]} at {committed[read[0]]}). "
                    "To count from the beginning, start the application over: sparkrelay reset"
                )


def other_inputs(
    task: TaskId, seen: Collection[TopicPartition], inputs: Collection[TopicPartition], state_topics: Collection[str]
) -> str | None:
    """Return a sentence if the state has seen topics that the task does not read, and not all that it does read."""
    unread = sorted(set(seen) - set(inputs))
    unseen = sorted(p for p in inputs if p.topic in state_topics and p not in seen)
    if not unread or not unseen:
        return None
    return (
        f"task {task}: its state holds what came from {', '.join(map(str, unread))}, which this pipeline does not "
        f"read, and goes on with {', '.join(map(str, unseen))}: was a source topic renamed? To begin without the old "
        "records, give the aggregation another name (name=), or start the application over: sparkrelay reset"
    )

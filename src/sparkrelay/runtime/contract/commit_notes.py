"""What is noted with the group's offsets: a JSON object for a partition, each part of it somebody's own.

``event_times``, on a task's first input: how far it has come with repartition topics (``tasks.event_times``).
``changelogs``, there too: store -> the id of the changelog topic that has its state, as of the commit.
``batch``, there too: which micro-batch of a task with ``foreachBatch`` it is (``tasks.batch_notes``).
``source_changelog``: that the topic is a table's changelog as well.
``tasks``, with it: over how many tasks the table was spread.
``owner``, on a task's first input: who writes for the task (``contract.owners``).
``set_by_hand``: the id of the topic that ``sparkrelay offsets set`` set the offset for.

It comes from a broker, where others can write, too: whatever does not fit is nothing.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TaskId

__all__ = [
    "CHANGELOGS",
    "MOST_CHARACTERS",
    "SOURCE_CHANGELOG",
    "TASKS",
    "note_parts",
    "note_text",
    "noted_changelogs",
    "set_by_hand",
    "set_by_hand_note",
]

#: Brokers take 4,096 bytes unless ``offset.metadata.max.bytes`` says something else; the text is ASCII.
MOST_CHARACTERS: Final = 4000
#: The part of a topic that is a table's changelog as well. Nothing else says so once the setting is taken back.
SOURCE_CHANGELOG: Final[Mapping[str, Any]] = MappingProxyType({"source_changelog": True})
#: With it, over how many tasks the table was spread.
TASKS: Final = "tasks"
CHANGELOGS: Final = "changelogs"
_SET_BY_HAND: Final = "set_by_hand"


def note_text(task: TaskId, parts: Mapping[str, Any]) -> str:
    """Return the text of a note; of nothing it is empty.

    A note that would be too long lacks ``changelogs``: without it, a lost changelog is not noticed, and all else works.

    Raises:
        StreamsException: it is too long for a broker.
    """
    said = {name: part for name, part in parts.items() if part}
    text = json.dumps(said, separators=(",", ":")) if said else ""
    if len(text) > MOST_CHARACTERS and CHANGELOGS in said:
        return note_text(task, {name: part for name, part in said.items() if name != CHANGELOGS})
    if len(text) > MOST_CHARACTERS:
        raise StreamsException(
            f"task {task}: what its commits have to say beside the offsets takes {len(text):,} bytes, and brokers "
            f"keep no more than {MOST_CHARACTERS:,}. It grows with the topics that the task reads and writes: put "
            "fewer into one part of the pipeline that has foreachBatch() or a watermark, with a topic in between"
        )
    return text


def note_parts(text: str) -> dict[str, Any]:
    """Return the parts of a note; none where somebody else has written it."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def set_by_hand_note(topic_id: str, noted: str = "") -> str:
    """Return the note of an offset that an operator sets for the topic with this id.

    Args:
        topic_id: of the topic.
        noted: what is noted with the offset by now. It is kept, without ``changelogs``: the operator accepts the state
            that the changelogs have.
    """
    kept = {name: part for name, part in note_parts(noted).items() if name != CHANGELOGS}
    return json.dumps(kept | {_SET_BY_HAND: topic_id}, separators=(",", ":"))


def noted_changelogs(text: str) -> dict[str, str]:
    """Return store -> the id of the changelog topic that had its state when the note was committed."""
    found = note_parts(text).get(CHANGELOGS)
    if not isinstance(found, dict):
        return {}
    return {store: id_ for store, id_ in found.items() if isinstance(id_, str)}


def set_by_hand(text: str) -> str | None:
    """Return the id of the topic that an operator has set the offset for; None if a task has committed it."""
    topic_id = note_parts(text).get(_SET_BY_HAND)
    return topic_id if isinstance(topic_id, str) else None

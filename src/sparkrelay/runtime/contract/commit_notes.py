"""Notes in the metadata of the group's committed offsets: a JSON object per partition.

On the first input of a task: ``event_times``, how far the task is in repartition topics (``tasks.event_times``);
``changelogs``, store -> id of the changelog topic that has its state as of the commit; ``batch``, the micro-batch of a
task with ``foreachBatch`` (``tasks.batch_notes``); ``owner``, who writes for the task (``contract.owners``).

On other partitions: ``source_changelog``, if the topic is also a table's changelog, with ``tasks``, the number of tasks
that the table is spread over; ``set_by_hand``, the id of the topic that ``sparkrelay offsets set`` set the offset for.

Others can write to the broker too, so malformed notes are ignored.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TaskId

#: Brokers accept 4,096 bytes by default (``offset.metadata.max.bytes``); the text is ASCII.
MOST_CHARACTERS: Final = 4000
#: Marks a topic that is also a table's changelog. Nothing else records this once the setting is reverted.
SOURCE_CHANGELOG: Final[Mapping[str, Any]] = MappingProxyType({"source_changelog": True})
TASKS: Final = "tasks"
CHANGELOGS: Final = "changelogs"
_SET_BY_HAND: Final = "set_by_hand"


def note_text(task: TaskId, parts: Mapping[str, Any]) -> str:
    """Return the text of a note; empty without parts. Raises StreamsException if it is too long for a broker.

    It then first drops ``changelogs``, without which only a lost changelog goes unnoticed.
    """
    present = {name: part for name, part in parts.items() if part}
    text = json.dumps(present, separators=(",", ":")) if present else ""
    if len(text) > MOST_CHARACTERS and CHANGELOGS in present:
        return note_text(task, {name: part for name, part in present.items() if name != CHANGELOGS})
    if len(text) > MOST_CHARACTERS:
        raise StreamsException(
            f"task {task}: the metadata of its commits takes {len(text):,} bytes, and brokers keep at most "
            f"{MOST_CHARACTERS:,}. It grows with the topics that the task reads and writes: split the part of the "
            "pipeline that has foreachBatch() or a watermark, with a topic in between"
        )
    return text


def note_parts(text: str) -> dict[str, Any]:
    """Return the parts of a note; empty if it is not one of ours."""
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return parts if isinstance(parts, dict) else {}


def set_by_hand_note(topic_id: str, noted: str = "") -> str:
    """Return the note of an offset that an operator sets for the topic with this id.

    The parts already ``noted`` are kept except ``changelogs``: the operator accepts the state that the changelogs have.
    """
    kept = {name: part for name, part in note_parts(noted).items() if name != CHANGELOGS}
    return json.dumps(kept | {_SET_BY_HAND: topic_id}, separators=(",", ":"))


def noted_changelogs(text: str) -> dict[str, str]:
    """Return store -> id of the changelog topic that had its state at the commit."""
    found = note_parts(text).get(CHANGELOGS)
    if not isinstance(found, dict):
        return {}
    return {store: id_ for store, id_ in found.items() if isinstance(id_, str)}


def set_by_hand(text: str) -> str | None:
    """Return the id of the topic that an operator set the offset for; None if a task committed the offset."""
    topic_id = note_parts(text).get(_SET_BY_HAND)
    return topic_id if isinstance(topic_id, str) else None

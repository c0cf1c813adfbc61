"""The micro-batch that a commit belongs to, for tasks with ``foreachBatch``: part ``batch`` of its note.

Such a task also commits before each new micro-batch, with unchanged offsets: the *intent*, which records what the batch
takes and what else its rows depend on. A later owner that finds an intent for the committed offsets runs exactly that
batch, under the same number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sparkrelay.runtime.contract.commit_notes import note_parts
from sparkrelay.types import TaskId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Value = TypeVar("Value")

_LARGEST: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class BatchIntent:
    """What a micro-batch takes, and what else its rows depend on; fields as in :class:`TaskCommand`."""

    ranges: Mapping[TopicPartition, tuple[int, int]]
    behind: frozenset[str] = frozenset()
    silence_ms: int = 0
    awaited: Mapping[str, frozenset[str]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    clock_ms: int = 0
    now_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BatchNote:
    """The micro-batch of a commit; with an intent it has not run yet."""

    task: TaskId
    number: int
    intent: BatchIntent | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the part ``batch`` of a note, for :func:`read_batch`; topics are numbered."""
        note: dict[str, Any] = {"task": str(self.task), "number": self.number}
        if (intent := self.intent) is None:
            return note
        topics = sorted({p.topic for p in intent.ranges}.union(intent.behind, intent.limits, *intent.awaited.values()))
        number = {topic: index for index, topic in enumerate(topics)}
        return note | {
            "topics": topics,
            "ranges": [[number[p.topic], p.partition, *span] for p, span in sorted(intent.ranges.items())],
            "behind": sorted(number[topic] for topic in intent.behind),
            "silence_ms": intent.silence_ms,
            "awaited": {store: sorted(number[t] for t in some) for store, some in sorted(intent.awaited.items())},
            "limits": [[number[topic], ms] for topic, ms in sorted(intent.limits.items())],
            "clock_ms": intent.clock_ms,
            "now_ms": intent.now_ms,
        }


def newest_batch(task: TaskId, texts: Iterable[str]) -> BatchNote | None:
    """Return the note of a task's last micro-batch among the notes of its inputs."""
    found = [note for text in texts if (note := read_batch(text)) is not None and note.task == task]
    return max(found, key=lambda note: note.number, default=None)


def read_batch(text: str) -> BatchNote | None:
    """Return the micro-batch in a note; None if there is none, or it is malformed."""
    try:
        note = note_parts(text)["batch"]
        intent = _intent(note) if "ranges" in note else None
        return BatchNote(TaskId.parse(note["task"]), _number(note["number"], 1), intent)
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def _intent(note: Mapping[str, Any]) -> BatchIntent:
    topics = [_typed(topic, str) for topic in _typed(note["topics"], list)]

    def named(numbers: Any) -> frozenset[str]:
        return frozenset(topics[_number(index)] for index in _typed(numbers, list))

    ranges = {}
    for one in _typed(note["ranges"], list):
        index, partition, start, stop = _typed(one, list)
        ranges[TopicPartition(topics[_number(index)], _number(partition))] = _number(start), _number(stop, start)
    if not ranges:
        raise ValueError("an intent has at least one range, possibly empty")
    return BatchIntent(
        ranges,
        named(note["behind"]),
        _number(note["silence_ms"]),
        {_typed(store, str): named(some) for store, some in note["awaited"].items()},
        {topics[_number(index)]: _number(ms, -_LARGEST) for index, ms in _typed(note["limits"], list)},
        _number(note["clock_ms"]),
        # Earlier releases did not write it.
        None if note.get("now_ms") is None else _number(note["now_ms"]),
    )


def _number(value: Any, least: int = 0) -> int:
    if type(value) is not int or not least <= value < _LARGEST:
        raise ValueError(f"{value!r} is not a number >= {least}")
    return value


def _typed(value: Any, kind: type[Value]) -> Value:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value

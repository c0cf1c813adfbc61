"""Which micro-batch of a task with ``foreachBatch`` a commit is of, by the part ``batch`` of its note.

Such a task also commits before each new micro-batch, with the offsets as they were: the *intent*, which says what that
micro-batch takes and by what else its rows go. Whoever opens the task next and finds one whose offsets are still the
committed ones runs exactly that, under the same number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.runtime.contract.commit_notes import note_parts
from sparkrelay.types import TaskId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["BatchIntent", "BatchNote", "newest_batch", "read_batch"]

_LARGEST: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class BatchIntent:
    """What a micro-batch takes, and what its rows depend on beside that.

    Attributes:
        ranges: input partition -> offsets ``[from, to)``.
        behind: input topics that have more than that.
        silence_ms: by how much watermarks go on with it.
        awaited: store -> topics that hold its watermark back though they are read to their end.
        limits: input topic -> the newest event time of its rows that moves watermarks.
        clock_ms: by which event times are too far ahead, milliseconds since 1970.
        now_ms: by which timers and expiries of processing time go, likewise; None: it does not say.
    """

    ranges: Mapping[TopicPartition, tuple[int, int]]
    behind: frozenset[str] = frozenset()
    silence_ms: int = 0
    awaited: Mapping[str, frozenset[str]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    clock_ms: int = 0
    now_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BatchNote:
    """Which micro-batch of a task a commit is of; with an intent it is yet to be run."""

    task: TaskId
    number: int
    intent: BatchIntent | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what :func:`read_batch` reads, as the part ``batch`` of a note; topics are numbered."""
        said: dict[str, Any] = {"task": str(self.task), "number": self.number}
        if (intent := self.intent) is None:
            return said
        topics = sorted({p.topic for p in intent.ranges} | intent.behind | intent.limits.keys() | _all(intent.awaited))
        number = {topic: index for index, topic in enumerate(topics)}
        return said | {
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
    """Return the note of a task's last micro-batch of those that its inputs' commits have."""
    found = [note for text in texts if (note := read_batch(text)) is not None and note.task == task]
    return max(found, key=lambda note: note.number, default=None)


def read_batch(text: str) -> BatchNote | None:
    """Return which micro-batch a note is of; None if it does not say."""
    try:
        said = note_parts(text)["batch"]
        task = TaskId.parse(said["task"])
        number = _number(said["number"], 1)
        return BatchNote(task, number, _intent(said) if "ranges" in said else None)
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def _intent(said: Mapping[str, Any]) -> BatchIntent:
    topics = [_text(topic) for topic in _list(said["topics"])]
    ranges = {}
    for one in _list(said["ranges"]):
        index, partition, start, stop = _list(one)
        ranges[TopicPartition(topics[_number(index)], _number(partition))] = _number(start), _number(stop, start)
    if not ranges:
        raise ValueError("a batch takes something, or nothing of some partition")
    awaited = {
        _text(store): frozenset(topics[_number(index)] for index in _list(some))
        for store, some in said["awaited"].items()
    }
    limits = {topics[_number(index)]: _number(ms, -_LARGEST) for index, ms in map(_list, _list(said["limits"]))}
    behind = frozenset(topics[_number(index)] for index in _list(said["behind"]))
    # A release before this one did not say.
    now_ms = None if said.get("now_ms") is None else _number(said["now_ms"])
    return BatchIntent(ranges, behind, _number(said["silence_ms"]), awaited, limits, _number(said["clock_ms"]), now_ms)


def _number(value: Any, least: int = 0) -> int:
    if type(value) is not int or not least <= value < _LARGEST:
        raise ValueError(f"{value!r} is no number from {least} on")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


def _all(awaited: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*awaited.values())

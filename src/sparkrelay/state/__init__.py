"""Local state: slots and locks, a task's stores and journals, the changelog's codec. Knows no Spark, no broker."""

from __future__ import annotations

from sparkrelay.state.batch import Applied, BatchStamp, LookedUp, MergeResult, Watermark
from sparkrelay.state.changelog import Marker
from sparkrelay.state.header import JournalEntry, TaskHeader
from sparkrelay.state.home.slot import Slot
from sparkrelay.state.store import TaskStore

__all__ = [
    "Applied",
    "BatchStamp",
    "JournalEntry",
    "LookedUp",
    "Marker",
    "MergeResult",
    "Slot",
    "TaskHeader",
    "TaskStore",
    "Watermark",
]

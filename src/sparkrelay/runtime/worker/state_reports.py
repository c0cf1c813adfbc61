"""Reports of what a leg's stateful step did to a task's store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.records.batches.encode import next_sequence
from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.runtime.worker.task_steps import task_store
from sparkrelay.state.space import disk_bytes
from sparkrelay.state.window_keys import NO_TIME
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import StepSpec
    from sparkrelay.state import JournalEntry


def state_before(spec: StepSpec, task: TaskCommand) -> StateReport | None:
    """Return what the stateful step of a leg, possibly in another process, did for a task."""
    assert task.directory is not None, "a stateful task has a directory"
    entry = task_store(spec, task).journal_of(spec.leg, number=task.batch, tries=task.tries)
    return None if entry is None else state_report(entry, disk_bytes(task.directory))


def next_in_changelog(task: TaskCommand, changelog: str | None, state: StateReport | None) -> dict[TopicPartition, int]:
    """Return the next sequence number of a task's changelog, if later legs write to it."""
    if changelog is None or state is None:
        return {}
    partition = TopicPartition(changelog, task.task.partition)
    # A record for each key, the description of the store if due, and a marker.
    count = state.keys_changed + (2 if changelog in task.describe else 1)
    return {partition: next_sequence(task.sequences.get(partition, 0), count)}


def state_report(entry: JournalEntry, taken: int | None = None) -> StateReport:
    """Return a leg's journal entry as a report; ``taken`` is the disk usage of the task."""
    timed = entry.watermark != NO_TIME
    without_holding = max(entry.watermark, *entry.sources.values(), NO_TIME)
    known = NO_TIME not in {without_holding, entry.next_end}
    return StateReport(
        entry.store,
        entry.keys,
        entry.rows_late,
        entry.expired if timed else None,
        entry.last_end,
        max(0, entry.next_end - without_holding) if known else None,
        entry.sources_read,
        entry.watermark if timed else None,
        taken,
    )

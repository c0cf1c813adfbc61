"""What a leg's stateful step has done to a task's store, as reports say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.records.batches.encode import next_sequence
from sparkrelay.runtime.contract.commands import StateReport
from sparkrelay.runtime.worker.task_steps import task_store
from sparkrelay.state.space import disk_bytes
from sparkrelay.state.watermarks import NO_TIME
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import StepSpec
    from sparkrelay.state import JournalEntry

__all__ = ["next_in_changelog", "state_before", "state_report"]


def state_before(spec: StepSpec, task: TaskCommand) -> StateReport | None:
    """Return what the stateful step of a leg, which may have run in another process, did for a task."""
    assert task.directory is not None, "a stateful task has a directory"
    entry = task_store(spec, task).journal_of(spec.leg, number=task.batch, tries=task.tries)
    return None if entry is None else state_report(entry, disk_bytes(task.directory))


def next_in_changelog(task: TaskCommand, changelog: str | None, state: StateReport | None) -> dict[TopicPartition, int]:
    """Return the sequence that a task's changelog goes on with behind a leg that others follow in it."""
    if changelog is None or state is None:
        return {}
    partition = TopicPartition(changelog, task.task.partition)
    # Behind a record for each key there is a marker, and in front of that what the store is, where that is to be said.
    count = state.keys_changed + (2 if changelog in task.describe else 1)
    return {partition: next_sequence(task.sequences.get(partition, 0), count)}


def state_report(entry: JournalEntry, taken: int | None = None) -> StateReport:
    """Return what a leg's entry in the journal says, for the driver; ``taken`` are the bytes of the task's state."""
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

"""Removal of obsolete directories of a slot on an executor's host, as the driver commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkrelay.runtime.worker.context import current_command, drain, report_row, reporting
from sparkrelay.state.home.application_home import remove_state
from sparkrelay.state.home.obsolete import clear_abandoned, obsolete

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sparkrelay.types import TaskId


@dataclass(frozen=True, slots=True)
class CleanCommand:
    """What to remove in a slot: tasks that are not kept, if unchanged since ``before`` (epoch seconds)."""

    slot: str
    kept: frozenset[TaskId]
    before: float
    abandoned_before: float


@reporting
def clean_slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Remove obsolete directories; yield one row with their paths."""
    drain(batches)
    command = current_command(CleanCommand)
    slot = Path(command.slot)
    removed = []
    # Checked again each time: the canceller of this job may have opened a copy since.
    while found := obsolete(slot, command.kept, command.before):
        remove_state(found[0])
        removed.append(found[0])
    removed += clear_abandoned(slot, command.abandoned_before)
    yield report_row(list(map(str, removed)))

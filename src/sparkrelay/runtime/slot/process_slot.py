"""What stream threads need of a process's slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from sparkrelay.types import ProcessId, TaskId

__all__ = ["ProcessSlot"]


class ProcessSlot(Protocol):
    """A claimed slot: a ``state.Slot`` on the driver's host, or an ``ExecutorSlot``."""

    path: Path

    @property
    def process_id(self) -> ProcessId:
        """The identity that the slot carries from one process to the next."""

    def task_dir(self, task: TaskId, /) -> Path:
        """Return the directory of a task's state."""

    def holds(self, task: TaskId, /) -> bool:
        """Return whether a task has a directory, as far as known."""

    def task_ids(self) -> list[TaskId]:
        """Return the tasks with local state, sorted."""

    def require_in_place(self) -> None:
        """Check that the directory is still the claimed one; raises StateStoreException."""

    def release(self) -> None:
        """Release the slot, keeping its state."""

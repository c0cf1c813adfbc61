"""The slot of a process that lives on an executor: claimed there, known here.

The driver cannot lock a file on another host. A placed job claims the slot (``worker.slot_keeper``) and tells what the
driver needs: the process's identity, where its tasks' directories are, and which of them hold state.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.process import REPLAY_POOL, run_job
from sparkrelay.runtime.schemas import REPORT_SCHEMA
from sparkrelay.runtime.worker.slot_keeper import (
    ClaimedSlot,
    ClaimOrder,
    ReleaseOrder,
    claim_slot,
    release_slot,
)

if TYPE_CHECKING:
    from sparkrelay.runtime.place import Place
    from sparkrelay.types import ProcessId, TaskId

__all__ = ["ExecutorSlot"]

log = logging.getLogger(__name__)


class ExecutorSlot:
    """A claimed slot on an executor's host. Made by :meth:`claim` only; has what a ``state.Slot`` has."""

    def __init__(self, place: Place, claimed: ClaimedSlot) -> None:
        self._place = place
        self._claimed = claimed
        self.path = Path(claimed.path)
        self.number = claimed.number

    @classmethod
    def claim(cls, place: Place, state_dir: Path | str, application_id: str) -> Self:
        """Take the lowest slot on the executor's host that no living process holds.

        Raises:
            ExecutorLost: the executor is gone.
            StateStoreException: ``state.dir`` cannot be written to there.
            LockException: all slots are held.
        """
        claiming = place.source(1).mapInArrow(claim_slot, REPORT_SCHEMA)
        # A path that means the same on every host and in every working directory.
        order = ClaimOrder(str(Path(state_dir).absolute()), application_id)
        (claimed,) = run_job(
            place,
            claiming,
            order,
            pool=REPLAY_POOL,
            group=place.job_group(f"{application_id}-slot"),
            description=f"{application_id}: claiming a slot on {place.description}",
        )
        log.info("%s has slot %s, process %s", place.description, claimed.path, claimed.process_id)
        return cls(place, claimed)

    @property
    def process_id(self) -> ProcessId:
        """The identity that the slot carries from one executor to the next."""
        return self._claimed.process_id

    def task_dir(self, task: TaskId) -> Path:
        """Return the directory of a task's state, on the executor's host."""
        return self.path / str(task)

    def task_ids(self) -> list[TaskId]:
        """Return the tasks that had local state when the slot was claimed, in order."""
        return list(self._claimed.tasks)

    def release(self) -> None:
        """Give the slot back; its state stays. With the executor gone, its keeper does so by itself."""
        if self._place.lost:
            return
        releasing = self._place.source(1).mapInArrow(release_slot, REPORT_SCHEMA)
        order = ReleaseOrder(self._claimed.keeper, self._claimed.keeper_start)
        try:
            run_job(
                self._place,
                releasing,
                order,
                pool=REPLAY_POOL,
                group=self._place.job_group("sparkrelay-slot"),
                description=f"releasing slot {self.path}",
            )
        except SparkRelayError as error:
            log.info("slot %s is given back when its executor ends: %s", self.path, error)

    def __repr__(self) -> str:
        return f"ExecutorSlot({str(self.path)!r}, process_id={self.process_id}, {self._place.description})"

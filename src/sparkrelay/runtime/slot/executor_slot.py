"""The slot of a process on an executor.

The driver cannot lock a file on another host. A job on the executor claims the slot (``worker.slot_keeper``) and
reports its process id, the directories of its tasks, and which of them hold state.
"""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from sparkrelay.runtime.spark.cancelling import cancelled_when
from sparkrelay.runtime.spark.jobs import REPORT_SCHEMA, RESTORE_POOL, run_job
from sparkrelay.runtime.worker.cleaning import CleanCommand, clean_slot
from sparkrelay.runtime.worker.slot_keeper import (
    ClaimCommand,
    ClaimedSlot,
    ReleaseCommand,
    claim_slot,
    release_slot,
)
from sparkrelay.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.state import Slot

#: A claimed slot, on the driver's host or an executor's.
ProcessSlot: TypeAlias = "Slot | ExecutorSlot"

log = logging.getLogger(__name__)

_GROUP: Final = "sparkrelay-slot"
#: Separate job groups: cancelling one ends nothing else.
_CLEANING: Final = "sparkrelay-cleaning"
_RELEASING: Final = "sparkrelay-release-slot"
#: The release may queue for a core, or for an executor if the last one has died.
_RELEASE_SECONDS: Final = 10.0


class ExecutorSlot:
    """A claimed slot on an executor's host; see :meth:`claim`."""

    def __init__(self, target: ExecutorTarget, claimed: ClaimedSlot) -> None:
        self._target = target
        self._claimed = claimed
        self.path = Path(claimed.path)
        #: The identity that the slot carries from one executor to the next.
        self.process_id = claimed.process_id
        #: The executor's host, rack and tags.
        self.host_metadata = claimed.host_metadata
        #: Every task that may have state there: found by the claim, or given a directory since.
        self._used = set(claimed.tasks)
        self._removed: set[TaskId] = set()
        #: The tasks whose copies certainly exist, during a clean-up and after one of unknown outcome; else None.
        self._sure: frozenset[TaskId] | None = None

    @classmethod
    def claim(cls, target: ExecutorTarget, state_dir: Path | str | None, application_id: str) -> Self:
        """Claim the lowest free slot on the executor's host.

        Raises:
            ExecutorLost: the executor is gone.
            StateStoreException: ``state.dir`` cannot be written to there.
            LockException: all slots are taken.
        """
        # Absolute, whatever the worker's working directory. The worker determines the default.
        command = ClaimCommand(None if state_dir is None else str(Path(state_dir).absolute()), application_id)
        (claimed,) = _run(target, claim_slot, command, f"{application_id}: claiming a slot")
        log.info("%s has slot %s, process %s", target.description, claimed.path, claimed.process_id)
        return cls(target, claimed)

    def task_dir(self, task: TaskId) -> Path:
        """Return the directory of a task's state, on the executor's host."""
        self._used.add(task)
        return self.path / str(task)

    def holds(self, task: TaskId) -> bool:
        """Return whether a task has a directory there, as far as known; False once it may have been cleaned up."""
        return task not in self._removed and (self._sure is None or task in self._sure)

    def require_in_place(self) -> None:
        """Do nothing: only workers can check."""

    def task_ids(self) -> list[TaskId]:
        """Return the tasks with local state there, as far as known, sorted."""
        return sorted(task for task in self._used.copy() if self.holds(task))

    def remove_obsolete(self, kept: frozenset[TaskId], before: float, abandoned_before: float) -> list[Path]:
        """Remove copies of other tasks that are unchanged since ``before`` (epoch seconds); return the removed paths.

        Raises:
            ExecutorLost: the executor is gone.
            SparkRelayError: something cannot be removed.
        """
        command = CleanCommand(str(self.path), kept, before, abandoned_before)
        what = f"cleaning up {self.path}"
        sure, self._sure = self._sure, kept
        paths = [Path(path) for path in _run(self._target, clean_slot, command, what, group=_CLEANING)]
        self._removed -= kept
        self._sure = None if sure is None else sure | kept
        for path in paths:
            log.info("%s: removed %s: no longer used (state.cleanup.delay.ms)", self._target.description, path)
            if path.parent == self.path:
                with contextlib.suppress(ValueError):
                    self._removed.add(TaskId.parse(path.name))
        return paths

    def cancel_removal(self) -> None:
        """Cancel a :meth:`remove_obsolete` of another thread."""
        self._target.cancel(self._target.job_group(_CLEANING))

    def release(self) -> None:
        """Release the slot, keeping its state. If the executor is gone, its keeper does so by itself."""
        command = ReleaseCommand(self._claimed.keeper, self._claimed.keeper_start)
        deadline = time.monotonic() + _RELEASE_SECONDS
        try:
            # Renewed: a stop closes the target of a process in the making although the executor lives.
            target = self._target.renewed()
            target.require_alive()
            group = target.job_group(_RELEASING)
            # The watch over the executors does not know this target.
            with cancelled_when(lambda: time.monotonic() >= deadline, lambda: target.cancel(group)):
                _run(target, release_slot, command, f"releasing slot {self.path}", group=_RELEASING)
        except Exception as error:  # noqa: BLE001 - without Spark it may be anything, and a stop must complete
            log.info("slot %s is released when its executor ends: %s", self.path, error)

    def __repr__(self) -> str:
        return f"ExecutorSlot({str(self.path)!r}, process_id={self.process_id}, {self._target.description})"


def _run(
    target: ExecutorTarget,
    step: Callable[..., Iterator[pa.RecordBatch]],
    command: object,
    description: str,
    *,
    group: str = _GROUP,
) -> list[Any]:
    """Run a worker step once, in one of the executor's slots."""
    frame = target.source(1).mapInArrow(step, REPORT_SCHEMA)
    text = f"{description} on {target.description}"
    return run_job(target, frame, command, pool=RESTORE_POOL, group=target.job_group(group), description=text)

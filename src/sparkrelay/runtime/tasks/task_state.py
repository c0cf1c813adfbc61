"""The states of a task, what happens to it, and what it answers with.

    ASSIGNED_STANDBY  CREATED, RESTORING, RUNNING --> STANDBY    RestoreWork that follows the changelog
    ASSIGNED_ACTIVE   STANDBY --> CREATED
    INITIALIZED       CREATED --> RESTORING                      RestoreWork up to the changelogs' ends
    RESTORED          RESTORING --> RUNNING
    HINDERED          RESTORING --> CREATED                      the broker was silent: initialized once more
    FELL_OUT          CREATED, RESTORING, RUNNING --> CREATED    fenced, outcome unknown, or its store lost step
    BATCH_BEGUN       RUNNING, CLOSED                            TaskCommand, one for each wave
    BATCH_COMMITTED   RUNNING, CLOSED
    BATCH_ABORTED     RUNNING, CLOSED
    WITHDRAWN         any but CLOSED --> CLOSED                  RestoreCommand that closes its stores

The events of a batch belong to the batch thread, all others to the stream thread; docs/internals/exactly-once.md says
when which of them has a task. They come in CLOSED as well: nobody waits for the batch of a task that was lost.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FOLLOWING", "TRANSITIONS", "TaskEvent", "TaskState"]


class TaskState(enum.Enum):
    """Where a task stands on its stream thread."""

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    STANDBY = "standby"
    CLOSED = "closed"


class TaskEvent(enum.Enum):
    """What happens to a task."""

    ASSIGNED_STANDBY = "assigned as a standby"
    ASSIGNED_ACTIVE = "assigned as an active task"
    INITIALIZED = "initialized"
    RESTORED = "restored"
    HINDERED = "hindered"
    FELL_OUT = "fell out of service"
    BATCH_BEGUN = "batch begun"
    BATCH_COMMITTED = "batch committed"
    BATCH_ABORTED = "batch aborted"
    WITHDRAWN = "withdrawn"


_ACTIVE: Final = frozenset({TaskState.CREATED, TaskState.RESTORING, TaskState.RUNNING})
_IN_BATCH: Final = frozenset({TaskState.RUNNING, TaskState.CLOSED})

#: The states in which an event may come, and the one that it leads to (None: it changes none).
TRANSITIONS: Final[Mapping[TaskEvent, tuple[frozenset[TaskState], TaskState | None]]] = {
    TaskEvent.ASSIGNED_STANDBY: (_ACTIVE, TaskState.STANDBY),
    TaskEvent.ASSIGNED_ACTIVE: (frozenset({TaskState.STANDBY}), TaskState.CREATED),
    TaskEvent.INITIALIZED: (frozenset({TaskState.CREATED}), TaskState.RESTORING),
    TaskEvent.RESTORED: (frozenset({TaskState.RESTORING}), TaskState.RUNNING),
    TaskEvent.HINDERED: (frozenset({TaskState.RESTORING}), TaskState.CREATED),
    TaskEvent.FELL_OUT: (_ACTIVE, TaskState.CREATED),
    TaskEvent.BATCH_BEGUN: (_IN_BATCH, None),
    TaskEvent.BATCH_COMMITTED: (_IN_BATCH, None),
    TaskEvent.BATCH_ABORTED: (_IN_BATCH, None),
    TaskEvent.WITHDRAWN: (_ACTIVE | {TaskState.STANDBY}, TaskState.CLOSED),
}
#: State -> the states that may come after it.
FOLLOWING: Final = {
    state: frozenset(to for sources, to in TRANSITIONS.values() if state in sources and to is not None)
    for state in TaskState
}

"""The states of a task, its events, and what they return.

    ASSIGNED_STANDBY  CREATED, RESTORING, RUNNING --> STANDBY    RestoreWork that follows the changelog
    ASSIGNED_ACTIVE   STANDBY --> CREATED
    INITIALIZED       CREATED --> RESTORING                      RestoreWork up to the changelogs' ends
    RESTORED          RESTORING --> RUNNING
    HINDERED          RESTORING --> CREATED                      the broker did not answer: initialized again
    FELL_OUT          CREATED, RESTORING, RUNNING --> CREATED    fenced, outcome unknown, or store out of step
    BATCH_BEGUN       RUNNING, CLOSED                            TaskCommand, one for each wave
    BATCH_COMMITTED   RUNNING, CLOSED
    BATCH_ABORTED     RUNNING, CLOSED
    WITHDRAWN         any but CLOSED --> CLOSED                  RestoreCommand that closes its stores

The batch thread sends the events of a batch, the stream thread all others; docs/internals/exactly-once.md says which of
them owns a task when. A batch may end in CLOSED too: nobody waits for the batch of a lost task.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class TaskState(enum.Enum):
    """The state of a task on its stream thread."""

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    STANDBY = "standby"
    CLOSED = "closed"


class TaskEvent(enum.Enum):
    """An event in the life of a task."""

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

#: Event -> the states in which it may occur, and the next state (None: unchanged).
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
#: State -> the possible next states.
FOLLOWING: Final = {
    state: frozenset(to for sources, to in TRANSITIONS.values() if state in sources and to is not None)
    for state in TaskState
}

"""What the state updater needs from others, and its pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sparkrelay.runtime.tasks.restore_listeners import RestoreNotices
    from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
    from sparkrelay.runtime.tasks.restore_work import Ends
    from sparkrelay.types import TaskId, TopicPartition


@dataclass(frozen=True, slots=True)
class RestorePace:
    """Durations in seconds.

    Attributes:
        slice: target duration of a slice. Spark's FAIR pools do not preempt, so a batch may wait that long for a core.
            In shorter slices the job would outweigh its records: Spark takes 50 ms of each, on a quiet machine.
        restore: the same while the process runs no tasks that could wait for a core: fewer jobs, less overhead.
        idle: pause when there is nothing to do.
        settled_idle: pause when all are standbys and none is new.
        settled_after: how long a complete copy counts as new: its task may be about to move to it.
        longest_wait: how long a slice may keep a task from leaving before it is cancelled. A slice with a core is
            shorter.
        stale: age at which end offsets listed before a slice are listed again after it.
        retry: pause after the first failed Spark job; it doubles after each. A new daemon of Python workers takes
            seconds to start, a minute on a busy host.
    """

    slice: float = 0.2
    restore: float = 1.0
    idle: float = 0.2
    settled_idle: float = 1.0
    settled_after: float = 10.0
    longest_wait: float = 5.0
    stale: float = 1.0
    retry: float = 1.0


@dataclass(frozen=True, slots=True)
class RestoreSurroundings:
    """What the updater asks and notifies, on its thread.

    Attributes:
        interrupt: interrupts these two, now and later. Called on any thread.
        active_elsewhere: returns the tasks that other threads of the process initialize or run.
        on_slice: called after each slice with the unfinished copies and the number of applied records.
    """

    list_ends: Callable[[list[TopicPartition]], Ends]
    topic_ids: Callable[[Collection[str]], Mapping[str, str]] = lambda _: {}
    interrupt: Callable[[], None] = lambda: None
    running: Callable[[], bool] = lambda: False
    active_elsewhere: Callable[[], Collection[TaskId]] = frozenset
    on_slice: Callable[[Sequence[RestoreProgress], int], None] = lambda _, __: None
    on_set_aside: Callable[[], None] = lambda: None
    notices: RestoreNotices | None = None

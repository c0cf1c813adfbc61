"""What the state updater needs of others, and how it paces itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sparkrelay.runtime.tasks.restore_listeners import RestoreNotices
    from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
    from sparkrelay.runtime.tasks.restore_work import Ends
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["RestorePace", "RestoreSurroundings"]


@dataclass(frozen=True, slots=True)
class RestorePace:
    """How long things may take, in seconds.

    Attributes:
        slice: about how long a slice may take.
        restore: the same where tasks are restored while the process runs none that would wait for a core.
        idle: pause where nothing is to do.
        settled_idle: the same where all are standbys, and none of them is new.
        settled_after: how long a copy is new once it is complete: its task may wait to move to it.
        longest_wait: how long a slice may keep a task from leaving before it is cancelled.
        stale: how long ends that were listed before a slice say how far its copies are behind.
        retry: pause after the first Spark job that fails; it doubles after each.
    """

    #: FAIR pools do not preempt, so a batch may have to wait for a core as long as a slice takes. In a shorter one the
    #: job would take longer than its records: 50 ms of each are Spark's, on a quiet machine.
    slice: float = 0.2
    #: What a restore loses to the beginnings and ends of jobs.
    restore: float = 1.0
    idle: float = 0.2
    settled_idle: float = 1.0
    settled_after: float = 10.0
    #: A slice takes a moment, once it has a core.
    longest_wait: float = 5.0
    stale: float = 1.0
    #: A new daemon of Python workers takes seconds to start, a minute on a busy host.
    retry: float = 1.0


@dataclass(frozen=True, slots=True)
class RestoreSurroundings:
    """What is asked and notified, on the updater's thread.

    Attributes:
        list_ends: gives read_committed end offsets.
        topic_ids: gives the ids of topics.
        interrupt: breaks off these two, now and later. Called on any thread.
        running: says whether the process runs tasks.
        active_elsewhere: returns which tasks other threads of the process open or run.
        on_slice: called after each slice, with the copies that are still behind and the number of records applied.
        on_set_aside: called when a copy that could not be used was set aside.
        notices: is given where copies stand after each slice, and which tasks have left.
    """

    list_ends: Callable[[list[TopicPartition]], Ends]
    topic_ids: Callable[[Collection[str]], Mapping[str, str]] = lambda _: {}
    interrupt: Callable[[], None] = lambda: None
    running: Callable[[], bool] = lambda: False
    active_elsewhere: Callable[[], Collection[TaskId]] = frozenset
    on_slice: Callable[[Sequence[RestoreProgress], int], None] = lambda _, __: None
    on_set_aside: Callable[[], None] = lambda: None
    notices: RestoreNotices | None = None

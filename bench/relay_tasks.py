"""What an instance of SparkRelay reports of its tasks, for the bench of availability; see ``bench.instance``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.instance import Reporter
    from sparkrelay.runtime.instance.kafka_streams import KafkaStreams

__all__ = ["RelayTasks"]


class RelayTasks:
    """Looks at the tasks, and reports what has changed since the last look.

    A task is named by its partition: the bench's topology has one sub-topology.
    """

    def __init__(self, streams: KafkaStreams, report: Reporter) -> None:
        self._streams = streams
        self._report = report
        self._reported: dict[str, Any] = {}
        self._restored = 0
        self._restoring_since: float | None = None

    def look(self) -> None:
        """Report places that changed, and a restore that has ended."""
        snapshot = self._streams.snapshot()
        now = time.time()
        places: dict[str, dict[str, Any]] = {}
        began: list[float] = []
        for thread in snapshot.threads:
            place = places.setdefault(thread.executor_id or "", {"active": [], "restoring": {}, "standby": {}})
            for task in (*thread.active_tasks, *thread.standby_tasks):
                partition = task.task_id.rpartition("_")[2]
                if task.state == "running":
                    place["active"].append(int(partition))
                else:
                    place["standby" if task.state == "standby" else "restoring"][partition] = task.changelog_lag
                if task.state == "restoring" and task.replay_began is not None:
                    began.append(task.replay_began.timestamp())
        if places != self._reported:
            self._reported = places
            self._report("tasks", at=now, places=places)
        if began:
            self._restoring_since = min([*began, *filter(None, [self._restoring_since])])
            return
        if self._restoring_since is not None and not any(place["restoring"] for place in places.values()):
            count = snapshot.totals.restored - self._restored
            self._report("restored", count=count, began=self._restoring_since, ended=now)
            self._restoring_since = None
        if self._restoring_since is None:
            self._restored = snapshot.totals.restored

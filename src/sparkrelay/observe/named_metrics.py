"""An instance's metrics under Kafka Streams' names, where they mean the same; others are in ``exposition``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.observe.counters import Durations
    from sparkrelay.observe.snapshot import InstanceSnapshot


def named_metrics(snapshot: InstanceSnapshot) -> Mapping[str, float]:
    """Return the metrics of an instance by name; totals since its creation, averages in milliseconds.

    - ``alive-stream-threads``, ``failed-stream-threads``
    - ``process-total``: input records, in offsets, of committed micro-batches; ``process-latency-avg``: of a batch
    - ``commit-total``, ``commit-latency-avg``
    - ``dropped-records-total``: records left out by an exception handler, and rows that arrived after the watermark or
      the history of a table, including those that ``late_to=`` writes to a topic
    - ``restore-total``: changelog records, including standbys'
    - ``rebalance-total``, ``rebalance-latency-avg``
    - ``records-lag``: input not yet processed by running tasks; ``records-lag-max``: of one partition
    - ``active-tasks``, ``standby-tasks``
    """
    totals, threads = snapshot.totals, snapshot.threads
    lags = [
        max(0, end - task.committed_offsets[partition])
        for thread in threads
        for task in thread.active_tasks
        for partition, end in task.end_offsets.items()
    ]
    return {
        "alive-stream-threads": sum(thread.thread_state != "DEAD" for thread in threads),
        "failed-stream-threads": totals.errors["thread"],
        "process-total": sum(totals.records.values()),
        "process-latency-avg": _average_ms(totals.batches),
        "commit-total": totals.commits.count,
        "commit-latency-avg": _average_ms(totals.commits),
        "dropped-records-total": sum(totals.skipped.values()) + sum(totals.late.values()),
        "restore-total": totals.restored,
        "rebalance-total": totals.rebalances.count,
        "rebalance-latency-avg": _average_ms(totals.rebalances),
        "records-lag": sum(lags),
        "records-lag-max": max(lags, default=0),
        "active-tasks": sum(len(thread.active_tasks) for thread in threads),
        "standby-tasks": sum(len(thread.standby_tasks) for thread in threads),
    }


def _average_ms(durations: Durations) -> float:
    return 1000 * durations.total_s / durations.count if durations.count else 0.0

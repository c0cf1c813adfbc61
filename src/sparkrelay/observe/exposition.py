"""An instance's numbers as Prometheus knows them: one family a metric, units in the names, seconds and offsets.

docs/watching.md lists them for people; a test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from sparkrelay.observe.counters import Durations, Totals
    from sparkrelay.observe.snapshot import InstanceSnapshot, TaskMetadata

__all__ = ["InstanceCollector", "families"]

_STATES: Final = ("CREATED", "REBALANCING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING", "PENDING_ERROR", "ERROR")
_TASK_STATES: Final = ("created", "restoring", "running", "standby")


class InstanceCollector(Collector):
    """Gives a registry the numbers of an instance, as they are when somebody asks."""

    def __init__(self, read: Callable[[], InstanceSnapshot]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        yield from families(self._read())


def families(instance: InstanceSnapshot) -> Iterator[Metric]:
    """Return every metric of a snapshot."""
    ids = {"application_id": instance.application_id}
    yield InfoMetricFamily("sparkrelay_instance", "Which application this is.", ids)
    state = GaugeMetricFamily("sparkrelay_state", "1 for the state that the instance is in, else 0.", labels=["state"])
    for name in _STATES:
        state.add_metric([name], float(name == instance.state))
    yield state
    # An instance may have several processes, and two of them may hold copies of one task. Within a process a task that
    # changes threads may be seen twice for a moment, but no series may come twice.
    active = {(thread.process_id, task.task_id): task for thread in instance.threads for task in thread.active_tasks}
    standby = {(thread.process_id, task.task_id): task for thread in instance.threads for task in thread.standby_tasks}
    yield from _of_tasks(active, standby)
    yield from _of_totals(instance.totals)


def _of_tasks(
    active: Mapping[tuple[str, str], TaskMetadata], standby: Mapping[tuple[str, str], TaskMetadata]
) -> Iterator[Metric]:
    tasks = GaugeMetricFamily("sparkrelay_tasks", "Tasks of the instance, by what they do.", labels=["state"])
    states = [task.state for task in (*active.values(), *standby.values())]
    for state in _TASK_STATES:
        tasks.add_metric([state], states.count(state))
    yield tasks
    lag = GaugeMetricFamily(
        "sparkrelay_task_lag",
        "Records of input that a running task has not processed yet, in offsets.",
        labels=["process", "task", "topic", "partition"],
    )
    for (process, name), task in active.items():
        for partition, end in sorted(task.end_offsets.items()):
            labels = [process, name, partition.topic, str(partition.partition)]
            lag.add_metric(labels, max(0, end - task.committed_offsets[partition]))
    yield lag
    remaining = GaugeMetricFamily(
        "sparkrelay_restore_remaining",
        "Changelog offsets that a task still has to read before it runs.",
        labels=["process", "task"],
    )
    began = GaugeMetricFamily(
        "sparkrelay_restore_start_timestamp_seconds",
        "When the restore of a task began, in seconds since the epoch.",
        labels=["process", "task"],
    )
    for (process, name), task in active.items():
        if task.state == "restoring" and task.changelog_lag is not None:
            remaining.add_metric([process, name], task.changelog_lag)
        if task.replay_began is not None:
            began.add_metric([process, name], task.replay_began.timestamp())
    yield remaining
    yield began
    behind = GaugeMetricFamily(
        "sparkrelay_standby_lag", "Changelog offsets that a standby's copy is behind.", labels=["process", "task"]
    )
    for (process, name), task in standby.items():
        if task.changelog_lag is not None:
            behind.add_metric([process, name], task.changelog_lag)
    yield behind


def _of_totals(totals: Totals) -> Iterator[Metric]:
    yield CounterMetricFamily("sparkrelay_batches", "Micro-batches, failed ones too.", value=totals.batches.count)
    yield _histogram(
        "sparkrelay_batch_seconds",
        "Time of a micro-batch, from looking at the inputs to the last commit.",
        totals.batches,
    )
    yield _histogram(
        "sparkrelay_commit_seconds", "Time to commit a micro-batch: offsets and transactions.", totals.commits
    )
    if totals.last_batch_at is not None:
        yield GaugeMetricFamily(
            "sparkrelay_last_batch_timestamp_seconds",
            "When the last micro-batch ended, in seconds since the epoch.",
            value=totals.last_batch_at,
        )
    yield _counter(
        "sparkrelay_records", "Input processed and committed, in offsets of the topic.", "topic", totals.records
    )
    yield _counter(
        "sparkrelay_dropped_records", "Input records left out by an exception handler.", "topic", totals.skipped
    )
    yield _counter(
        "sparkrelay_lost_records",
        "Offsets whose records were deleted before they were read (on.data.loss=continue).",
        "topic",
        totals.lost,
    )
    yield _counter(
        "sparkrelay_late_rows",
        "Rows dropped because they arrived after the watermark, or after the table's history.",
        "store",
        totals.late,
    )
    yield CounterMetricFamily(
        "sparkrelay_rows_written", "Rows written to sink and repartition topics and committed.", totals.rows_written
    )
    yield CounterMetricFamily(
        "sparkrelay_replayed_records", "Changelog records applied by restores and standbys.", totals.restored
    )
    yield CounterMetricFamily(
        "sparkrelay_rebalances", "Rebalances that ended with every task in service.", totals.rebalances.count
    )
    yield _histogram(
        "sparkrelay_rebalance_seconds",
        "Time of a rebalance, from joining until every task is in service.",
        totals.rebalances,
    )
    yield CounterMetricFamily(
        "sparkrelay_task_reopens",
        "Times a task was initialized again because a batch left it in doubt.",
        totals.reopened,
    )
    yield _counter("sparkrelay_errors", "What went wrong, by where.", "where", totals.errors)


def _counter(name: str, meaning: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    """Return a counter with a sample for each value of its label."""
    found = CounterMetricFamily(name, meaning, labels=[label])
    for value, count in sorted(counts.items()):
        found.add_metric([value], count)
    return found


def _histogram(name: str, meaning: str, durations: Durations) -> HistogramMetricFamily:
    buckets = [(str(bound), float(count)) for bound, count in zip(durations.bounds_s, durations.counts, strict=True)]
    return HistogramMetricFamily(name, meaning, [*buckets, ("+Inf", float(durations.count))], durations.total_s)

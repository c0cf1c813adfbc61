"""An instance's numbers as Prometheus metrics: units in the names, seconds and offsets.

docs/watching.md lists them; a test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from sparkrelay.observe.counters import Totals
    from sparkrelay.observe.snapshot import InstanceSnapshot, TaskMetadata

_STATES: Final = ("CREATED", "REBALANCING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING", "PENDING_ERROR", "ERROR")
_TASK_STATES: Final = ("created", "restoring", "running", "standby")
_TASK: Final = ("process", "task")


class InstanceCollector(Collector):
    """Gives a registry the current numbers of an instance."""

    def __init__(self, read: Callable[[], InstanceSnapshot]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        yield from families(self._read())


def families(instance: InstanceSnapshot) -> Iterator[Metric]:
    """Return every metric of a snapshot."""
    ids = {"application_id": instance.application_id}
    yield InfoMetricFamily("sparkrelay_instance", "Which application this is.", ids)
    in_state = [([name], float(name == instance.state)) for name in _STATES]
    yield _gauge("state", "1 for the state that the instance is in, else 0.", ["state"], in_state)
    # An instance may have several processes, two of which may hold copies of a task. A task that changes threads may be
    # seen twice in its process for a moment, but no series may be emitted twice.
    active = {(thread.process_id, task.task_id): task for thread in instance.threads for task in thread.active_tasks}
    standby = {(thread.process_id, task.task_id): task for thread in instance.threads for task in thread.standby_tasks}
    yield from _of_tasks(active, standby)
    yield from _of_totals(instance.totals)


def _of_tasks(
    active: Mapping[tuple[str, str], TaskMetadata], standby: Mapping[tuple[str, str], TaskMetadata]
) -> Iterator[Metric]:
    states = [task.state for task in (*active.values(), *standby.values())]
    in_state = [([state], states.count(state)) for state in _TASK_STATES]
    yield _gauge("tasks", "Tasks of the instance, by what they do.", ["state"], in_state)
    lags = [
        ((*key, at.topic, str(at.partition)), max(0, end - task.committed_offsets[at]))
        for key, task in active.items()
        for at, end in sorted(task.end_offsets.items())
    ]
    meaning = "Records of input that a running task has not processed yet, in offsets."
    yield _gauge("task_lag", meaning, [*_TASK, "topic", "partition"], lags)
    lacking = [(key, task.changelog_lag) for key, task in active.items() if task.state == "restoring"]
    yield _gauge("restore_remaining", "Changelog offsets that a task still has to read before it runs.", _TASK, lacking)
    began = [(k, t.replay_began.timestamp()) for k, t in active.items() if t.replay_began is not None]
    meaning = "When the restore of a task began, in seconds since the epoch."
    yield _gauge("restore_start_timestamp_seconds", meaning, _TASK, began)
    behind = [(key, task.changelog_lag) for key, task in standby.items()]
    yield _gauge("standby_lag", "Changelog offsets that a standby's copy is behind.", _TASK, behind)


def _of_totals(totals: Totals) -> Iterator[Metric]:
    for name, meaning, durations in (
        ("batch", "Time of a micro-batch, from looking at the inputs to the last commit.", totals.batches),
        ("commit", "Time to commit a micro-batch: offsets and transactions.", totals.commits),
        ("rebalance", "Time of a rebalance, from joining until every task is in service.", totals.rebalances),
    ):
        buckets = [(str(bound), float(n)) for bound, n in zip(durations.bounds_s, durations.counts, strict=True)]
        buckets.append(("+Inf", float(durations.count)))
        yield HistogramMetricFamily(f"sparkrelay_{name}_seconds", meaning, buckets, durations.total_s)
    if totals.last_batch_at is not None:
        meaning = "When the last micro-batch ended, in seconds since the epoch."
        yield GaugeMetricFamily("sparkrelay_last_batch_timestamp_seconds", meaning, totals.last_batch_at)
    for name, meaning, label, counts in (
        ("records", "Input processed and committed, in offsets of the topic.", "topic", totals.records),
        ("dropped_records", "Input records left out by an exception handler.", "topic", totals.skipped),
        ("lost_records", "Offsets deleted before they were read (on.data.loss=continue).", "topic", totals.lost),
        ("late_rows", "Rows that arrived after the watermark, or after the table's history.", "store", totals.late),
        ("errors", "What went wrong, by where.", "where", totals.errors),
    ):
        family = CounterMetricFamily(f"sparkrelay_{name}", meaning, labels=[label])
        for value, count in sorted(counts.items()):
            family.add_metric([value], count)
        yield family
    for name, meaning, number in (
        ("batches", "Micro-batches, failed ones too.", totals.batches.count),
        ("rows_written", "Rows written to sink and repartition topics and committed.", totals.rows_written),
        ("replayed_records", "Changelog records applied by restores and standbys.", totals.restored),
        ("rebalances", "Rebalances that ended with every task in service.", totals.rebalances.count),
        ("task_reopens", "Times a task was initialized again because a batch left it in doubt.", totals.reopened),
    ):
        yield CounterMetricFamily(f"sparkrelay_{name}", meaning, number)


def _gauge(
    name: str, meaning: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float | None]]
) -> GaugeMetricFamily:
    """Return a gauge with a sample for each combination of label values, except those that are None."""
    family = GaugeMetricFamily(f"sparkrelay_{name}", meaning, labels=labels)
    for values, number in samples:
        if number is not None:
            family.add_metric(values, number)
    return family

"""The first step of a leg: fetch the batch's ranges, decode them in Arrow, and yield the wanted columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay import hidden_columns
from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.contract.commands import BatchCommand
from sparkrelay.runtime.contract.failure_marks import BatchTooLarge, WorkerFailure
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, drain, leg_tasks
from sparkrelay.runtime.worker.decoding import decoded_rows, raw_columns, rows_together
from sparkrelay.runtime.worker.skipped_records import SkippedRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from sparkrelay.runtime.contract.specs import FetchSpec
    from sparkrelay.runtime.worker.decoding import Fetched
    from sparkrelay.types import TopicPartition

#: Records that are decoded alone; smaller fetches are gathered.
_FEW: Final = 4_096


def fetch_leg(spec: FetchSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the ranges that the command gives this Spark partition."""
    drain(batches)
    connections.begin_step()
    tasks = leg_tasks(spec)
    ranges = {
        partition: span
        for task in tasks
        for partition, span in task.ranges.items()
        if partition.topic in spec.topics and span[0] < span[1]
    }
    if not ranges:
        return
    topic_ids = {topic: id_ for task in tasks for topic, id_ in task.topic_ids.items()}
    times: dict[TopicPartition, int] = {}
    fixed = {partition for task in tasks if task.fixed for partition in task.ranges}
    most = current_command(BatchCommand).max_bytes
    skipped = SkippedRecords(spec, tasks)
    bytes_read = BytesRead({partition: span for partition, span in ranges.items() if partition not in fixed}, most)

    def fetched() -> Iterator[Fetched]:
        for partition, batch in _fetched(spec, ranges, topic_ids, most):
            if partition not in fixed:
                bytes_read.add(batch, batch.num_rows)
            rest = skipped.left_out(partition, batch)
            if rest.num_rows:
                yield partition, rest

    by_partition = hidden_columns.PARTITION_TIME in spec.output.names
    try:
        for few in _gathered(fetched(), lambda partition: by_partition or partition in fixed):
            fault_points.reach("fetch-first-rows")
            for rows in _decoded_few(spec, few, times, skipped):
                if few[0][0] not in fixed:
                    bytes_read.add(rows)
                yield rows
        skipped.close()
    except SparkRelayError as error:
        connections.forget_fetcher(spec.client)
        raise WorkerFailure(error, spec.failure_key) from None


def _gathered(parts: Iterator[Fetched], alone: Callable[[TopicPartition], bool]) -> Iterator[list[Fetched]]:
    """Yield small fetches of several partitions together, and large ones alone."""
    few: list[Fetched] = []
    for partition, batch in parts:
        if alone(partition) or batch.num_rows >= _FEW:
            if few:
                yield few
            yield [(partition, batch)]
            few = []
            continue
        few.append((partition, batch))
        if sum(each.num_rows for _, each in few) >= _FEW:
            yield few
            few = []
    if few:
        yield few


def _decoded_few(
    spec: FetchSpec, few: Sequence[Fetched], times: dict[TopicPartition, int], skipped: SkippedRecords
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of fetches: of several partitions together, unless one has bad records."""
    together = rows_together(spec, few) if len(few) > 1 else None
    if together is not None:
        yield together
        return
    for partition, batch in few:
        yield decoded_rows(spec, partition, batch, times, skipped)


class BytesRead:
    """The bytes of a leg's records in one Spark partition, as fetched and decoded; at most ``most`` (0: unlimited).

    A single record per partition may be larger.
    """

    def __init__(self, ranges: Mapping[TopicPartition, tuple[int, int]], most: int) -> None:
        self._records = sum(stop - start for start, stop in ranges.values())
        self._most = most if self._records > len(ranges) else 0
        self._bytes = self._read = 0

    def add(self, rows: pa.RecordBatch, records: int = 0) -> None:
        """Count rows, and the records fetched with them. Raises BatchTooLarge above the limit."""
        self._bytes += rows.nbytes
        self._read += records
        if self._most and self._bytes > self._most:
            raise BatchTooLarge(
                f"{self._read:,} of {self._records:,} records take {self._bytes:,} bytes, as fetched and decoded, and "
                f"max.batch.bytes allows {self._most:,} in a Spark partition",
                share=int(1_000_000 * self._most / self._bytes * self._read / self._records),
            )


def _fetched(
    spec: FetchSpec,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    topic_ids: Mapping[str, str],
    max_bytes: int,
) -> Iterator[Fetched]:
    fetcher, columns = connections.fetcher(spec.client), raw_columns(spec)
    # Several partitions come in the order of the brokers' answers.
    parts = [{partition: ranges[partition]} for partition in sorted(ranges)] if spec.in_order else [ranges]
    for part in parts:
        yield from fetcher.fetch(part, columns=columns, max_bytes=max_bytes or None, topic_ids=topic_ids)

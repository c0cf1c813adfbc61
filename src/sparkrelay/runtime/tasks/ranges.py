"""How much input tasks take, how far behind they are, and how work is spread over Spark partitions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.types import TaskId, TopicPartition

Ranges = dict["TopicPartition", tuple[int, int]]


def behind(offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return the number of offsets up to the known ends."""
    return sum(max(0, end - offsets.get(partition, 0)) for partition, end in ends.items())


def stops_of(
    positions: Mapping[TopicPartition, int], ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """Return a task's offsets after a batch, given its offsets before."""
    return {**positions, **{partition: stop for partition, (_, stop) in ranges.items()}}


def count_records(ranges: Mapping[TopicPartition, tuple[int, int]]) -> int:
    """Return the number of offsets in ranges."""
    return sum(stop - start for start, stop in ranges.values())


def topics_behind(stops: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> frozenset[str]:
    """Return the topics with records after these offsets."""
    return frozenset(partition.topic for partition, end in ends.items() if stops.get(partition, 0) < end)


def source_offsets(
    partitions: Iterable[TopicPartition],
    copied: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the offsets of tables that reuse their topic: those of their copy, which is at the group's offset.

    A copy behind the group's offset cannot get further: the topic ends before it, so its reader is refused. Partitions
    without copied records are left out.
    """
    return {p: max(copied[p], committed.get(p, 0)) for p in partitions if copied.get(p)}


def require_inputs(
    application: str, positions: Mapping[TaskId, Mapping[TopicPartition, int]], ends: Mapping[TopicPartition, int]
) -> None:
    """Raise StreamsException if an input ends before its task's position: the new log's start would be skipped."""
    for id_, offsets in positions.items():
        for partition, offset in offsets.items():
            if ends.get(partition, offset) < offset:
                raise StreamsException(
                    f"task {id_} is at offset {offset} of {partition}, but the log ends at {ends[partition]}: "
                    "the topic was deleted and created again, or lost records. Start over with sparkrelay reset "
                    f"--application-id {application} ..., or, for a pipeline without state, set the group's offset to "
                    "an existing one: sparkrelay offsets set"
                )


def plan_ranges(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    limit: int,
    first: Collection[str] = (),
) -> Ranges:
    """Choose offsets ``[from, to)`` for one task, at most ``limit`` in total, fairly between its partitions.

    Each partition may take an equal share; unused shares go to the others, smallest backlog first. While one of the
    tables (topics in ``first``) is behind, lookups wait: they would miss rows older than themselves.
    """
    tables = {partition: start for partition, start in positions.items() if partition.topic in first}
    if not tables:
        return _fairly(positions, ends, limit)
    ranges = _fairly(tables, ends, limit)
    left = limit - count_records(ranges)
    if all(ranges.get(p, (start, start))[1] >= ends.get(p, 0) for p, start in tables.items()):
        others = {partition: start for partition, start in positions.items() if partition not in tables}
        ranges |= _fairly(others, ends, left)
    return ranges


def _fairly(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int) -> Ranges:
    backlog = {p: (start, ends[p]) for p, start in positions.items() if ends.get(p, 0) > start}
    ranges: Ranges = {}
    left = limit
    ordered = sorted(backlog.items(), key=lambda item: item[1][1] - item[1][0])
    for others, (partition, (start, end)) in zip(range(len(ordered), 0, -1), ordered, strict=True):
        if left <= 0:
            break
        stop = min(end, start + max(1, left // others))
        ranges[partition] = start, stop
        left -= stop - start
    return ranges


def name_tasks(tasks: Iterable[TaskId]) -> str:
    """Return a short text: ``1_0``, or ``4 tasks, 1_0..1_3``."""
    ids = sorted(tasks)
    return str(ids[0]) if len(ids) == 1 else f"{len(ids)} tasks, {ids[0]}..{ids[-1]}"


def share_out(weights: Mapping[TaskId, int], spark_partitions: int) -> list[list[TaskId]]:
    """Spread tasks over Spark partitions evenly: heaviest task first, to the least loaded partition."""
    shares: list[list[TaskId]] = [[] for _ in range(spark_partitions)]
    loads = [0] * spark_partitions
    for task, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        lightest = loads.index(min(loads))
        shares[lightest].append(task)
        loads[lightest] += weight
    return shares

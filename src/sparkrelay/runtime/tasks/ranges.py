"""How much input tasks take, how far behind they are, and how work is spread over Spark's partitions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import StreamsException

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.types import TaskId, TopicPartition

__all__ = [
    "behind",
    "name_tasks",
    "plan_ranges",
    "require_inputs",
    "share_out",
    "source_offsets",
    "stops_of",
    "topics_behind",
]


def behind(offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return how many offsets lie between where something stands and the ends, as far as these are known."""
    return sum(max(0, end - offsets.get(partition, 0)) for partition, end in ends.items())


def stops_of(
    positions: Mapping[TopicPartition, int], ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """Return a task's offsets after a batch of those ranges; ``positions`` are its offsets before."""
    return {**positions, **{partition: stop for partition, (_, stop) in ranges.items()}}


def topics_behind(stops: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> frozenset[str]:
    """Return the topics that have more than a micro-batch takes; ``stops`` is where it ends in each partition."""
    return frozenset(partition.topic for partition, end in ends.items() if stops.get(partition, 0) < end)


def source_offsets(
    partitions: Iterable[TopicPartition],
    copied: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return where tables stand that reuse their topic: where their copy does, and that is the group's offset.

    A copy that is behind could get no further: the topic ends before the group's offset, for which whoever reads it
    on is refused.

    Args:
        partitions: of the topics.
        copied: how far copies have them; those of which nothing was copied are left out.
        committed: the group's offsets.
    """
    return {p: max(copied[p], committed.get(p, 0)) for p in partitions if copied.get(p)}


def require_inputs(
    positions: Mapping[TaskId, Mapping[TopicPartition, int]], ends: Mapping[TopicPartition, int]
) -> None:
    """Make sure that no input ends before the place where its task stands.

    Raises:
        StreamsException: one does. Going on would skip whatever comes first in the new log.
    """
    for id_, stands_at in positions.items():
        for partition, offset in stands_at.items():
            if ends.get(partition, offset) < offset:
                raise StreamsException(
                    f"task {id_} stands at offset {offset} of {partition}, but the log ends at {ends[partition]}: "
                    "the topic was deleted and created again, or lost records. Start over with sparkrelay reset, or, "
                    "for a pipeline without state, set the group's offset to one that is there: sparkrelay offsets set"
                )


def plan_ranges(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    limit: int,
    first: Collection[str] = (),
) -> dict[TopicPartition, tuple[int, int]]:
    """Choose offsets ``[from, to)`` for one task, at most ``limit`` in all, fairly between its partitions.

    Each partition may take an equal share; what one leaves over goes to the others, smallest backlog first. While a
    table is behind, those who look into it wait: they would not find what is older than they are.

    Args:
        positions: where the task stands.
        ends: of its partitions.
        limit: offsets that it may take.
        first: topics of tables that others look into.
    """
    tables = {partition: start for partition, start in positions.items() if partition.topic in first}
    if not tables:
        return _fairly(positions, ends, limit)
    ranges = _fairly(tables, ends, limit)
    left = limit - sum(stop - start for start, stop in ranges.values())
    if all(ranges.get(p, (start, start))[1] >= ends.get(p, 0) for p, start in tables.items()):
        others = {partition: start for partition, start in positions.items() if partition not in tables}
        ranges |= _fairly(others, ends, left)
    return ranges


def _fairly(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, tuple[int, int]]:
    backlog = {p: (start, ends[p]) for p, start in positions.items() if ends.get(p, 0) > start}
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    left = limit
    for index, (partition, (start, end)) in enumerate(
        sorted(backlog.items(), key=lambda item: item[1][1] - item[1][0])
    ):
        share = max(1, left // (len(backlog) - index)) if left > 0 else 0
        if share == 0:
            break
        stop = min(end, start + share)
        ranges[partition] = (start, stop)
        left -= stop - start
    return ranges


def name_tasks(tasks: Iterable[TaskId]) -> str:
    """Return tasks as one short text: ``1_0``, or ``4 tasks, 1_0..1_3``."""
    ids = sorted(tasks)
    return str(ids[0]) if len(ids) == 1 else f"{len(ids)} tasks, {ids[0]}..{ids[-1]}"


def share_out(weights: Mapping[TaskId, int], spark_partitions: int) -> list[list[TaskId]]:
    """Spread tasks over Spark partitions so that the heaviest one is light: largest first, to the least loaded."""
    shares: list[list[TaskId]] = [[] for _ in range(spark_partitions)]
    loads = [0] * spark_partitions
    for task, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        lightest = loads.index(min(loads))
        shares[lightest].append(task)
        loads[lightest] += weight
    return shares

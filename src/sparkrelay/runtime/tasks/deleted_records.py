"""The error of records that were deleted before tasks read them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay.errors import OffsetOutOfRangeException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition

#: The commands name all partitions.
_MOST_NAMED: Final = 5


def deleted_records(
    application: str, positions: Mapping[TopicPartition, int], first: Mapping[TopicPartition, int]
) -> OffsetOutOfRangeException | None:
    """Return the error that names all partitions whose next records were deleted; None if there are none."""
    lost = sorted(partition for partition, offset in positions.items() if first.get(partition, 0) > offset)
    if not lost:
        return None
    named = ", ".join(f"{p} (offsets {positions[p]} to {first[p] - 1})" for p in lost[:_MOST_NAMED])
    more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
    numbers: dict[str, list[str]] = {}
    for topic, number in lost:
        numbers.setdefault(topic, []).append(str(number))
    commands = "; ".join(
        f"sparkrelay offsets set --application-id {application} --topic {topic} --partitions {','.join(of_topic)} --to "
        "earliest ..."
        for topic, of_topic in numbers.items()
    )
    error = OffsetOutOfRangeException(
        f"records were deleted before they were read: {named}{more}. Retention may have removed them, or somebody has "
        f"deleted them. Stop all instances, and set the group's offsets to the first records that are left: {commands} "
        "Or have the application pass over deleted records: on.data.loss=continue"
    )
    error.partitions = frozenset(lost)
    return error

"""An offset as it is committed: with a text of the application's, and the leader epoch of the record before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition

__all__ = ["OffsetAndMetadata", "OffsetsToCommit", "wire_offsets"]


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """What is committed for a partition.

    Attributes:
        offset: of the next record to be read.
        metadata: any text; the group's members see it with ``committed(..., with_metadata=True)``.
        leader_epoch: of the record in front of it, -1 if unknown (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


OffsetsToCommit: TypeAlias = "Mapping[TopicPartition, int | OffsetAndMetadata]"


def wire_offsets(offsets: OffsetsToCommit) -> dict[TopicPartition, tuple[int, int, str]]:
    """Return offset, leader epoch and text by partition.

    Raises:
        ConfigException: an offset is no offset.
    """
    found = {}
    for partition, given in offsets.items():
        value = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        if not isinstance(value.offset, int) or isinstance(value.offset, bool):
            raise ConfigException(
                f"commit of {given!r} for {partition}: give the offset of the next record to be read, an int, or "
                "OffsetAndMetadata(offset, text)"
            )
        if value.offset < 0:
            raise ConfigException(f"commit of offset {value.offset} for {partition}: offsets are not negative")
        found[partition] = value.offset, value.leader_epoch, value.metadata
    return found

"""Offsets as they are committed: with the application's metadata and the leader epoch of the record before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sparkrelay.consumer.base.arguments import epoch_of, offset_of, partition_of, text_of
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from sparkrelay.types import TopicPartition

__all__ = ["OffsetAndMetadata", "OffsetsToCommit", "wire_offsets"]


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset.

    Attributes:
        offset: of the next record to be read.
        metadata: any text; the group's members see it with ``committed(..., with_metadata=True)``.
        leader_epoch: of the record before it, -1 if unknown (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


OffsetsToCommit: TypeAlias = "Mapping[TopicPartition, int | OffsetAndMetadata]"


def wire_offsets(offsets: OffsetsToCommit) -> dict[TopicPartition, tuple[int, int, str]]:
    """Return (offset, leader epoch, metadata) by partition.

    Raises:
        ConfigException: a partition or an offset is invalid.
    """
    if not isinstance(offsets, Mapping):
        raise ConfigException(
            f"commit of {offsets!r}: give a mapping of TopicPartition to the offset of the next record to be read, or "
            "to OffsetAndMetadata(offset, text)"
        )
    found = {}
    for key, given in offsets.items():
        partition = partition_of("commit", key)
        value = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        found[partition] = (
            offset_of("commit", partition, value.offset),
            epoch_of("commit", partition, value.leader_epoch),
            text_of("commit: metadata", value.metadata, f" of {partition}"),
        )
    return found

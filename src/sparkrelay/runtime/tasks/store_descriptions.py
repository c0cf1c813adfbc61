"""When to describe stores in their changelogs again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition

#: A reader finds the description in this many last records of a changelog, plus a batch.
_RECORDS: Final = 50_000


class StoreDescriptions:
    """Updated after every committed batch.

    Every owner writes descriptions with its first batch, and again after some thousand records, so that they are near
    the end. Compaction keeps the last one, but a cut removes it: so changelogs are only cut before it, and a cut after
    it first has it written again.
    """

    def __init__(self) -> None:
        self._described: dict[TopicPartition, int] = {}

    def due(self, ends: Mapping[TopicPartition, int], cuts: Mapping[TopicPartition, int]) -> frozenset[str]:
        """Return the changelog topics to describe, given their ends and where they might be cut."""
        last = self._described
        return frozenset(
            p.topic for p, end in ends.items() if p not in last or end - last[p] > _RECORDS or cuts.get(p, 0) > last[p]
        )

    def committed(self, changelog: TopicPartition, end: int) -> None:
        """Record a batch with a description, in a changelog that ended there before."""
        self._described[changelog] = end

    def kept(self, cuts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where changelogs may be cut, given where nothing else prevents it. Thread-safe."""
        return {changelog: min(offset, self._described.get(changelog, 0)) for changelog, offset in cuts.items()}

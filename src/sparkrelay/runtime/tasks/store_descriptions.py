"""When a task's changelogs are to say again what their stores hold. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition

__all__ = ["StoreDescriptions"]

#: So far behind the end of a changelog a reader has to look for what it says of its store, and a batch.
_RECORDS: Final = 50_000


class StoreDescriptions:
    """Learns from each batch that is committed.

    Every owner says it with its first batch, and again after some thousand records, so that it is found near the end.
    Compaction keeps the last one, but a cut removes it with all else: so a changelog is cut in front of it at most, and
    who wants to cut behind it has it said again.
    """

    def __init__(self) -> None:
        self._said: dict[TopicPartition, int] = {}

    def due(self, ends: Mapping[TopicPartition, int], cuts: Mapping[TopicPartition, int]) -> frozenset[str]:
        """Return the changelog topics in which the next batch is to say it.

        Args:
            ends: where the changelogs end.
            cuts: where they might be cut.
        """
        return frozenset(
            changelog.topic
            for changelog, end in ends.items()
            if (said := self._said.get(changelog)) is None or end - said > _RECORDS or cuts.get(changelog, 0) > said
        )

    def committed(self, changelog: TopicPartition, end: int) -> None:
        """Learn of a batch that has said it in a changelog that ended there before."""
        self._said[changelog] = end

    def kept(self, cuts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where changelogs may be cut, if they may be cut there for other reasons. Any thread may ask."""
        return {changelog: min(offset, self._said.get(changelog, 0)) for changelog, offset in cuts.items()}

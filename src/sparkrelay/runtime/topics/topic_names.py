"""Kafka's names of a topology's topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["INTERNAL_SUFFIXES", "TopicNames"]

#: How names of topics end that an application makes for itself, as in Kafka Streams.
INTERNAL_SUFFIXES: Final = ("-changelog", "-repartition")


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Kafka's names of a topology's topics: internal ones carry the application id in front."""

    application_id: str

    def __call__(self, topic: str, internal: bool) -> str:
        """Return Kafka's name of a topic of the topology."""
        return f"{self.application_id}-{topic}" if internal else topic

    def changelog(self, store: str) -> str:
        """Return the changelog topic of a store."""
        return self(f"{store}-changelog", internal=True)

    @property
    def reset_marker(self) -> str:
        """Return the topic that is there while the application is being started over: nobody may run meanwhile."""
        return f"{self.application_id}-sparkrelay-reset"

    def is_internal(self, topic: str) -> bool:
        """Return whether a topic looks like one of the application's own. Another's name may begin as ours does."""
        return topic.startswith(f"{self.application_id}-") and topic.endswith(INTERNAL_SUFFIXES)

"""Kafka's names of a topology's topics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import UnknownTopicException
from sparkrelay.state.preconditions import lost_changelog_remedy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.topology import Leg

#: Suffixes of internal topics, as in Kafka Streams.
INTERNAL_SUFFIXES: Final = ("-changelog", "-repartition")


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Kafka's names of a topology's topics: internal ones start with the application id."""

    application_id: str

    def __call__(self, topic: str, internal: bool) -> str:
        """Return a topic's name."""
        return f"{self.application_id}-{topic}" if internal else topic

    def changelog(self, store: str) -> str:
        """Return the changelog topic of a store."""
        return self(f"{store}-changelog", internal=True)

    def sources(self, *legs: Leg) -> Iterable[str]:
        """Return the topics that legs read."""
        return (self(topic, leg.source.internal) for leg in legs for topic in leg.source.topics)

    @property
    def reset_marker(self) -> str:
        """The topic that exists while the application is being reset, when no instance may run."""
        return f"{self.application_id}-sparkrelay-reset"

    def is_internal(self, topic: str) -> bool:
        """Return whether a topic is internal by its name; another application's may start with the same id."""
        return topic.startswith(f"{self.application_id}-") and topic.endswith(INTERNAL_SUFFIXES)

    def explain(self, error: Exception) -> str:
        """Return an error's text, with the remedy if an internal topic is missing."""
        names = rf"{re.escape(self.application_id)}-([\w.-]+?)({'|'.join(INTERNAL_SUFFIXES)})\b"
        found = re.search(names, str(error)) if isinstance(error, UnknownTopicException) else None
        if found is None:
            return str(error)
        store, suffix = found.groups()
        if suffix == "-repartition":
            what, lost = "a repartition topic", "rows between two steps"
            remedy = (
                "Stop all instances, and reset the application: sparkrelay reset --application-id "
                f"{self.application_id} ..."
            )
        else:
            what, lost = f"the changelog of store {store!r}", "its rows on other disks"
            remedy = lost_changelog_remedy(self.application_id, "the local state of its tasks on each host")
        return (
            f"{error} {found[0]!r} is {what}, which the application creates itself. If it was deleted, {lost} are "
            f"lost. {remedy}"
        )

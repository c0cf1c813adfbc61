"""Kafka's names of a topology's topics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sparkrelay.errors import UnknownTopicException
from sparkrelay.state.checks import lost_changelog_remedy

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

    def explain(self, error: Exception) -> str:
        """Return an error's text; where it says that an internal topic is missing, also what to do about that."""
        names = rf"{re.escape(self.application_id)}-([\w.-]+?)({'|'.join(INTERNAL_SUFFIXES)})\b"
        found = re.search(names, str(error)) if isinstance(error, UnknownTopicException) else None
        if found is None:
            return str(error)
        store, suffix = found.groups()
        if suffix == "-repartition":
            what, lost = "a repartition topic", "rows between two steps"
            remedy = (
                "Stop all instances, and start the application over: sparkrelay reset --application-id "
                f"{self.application_id} ..."
            )
        else:
            what, lost = f"the changelog of store {store!r}", "its rows on other disks"
            remedy = lost_changelog_remedy(self.application_id, "the local state of its tasks on each host")
        return (
            f"{error} {found[0]!r} is {what}, which the application creates itself. If somebody deleted it, {lost} are "
            f"lost. {remedy}"
        )

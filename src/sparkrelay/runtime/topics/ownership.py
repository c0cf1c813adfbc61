"""Whose an internal topic is, going by its name and by what else is known. Pure.

``orders-eu-users-changelog`` is of application ``orders`` with a store ``eu-users``, or of ``orders-eu`` with a store
``users``. A broker forgets the group of an application that has not run for a week, but not its topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["doubtful_topics", "other_owner"]


def doubtful_topics(
    application_id: str, internal: Collection[str], *, groups: Collection[str], proven: Collection[str]
) -> dict[str, str]:
    """Return the topics that may be of another application, with what speaks for that.

    Args:
        application_id: whose they should be.
        internal: topics whose names begin with it and end like an internal topic's.
        groups: the other groups of the cluster.
        proven: topics of which something else than the name says that they are the application's.
    """
    prefix = f"{application_id}-"
    # A store's changelog and the repartition topic before it are called alike.
    stores = {_store(topic, prefix) for topic in proven}
    doubtful = {}
    for topic in internal:
        store = _store(topic, prefix)
        if (group := other_owner(application_id, topic, groups)) is not None:
            doubtful[topic] = f"group {group}"
        elif "-" in store and store not in stores:
            doubtful[topic] = f"or of an application {prefix}{store.rpartition('-')[0]}"
    return doubtful


def other_owner(application_id: str, topic: str, groups: Collection[str]) -> str | None:
    """Return the group of another application that the name of an internal topic fits; None if there is none.

    Args:
        application_id: what the name begins with.
        topic: the internal topic.
        groups: the other groups of the cluster.
    """
    prefix = f"{application_id}-"
    return max((g for g in groups if g.startswith(prefix) and topic.startswith(f"{g}-")), key=len, default=None)


def _store(topic: str, prefix: str) -> str:
    """Return what stands between the application's name and the kind of the topic."""
    return topic.removeprefix(prefix).rpartition("-")[0]

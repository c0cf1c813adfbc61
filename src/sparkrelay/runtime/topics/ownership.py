"""Which application an internal topic belongs to. Pure.

``orders-eu-users-changelog`` belongs to application ``orders`` with store ``eu-users``, or to ``orders-eu`` with store
``users``. Brokers forget the group of an application that has not run for a week, but not its topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def doubtful_topics(
    application_id: str, internal: Collection[str], *, groups: Collection[str], proven: Collection[str]
) -> dict[str, str]:
    """Return which internal topics may belong to another application, with the evidence.

    ``groups`` are the other groups of the cluster; ``proven`` topics are known to be the application's.
    """
    prefix = f"{application_id}-"
    # A store's changelog and its repartition topic have the same stem.
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
    """Return which of the cluster's other ``groups`` the name of an internal topic fits best; None if none."""
    prefix = f"{application_id}-"
    return max((g for g in groups if g.startswith(prefix) and topic.startswith(f"{g}-")), key=len, default=None)


def _store(topic: str, prefix: str) -> str:
    """Return the store part of a topic's name."""
    return topic.removeprefix(prefix).rpartition("-")[0]

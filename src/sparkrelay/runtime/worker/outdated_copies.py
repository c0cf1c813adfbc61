"""Copies that were unused for so long that their changelogs may lack records they need.

A compacted topic keeps the deletion of a key for ``delete.retention.ms``, by default a day. A copy that missed it would
keep the row forever.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.worker import connections
from sparkrelay.state.changelog import split
from sparkrelay.state.home.obsolete import last_change
from sparkrelay.state.home.removal import wipe

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.runtime.contract.commands import RestoreCommand
    from sparkrelay.state.header import TaskHeader
    from sparkrelay.types import TopicPartition

log = logging.getLogger(__name__)

#: A batch's last record is its marker; what is said of the store may follow, and the end of the transaction does.
_LAST_OFFSETS: Final = 100


def removed_as_outdated(
    command: RestoreCommand, map_limit: int, client: Mapping[str, Any], sources: Collection[str]
) -> bool:
    """Remove a copy that may have missed deletions; return whether it was removed.

    Copies without changelog stay, as they exist nowhere else. ``sources`` are topics that are both changelogs and
    sources. Raises StoreCorruptedException if the copy cannot be read.
    """
    path = Path(command.directory)
    if command.unused_before is None or last_change(path) >= command.unused_before:
        return False
    header = connections.store(command.directory, map_limit=map_limit).header
    if not header.changelog or _has_all(client, sources, header):
        return False
    connections.forget_store(command.directory)
    wipe(path)
    log.warning(
        "task %s: its copy in %s was not used for a day and is removed: a compacted topic may have dropped deletions "
        "since. It is rebuilt if needed",
        command.task,
        path,
    )
    return True


def _has_all(client: Mapping[str, Any], sources: Collection[str], header: TaskHeader) -> bool:
    """Return whether a copy has all of its changelogs, as far as can be seen."""
    try:
        ends = connections.fetcher(client).log_ends(header.changelog)
        return all(
            end <= header.changelog[changelog] or _ends_with(client, sources, changelog, end, header)
            for changelog, end in ends.items()
        )
    except SparkRelayError as error:
        # After an error it may wait for a response that nobody reads.
        connections.forget_fetcher(client)
        log.debug("what changelogs end with is not known: %s", error)
        return False


def _ends_with(
    client: Mapping[str, Any], sources: Collection[str], changelog: TopicPartition, end: int, header: TaskHeader
) -> bool:
    """Return whether the last batch in a changelog is the last one of a copy.

    A copy only knows the end of its changelog before its last batch. A topic that is also a source has no markers.
    """
    if changelog.topic in sources:
        return False
    start = max(header.changelog[changelog], end - _LAST_OFFSETS)
    marker = None
    for _, records in connections.fetcher(client).fetch({changelog: (start, end)}, columns=("key", "value")):
        marker = split(records.column("key"), records.column("value"))[2] or marker
    if marker is None or marker.batch != header.batch:
        return False
    seen = header.positions
    return all(seen.get(p) == offset for p, offset in marker.positions.items() if p.topic not in sources)

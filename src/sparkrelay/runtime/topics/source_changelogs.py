"""Checks of tables that reuse their source topic as their changelog. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay.config import REUSE_SOURCE_TOPICS
from sparkrelay.errors import IncompatibleTopologyException, StreamsException
from sparkrelay.runtime.contract.commit_notes import SOURCE_CHANGELOG, note_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg, Topology
    from sparkrelay.types import TopicPartition

_SETTING: Final = f"topology.optimization={REUSE_SOURCE_TOPICS}"


def require_no_other_changelogs(topology: Topology, names: TopicNames, topics: Collection[str]) -> None:
    """Reject a table that reuses its topic while its own changelog still exists among ``topics``.

    That changelog would miss the updates from now on, and be used if the setting were ever reverted.

    Raises:
        IncompatibleTopologyException: there is such a changelog.
    """
    for store, topic in sorted(topology.reused_topics.items()):
        if (changelog := names.changelog(store)) in topics:
            raise IncompatibleTopologyException(
                f"table {store!r} has its own changelog, {changelog!r}, from when it ran without {_SETTING}, by which "
                f"topic {topic!r} is its changelog. Stop all instances, delete it (kafka-topics.sh "
                f"--bootstrap-server HOST:PORT --delete --topic {changelog}) and start again: the table is read from "
                f"{topic!r}. Or set topology.optimization=none"
            )


def topics_of_tables(topology: Topology) -> dict[str, Leg]:
    """Return topic -> leg of the tables with their own changelog."""
    return {
        topic: leg
        for leg in topology.legs
        if leg.aggregation is not None and leg.aggregation.of_topic and leg.aggregation.logged
        for topic in leg.source.topics
        if leg.reused_topic is None
    }


def require_own_changelogs(topology: Topology, names: TopicNames, noted: Mapping[TopicPartition, str]) -> None:
    """Reject a table that gets its own changelog after it had none.

    ``noted`` are the notes with the group's offsets of :func:`topics_of_tables`.

    Raises:
        IncompatibleTopologyException: the topic of a table was its changelog when it was last read.
    """
    marked = {p.topic for p, text in noted.items() if SOURCE_CHANGELOG.items() <= note_parts(text).items()}
    for topic, leg in topics_of_tables(topology).items():
        table = leg.aggregation
        if topic not in marked or table is None:
            continue
        now = f" It has one now, because {table.keeps_changelog}." if table.keeps_changelog else ""
        raise IncompatibleTopologyException(
            f"table {table.store!r} ran with {_SETTING}, by which topic {topic!r} was its changelog; its "
            f"own would lack all rows that the group has read.{now} Revert the change, or reset the application: "
            f"sparkrelay reset --application-id {names.application_id} ..."
        )


def require_rows_kept(topology: Topology, configs: Mapping[str, Mapping[str, str | None]]) -> Iterator[str]:
    """Yield warnings about topics that are also changelogs, from their settings (topic -> name -> value).

    Raises:
        StreamsException: a topic deletes records by age or size alone, so that a restored table would lack rows.
    """
    for store, topic in sorted(topology.reused_topics.items()):
        settings = configs.get(topic, {})
        policy = (settings.get("cleanup.policy") or "").split(",")
        bounds = [
            f"{name}={settings[name]}" for name in ("retention.ms", "retention.bytes") if _bounded(settings.get(name))
        ]
        if "delete" not in policy or not bounds:
            continue
        words = f"topic {topic!r} deletes records ({', '.join(bounds)}), and by {_SETTING} it is the changelog of table"
        if "compact" in policy:
            yield f"{words} {store!r}: deleted rows are missing from the table once it is restored"
            continue
        raise StreamsException(
            f"{words} {store!r}: deleted rows would be missing from the table once it is restored. Make the topic "
            f"compact instead (kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {topic} --add-config "
            "cleanup.policy=compact), or set topology.optimization=none"
        )


def _bounded(value: str | None) -> bool:
    return value is not None and int(value) >= 0

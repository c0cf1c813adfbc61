"""Tables that reuse their source topic as their changelog: which do, and what must be so of topics for that. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay.config import REUSE_SOURCE_TOPICS
from sparkrelay.errors import IncompatibleTopologyException, StreamsException
from sparkrelay.runtime.contract.commit_notes import SOURCE_CHANGELOG, note_parts
from sparkrelay.runtime.topics.registered_schemas import with_registered_schemas
from sparkrelay.topology.optimization import reusing_source_topics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg, Topology
    from sparkrelay.types import TopicPartition

__all__ = [
    "as_configured",
    "require_no_other_changelogs",
    "require_own_changelogs",
    "require_rows_kept",
    "topics_of_tables",
]

_SETTING: Final = f"topology.optimization={REUSE_SOURCE_TOPICS}"


def as_configured(topology: Topology, config: StreamsConfig) -> Topology:
    """Return a topology as it runs with an instance's settings.

    Raises:
        SchemaRegistryException: a schema is the registry's, and that does not answer.
        TopologyException: it has no such schema.
    """
    topology = with_registered_schemas(topology, config)
    if not config.reuses_source_topics:
        return topology
    return reusing_source_topics(topology, from_beginning=config.auto_offset_reset == "earliest")


def require_no_other_changelogs(topology: Topology, names: TopicNames, topics: Collection[str]) -> None:
    """Refuse that a table reuses its topic while a changelog of its own is still there.

    Nothing is written to that one any more: if the setting were taken back one day, it would be read for what the table
    holds.

    Args:
        topology: what is to run.
        names: Kafka's names of its topics.
        topics: that there are.

    Raises:
        IncompatibleTopologyException: there is such a changelog.
    """
    for store, topic in sorted(topology.reused_topics.items()):
        if (changelog := names.changelog(store)) in topics:
            raise IncompatibleTopologyException(
                f"table {store!r} has a changelog of its own, {changelog!r}, from when it ran without {_SETTING}, by "
                f"which topic {topic!r} is its changelog. Stop all instances, delete it (kafka-topics.sh "
                f"--bootstrap-server HOST:PORT --delete --topic {changelog}) and start again: the table is read from "
                f"{topic!r}. Or set topology.optimization=none"
            )


def topics_of_tables(topology: Topology) -> dict[str, Leg]:
    """Return the topics of tables that have a changelog of their own, each with the leg that keeps the table."""
    return {
        topic: leg
        for leg in topology.legs
        if leg.aggregation is not None and leg.aggregation.of_topic and leg.aggregation.logged
        for topic in leg.source.topics
        if leg.reused_topic is None
    }


def require_own_changelogs(topology: Topology, names: TopicNames, noted: Mapping[TopicPartition, str]) -> None:
    """Refuse that a table goes on with a changelog of its own after it had none.

    Args:
        topology: what is to run.
        names: Kafka's names of its topics.
        noted: what is noted with the group's offsets of :func:`topics_of_tables`.

    Raises:
        IncompatibleTopologyException: a table's topic was its changelog by the time that it was last read.
    """
    marked = {p.topic for p, text in noted.items() if SOURCE_CHANGELOG.items() <= note_parts(text).items()}
    for topic, leg in topics_of_tables(topology).items():
        table = leg.aggregation
        if topic not in marked or table is None:
            continue
        now = f" It keeps one now, because {table.keeps_changelog}." if table.keeps_changelog else ""
        raise IncompatibleTopologyException(
            f"table {table.store!r} ran with {_SETTING}, by which topic {topic!r} was its changelog; one "
            f"of its own would lack all rows that the group has read.{now} Go back to what it ran with; or start the "
            f"application over: sparkrelay reset --application-id {names.application_id} ..."
        )


def require_rows_kept(topology: Topology, configs: Mapping[str, Mapping[str, str | None]]) -> Iterator[str]:
    """Yield what to warn of the topics that are changelogs, too.

    Args:
        topology: what is to run.
        configs: topic -> its settings in force.

    Raises:
        StreamsException: a topic deletes records for their age or its size alone: a restored table would lack rows
            that others have.
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
            yield f"{words} {store!r}: rows that it has deleted are gone from the table once that is restored"
            continue
        raise StreamsException(
            f"{words} {store!r}: rows that it has deleted would be gone from the table once that is restored. Have the "
            f"topic keep them (kafka-configs.sh --bootstrap-server HOST:PORT --alter --topic {topic} --add-config "
            "cleanup.policy=compact), or set topology.optimization=none"
        )


def _bounded(value: str | None) -> bool:
    return value is not None and int(value) >= 0

"""The registry's schemas in the formats of a topology, looked up when an instance is made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkrelay.client.topic_schemas import TopicSchemas, is_framed
from sparkrelay.topology import Subtopology, Topology

if TYPE_CHECKING:
    from sparkrelay.config import StreamsConfig
    from sparkrelay.topology import Leg


def with_registered_schemas(topology: Topology, config: StreamsConfig) -> Topology:
    """Return a topology with the registry's schemas in its formats.

    Raises:
        ConfigException: a format needs the registry, and ``schema.registry.url`` is not set.
        SchemaRegistryException: the registry does not answer.
        TopologyException: it lacks a schema.
    """
    legs = (*topology.legs, *topology.global_tables)
    if not any(is_framed(form) for leg in legs for form in _formats(leg)):
        return topology
    schemas = TopicSchemas(config)
    return Topology(
        (
            Subtopology(part.id, tuple(_with_schemas(leg, schemas) for leg in part.legs))
            for part in topology.subtopologies
        ),
        tuple(_with_schemas(leg, schemas) for leg in topology.global_tables),
    )


def _formats(leg: Leg) -> list[Any]:
    sink = [] if leg.sink is None else [leg.sink.key, leg.sink.value]
    return [leg.source.key, leg.source.value, *sink]


def _with_schemas(leg: Leg, schemas: TopicSchemas) -> Leg:
    source, sink, places = leg.source, leg.sink, ("key", "value")
    if not source.internal:
        where = str(source.call_site)
        read = {place: schemas.read(getattr(source, place), source.topics, place, where) for place in places}
        leg = replace(leg, source=replace(source, **read))
    if sink is not None and not sink.internal:
        where = str(sink.call_site)
        written = {place: schemas.written(getattr(sink, place), sink.topic, place, where) for place in places}
        leg = replace(leg, sink=replace(sink, **written))
    return leg

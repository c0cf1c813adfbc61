"""A topology as an instance's settings configure it. Pure but for the schema registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.config import CONTINUE
from sparkrelay.errors import TopologyException
from sparkrelay.runtime.topics.registered_schemas import with_registered_schemas
from sparkrelay.topology import ForeachBatch
from sparkrelay.topology.building.optimization import reusing_source_topics

if TYPE_CHECKING:
    from sparkrelay.config import StreamsConfig
    from sparkrelay.topology import Topology


def _check_sources(topology: Topology, config: StreamsConfig) -> None:
    """Refuse a ``readStream`` that names other brokers than the settings do.

    Raises:
        TopologyException: one does.
    """
    for source in (leg.source for leg in topology.legs):
        given, known = source.brokers, config.bootstrap_servers
        if given is not None and given.strip().lower() != known.lower():
            raise TopologyException(
                f"{source.call_site}: the stream of {', '.join(source.topics)} has kafka.bootstrap.servers={given!r}, "
                f"and the setting bootstrap.servers is {known!r}, which an instance goes by; set bootstrap.servers, or "
                "leave the option out"
            )


def as_configured(topology: Topology, config: StreamsConfig, *, sources: bool = False) -> Topology:
    """Return a topology as it runs with an instance's settings.

    Args:
        topology: as it was written.
        config: the settings.
        sources: whether they name the brokers that its streams are read from.

    Raises:
        SchemaRegistryException: the registry, which has a schema, does not answer.
        TopologyException: a step contradicts a setting, or the registry lacks a schema.
    """
    if sources:
        _check_sources(topology, config)
    topology = with_registered_schemas(topology, config)
    handlers = {
        "processing.exception.handler": config.processing_exception_handler,
        "production.exception.handler": config.production_exception_handler,
    }
    skipping = [name for name, handler in handlers.items() if handler == CONTINUE]
    for leg in topology.legs if skipping else ():
        if isinstance(leg.action, ForeachBatch):
            raise TopologyException(
                f"{leg.action.call_site}: {leg.action.text} always gets the same rows for the same task and batch, but "
                f"{skipping[0]}={CONTINUE} searches for the failing record in smaller batches. Leave the handler at "
                '"fail", or write to a topic here and call foreachBatch() in a pipeline that reads it'
            )
    if not config.reuses_source_topics:
        return topology
    from_beginning = config.auto_offset_reset == "earliest"
    return reusing_source_topics(topology, from_beginning=from_beginning, leaves_out=bool(skipping))

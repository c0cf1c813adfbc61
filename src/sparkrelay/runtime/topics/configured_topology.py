"""A topology as an instance's settings configure it. Pure but for the schema registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.config import CONTINUE
from sparkrelay.errors import TopologyException
from sparkrelay.runtime.topics.registered_schemas import with_registered_schemas
from sparkrelay.topology import ForeachBatch
from sparkrelay.topology.optimization import reusing_source_topics

if TYPE_CHECKING:
    from sparkrelay.config import StreamsConfig
    from sparkrelay.topology import Topology


def as_configured(topology: Topology, config: StreamsConfig) -> Topology:
    """Return a topology as it runs with an instance's settings.

    Raises:
        SchemaRegistryException: the registry, which has a schema, does not answer.
        TopologyException: a step contradicts a setting, or the registry lacks a schema.
    """
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

"""What every step of a leg is given, whatever it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.runtime.compile.source_columns import topics_read
from sparkrelay.runtime.contract.client_settings import compression, flush_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg

__all__ = ["StepFields"]


class StepFields:
    """Fields of ``StepSpec``, and of those that write.

    Args:
        target: where the legs run.
        config: the instance's settings.
        names: Kafka's names of the topology's topics.
        client: settings of the workers' Kafka connections.
    """

    def __init__(
        self, target: ExecutorTarget, config: StreamsConfig, names: TopicNames, client: Mapping[str, Any]
    ) -> None:
        self._names = names
        self._shared = {"client": client, "map_limit": config.store_max_bytes, "failure_key": target.failure_key}
        #: How a step writes to topics, beside what all steps have.
        self.writing = {"compression": compression(config), "flush_seconds": flush_seconds(config)}

    def of(self, leg: Leg, spark_partitions: int) -> dict[str, Any]:
        """Return what the steps of a leg have in common."""
        return {
            "leg": leg.id,
            "subtopology": leg.subtopology,
            "topics": topics_read(leg, self._names),
            "spark_partitions": spark_partitions,
            **self._shared,
        }

"""What every step of a leg is given, whatever it does."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sparkrelay.config import CONTINUE
from sparkrelay.runtime.compile.source_columns import topics_read
from sparkrelay.runtime.contract.client_settings import compression, flush_seconds
from sparkrelay.runtime.contract.specs import SkippedSpec
from sparkrelay.runtime.worker.skipped_records import reporting_skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg


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
        self._config = config
        self._shared = {"client": client, "map_limit": config.store_max_bytes, "failure_key": target.failure_key}
        #: How a step writes to topics, beside what all steps have.
        self.writing: dict[str, Any] = {"compression": compression(config), "flush_seconds": flush_seconds(config)}

    def of(self, leg: Leg, spark_partitions: int) -> dict[str, Any]:
        """Return what the steps of a leg have in common."""
        return {
            "leg": leg.id,
            "subtopology": leg.subtopology,
            "topics": topics_read(leg, self._names),
            "spark_partitions": spark_partitions,
            **self._shared,
        }

    def decoding(self, leg: Leg) -> dict[str, bool]:
        """Return what becomes of records that do not decode, and which of their fields have to."""
        kept = self._config.errors_dead_letter_queue_topic_name is not None and not leg.keeps_global_table
        return {
            "skip_bad_records": self._config.deserialization_exception_handler == CONTINUE,
            "whole": kept,
        }

    def reporting(self, leg: Leg, spark_partitions: int, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a leg's last step, as one that says and writes what the first one has skipped, if anything may be."""
        if not self._config.skips_records or leg.goes_on:
            return step
        topic = self._config.errors_dead_letter_queue_topic_name
        spec = SkippedSpec(**self.of(leg, spark_partitions), **self.writing, topic=topic)
        return functools.partial(reporting_skipped, spec, step)

"""SparkRelay: Kafka Streams' high availability for PySpark pipelines.

Importing this package does not import pyspark: names that need it are loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparkrelay.errors import SparkRelayError
from sparkrelay.types import BatchId, ProcessId, TaskId, TopicPartition

if TYPE_CHECKING:
    from sparkrelay.datasources.register import register_data_sources
    from sparkrelay.records.custom_format import CustomFormat
    from sparkrelay.records.formats import (
        Arrow,
        Avro,
        Boolean,
        Double,
        Float,
        Integer,
        Json,
        JsonSchema,
        Long,
        Protobuf,
        Raw,
        Short,
        String,
        Uuid,
    )
    from sparkrelay.runtime.instance.kafka_streams import KafkaStreams
    from sparkrelay.runtime.instance.quick_session import spark_session
    from sparkrelay.runtime.tasks.restore_listeners import StandbyUpdateListener, StateRestoreListener
    from sparkrelay.runtime.thread.uncaught_exceptions import StreamThreadExceptionResponse
    from sparkrelay.topology import GlobalKTable, KStream, KTable, StreamsBuilder, Topology

__all__ = [
    "Arrow",
    "Avro",
    "BatchId",
    "Boolean",
    "CustomFormat",
    "Double",
    "Float",
    "GlobalKTable",
    "Integer",
    "Json",
    "JsonSchema",
    "KStream",
    "KTable",
    "KafkaStreams",
    "Long",
    "ProcessId",
    "Protobuf",
    "Raw",
    "Short",
    "SparkRelayError",
    "StandbyUpdateListener",
    "StateRestoreListener",
    "StreamThreadExceptionResponse",
    "StreamsBuilder",
    "String",
    "TaskId",
    "TopicPartition",
    "Topology",
    "Uuid",
    "register_data_sources",
    "spark_session",
]

_NAMES = {
    "sparkrelay.datasources.register": "register_data_sources",
    "sparkrelay.records.custom_format": "CustomFormat",
    "sparkrelay.records.formats": (
        "Arrow Avro Boolean Double Float Integer Json JsonSchema Long Protobuf Raw Short String Uuid"
    ),
    "sparkrelay.runtime.instance.kafka_streams": "KafkaStreams",
    "sparkrelay.runtime.instance.quick_session": "spark_session",
    "sparkrelay.runtime.tasks.restore_listeners": "StandbyUpdateListener StateRestoreListener",
    "sparkrelay.runtime.thread.uncaught_exceptions": "StreamThreadExceptionResponse",
    "sparkrelay.topology": "GlobalKTable KStream KTable StreamsBuilder Topology",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - takes 20 ms and is rarely used

        return version(__name__)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sparkrelay' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)  # noqa: TID251 - a name of the table above


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Registers the data sources with a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.datasources.state_source import StateDataSource
from sparkrelay.datasources.topic_source import TopicDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_data_sources(spark: SparkSession) -> None:
    """Register the formats ``sparkrelay`` (a topic) and ``sparkrelay-state`` (a store's table) with a session."""
    for source in (StateDataSource, TopicDataSource):
        spark.dataSource.register(source)

"""Makes the data sources known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay.datasources.state_source import StateDataSource
from sparkrelay.datasources.topic_source import TopicDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register_data_sources"]

#: Off in Spark unless set; a source that looks at filters is refused then.
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register_data_sources(spark: SparkSession) -> None:
    """Make the formats ``sparkrelay`` (a topic) and ``sparkrelay-state`` (a store's table) known to a session.

    Also has the session pass filters on to data sources in Python.
    """
    spark.conf.set(_PUSHDOWN, "true")
    for source in (StateDataSource, TopicDataSource):
        spark.dataSource.register(source)

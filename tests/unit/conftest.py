"""One Spark session for all tests of a process that need one: pipelines are analysed in it, and none of them runs."""

from __future__ import annotations

import pytest
from tests.short_spark import SHORT_LIVED

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="session")
def spark():
    from sparkrelay import spark_session

    session = spark_session("topologies", **{"spark.master": "local[1]", **SHORT_LIVED})
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="session")
def F(spark):
    """PySpark's functions, which need a session."""
    from pyspark.sql import functions

    return functions


@pytest.fixture
def builder(spark):
    from sparkrelay.topology import StreamsBuilder

    return StreamsBuilder(spark)

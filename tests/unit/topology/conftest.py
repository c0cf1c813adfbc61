"""One Spark session, in which pipelines are analysed; nothing of them runs."""

from __future__ import annotations

import pytest
from pyspark.sql import functions

from sparkrelay import spark_session
from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder


@pytest.fixture(scope="session", autouse=True)
def spark():
    session = spark_session("topologies", **{"spark.master": "local[1]", "spark.ui.enabled": "false"})
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="session")
def F(spark):
    return functions


@pytest.fixture
def builder(spark):
    return StreamsBuilder(spark)


@pytest.fixture
def flights(builder):
    return builder.stream("flights", key=String("carrier"), value=Json("origin string, delay double, time timestamp"))

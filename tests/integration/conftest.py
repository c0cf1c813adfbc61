"""One Spark session for all integration tests: starting one costs seconds."""

import pytest
from tests.short_spark import SHORT_LIVED


@pytest.fixture(scope="session", autouse=True)
def _own_brokers(brokers_of_tests):
    """Also those that a module starts for itself."""


@pytest.fixture(scope="session")
def spark():
    """A session as users get it from `sparkrelay.spark_session`, with two cores and no web page."""
    from sparkrelay import spark_session

    session = spark_session("tests", **{"spark.master": "local[2]", **SHORT_LIVED})
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def compiled(spark):
    """`compiled(builder)` makes a KafkaStreams, in which Spark has looked at all columns; it is not to be started."""
    from sparkrelay import KafkaStreams

    config = {"application.id": "compiled", "bootstrap.servers": "localhost:1"}
    return lambda builder: KafkaStreams(builder.build(), config, spark=spark, quiet=True)

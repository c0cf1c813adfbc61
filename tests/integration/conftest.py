"""One Spark session for all integration tests: starting one costs seconds."""

import pytest


@pytest.fixture(scope="session")
def spark():
    """A session as users get it from `sparkrelay.spark_session`, with two cores and no web page."""
    from sparkrelay import spark_session

    session = spark_session(
        "tests",
        **{
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            # Hundreds of small jobs: a second compiler costs more than it saves.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()

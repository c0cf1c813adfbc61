"""Instances, as those of the runtime's tests, and a session that knows the data sources."""

import pytest
from tests.integration.runtime.conftest import application_id, instance  # noqa: F401 - fixtures

from sparkrelay import register_data_sources


@pytest.fixture
def session(spark):
    register_data_sources(spark)
    return spark

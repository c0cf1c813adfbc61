from __future__ import annotations

import pytest

from sparkrelay.records.formats import Json, String


@pytest.fixture(autouse=True)
def _session(spark):
    """Let `StreamsBuilder()` find the session."""


@pytest.fixture
def flights(builder):
    return builder.stream("flights", key=String("carrier"), value=Json("origin string, delay double, time timestamp"))

"""What the tests on the test driver share."""

import pytest

from .application import Application


@pytest.fixture(autouse=True)
def _jobs_that_stay_may_begin_late(monkeypatch):
    """Give a resident job the time that a busy machine takes; without it, micro-batches have jobs of their own."""
    monkeypatch.setattr("sparkrelay.runtime.batch.residency._OPEN_SECONDS", 120.0)


@pytest.fixture
def application(spark, tmp_path):
    """`application.running(builder)` starts an instance with one pipeline after another on the same state."""
    return Application(spark, tmp_path / "application")

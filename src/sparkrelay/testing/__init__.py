"""Helpers for tests and tools, for users and for ourselves.

Importing this package does not import pyspark: the test driver, which needs it, is loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparkrelay.assignment.leader.cases import application_state
from sparkrelay.testing.simulated_group import SimulatedGroup, SimulatedProcess, task

if TYPE_CHECKING:
    from sparkrelay.testing.test_topics import TestInputTopic, TestOutputTopic, TestRecord
    from sparkrelay.testing.topology_test_driver import TopologyTestDriver

__all__ = [
    "SimulatedGroup",
    "SimulatedProcess",
    "TestInputTopic",
    "TestOutputTopic",
    "TestRecord",
    "TopologyTestDriver",
    "application_state",
    "task",
]

_HOMES = {
    "TestInputTopic": "sparkrelay.testing.test_topics",
    "TestOutputTopic": "sparkrelay.testing.test_topics",
    "TestRecord": "sparkrelay.testing.test_topics",
    "TopologyTestDriver": "sparkrelay.testing.topology_test_driver",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)  # noqa: TID251 - a name of the table above

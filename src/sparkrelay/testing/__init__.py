"""Helpers for tests and tools, for users as much as for ourselves."""

from sparkrelay.assignment.cases import application_state
from sparkrelay.testing.simulated_group import SimulatedGroup, SimulatedProcess, task

__all__ = ["SimulatedGroup", "SimulatedProcess", "application_state", "task"]

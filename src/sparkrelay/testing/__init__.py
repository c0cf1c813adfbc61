"""Helpers for tests and tools, for users as much as for ourselves."""

from sparkrelay.testing.application_state import application_state

__all__ = ["application_state"]

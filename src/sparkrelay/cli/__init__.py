"""The command line: parse, call, print."""

from __future__ import annotations

from sparkrelay.cli.app import main

__all__ = ["main"]

"""The command line: parse, call, print. What it does is done elsewhere."""

from __future__ import annotations

from sparkrelay.cli.app import main

__all__ = ["main"]

"""The choice of one assignor while members name different ones, during a rolling change.

It must be one that all members support: those of this package, or the one that all name. If it changed with the leader,
each assignor would move what the other placed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING

from sparkrelay.assignment.high_availability import HighAvailabilityTaskAssignor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.assignment.task_assignor import TaskAssignor

_BUILT_IN = "sparkrelay."


def assignor_name(assignor: type[TaskAssignor]) -> str:
    """Return the name of an assignor in subscriptions: ``module:Class`` or ``file.py:Class``."""
    # A file's module is named by its whole path, which may differ between instances.
    module = assignor.__module__
    return f"{PurePath(module).name if module.endswith('.py') else module}:{assignor.__qualname__}"


def agreed_assignor(named: Iterable[str | None]) -> str:
    """Return the assignor that all members support, given the name from each member (None: the default).

    It is the one that all name, else the built-in one that most members name, else the high-availability assignor.
    """
    usual = assignor_name(HighAvailabilityTaskAssignor)
    votes = Counter(name or usual for name in named)
    if len(votes) == 1:
        return next(iter(votes))
    built_in = [(-count, name) for name, count in votes.items() if name.startswith(_BUILT_IN)]
    return min(built_in)[1] if built_in else usual

"""Which assignor leads while members name different ones: one that all of them support.

Every member knows the built-in assignors, and the one it names itself. During a rolling change the group must not
swing between two assignors as the leader changes: each would move what the other placed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING

from sparkrelay.assignment.high_availability import HighAvailabilityTaskAssignor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.assignment.task_assignor import TaskAssignor

__all__ = ["agreed_assignor", "assignor_name"]

#: Assignors of this package are on every member.
_BUILT_IN = "sparkrelay."


def assignor_name(assignor: type[TaskAssignor]) -> str:
    """Return the name under which a member names its assignor to the leader: ``module:Class`` or ``file.py:Class``."""
    # A file's module is named by its whole path, and instances need not have it in the same folder.
    module = assignor.__module__
    return f"{PurePath(module).name if module.endswith('.py') else module}:{assignor.__qualname__}"


def agreed_assignor(named: Iterable[str | None]) -> str:
    """Return the assignor that all members support, by what each of them names.

    The one that all name; else, of the built-in ones that are named, the one most members name; else the
    high-availability assignor.

    Args:
        named: For each member the name of its assignor; None if it names none.
    """
    usual = assignor_name(HighAvailabilityTaskAssignor)
    votes = Counter(name or usual for name in named)
    if len(votes) == 1:
        return next(iter(votes))
    built_in = [(-count, name) for name, count in votes.items() if name.startswith(_BUILT_IN)]
    return min(built_in)[1] if built_in else usual

"""The assignors of a study: ours by default, a stranger's by ``package.module:Class`` or ``./file.py:Class``.

Defaults are named by import path, so that this module imports none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkrelay.assignment import TaskAssignor, load_assignor
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["OURS", "Contestant", "contestants"]

#: The assignors that a study compares when it is given none.
OURS = (
    "sparkrelay.assignment:HighAvailabilityTaskAssignor",
    "sparkrelay.assignment:StickyTaskAssignor",
    "sparkrelay.assignment:LeastMovementTaskAssignor",
    "sparkrelay.assignors:ElasticsearchTaskAssignor",
    "sparkrelay.assignors:CruiseControlTaskAssignor",
    "sparkrelay.assignors:SamzaHostAffinityTaskAssignor",
    "sparkrelay.assignors:ConsumerStickyTaskAssignor",
)


class Contestant(NamedTuple):
    """One assignor of a study.

    Attributes:
        name: What its rows are called.
        kind: The class; each simulation makes a new one.
    """

    name: str
    kind: type[TaskAssignor]

    def make(self) -> TaskAssignor:
        """Return a new, configured assignor."""
        return load_assignor(self.kind, {})


def contestants(settings: Iterable[str | type[TaskAssignor]] | None = None) -> tuple[Contestant, ...]:
    """Load the assignors of a study.

    Args:
        settings: Import paths, paths of files, or classes; None for ours, without those that this installation lacks.

    Raises:
        ConfigException: one that was asked for cannot be loaded, or is asked for twice.
    """
    if settings is None:
        found = [kind for kind in map(_if_installed, OURS) if kind is not None]
    else:
        found = [type(load_assignor(setting, {})) for setting in settings]
    if not found:
        raise ConfigException("a study needs at least one assignor; give --assignor package.module:Class")
    names = [_short(kind) for kind in found]
    if len(set(names)) < len(names):
        names = [f"{kind.__module__}:{kind.__qualname__}" for kind in found]
    if len(set(names)) < len(names):
        raise ConfigException(f"an assignor is named twice: {', '.join(sorted(names))}; name each once")
    return tuple(map(Contestant, names, found))


def _if_installed(path: str) -> type[TaskAssignor] | None:
    try:
        return type(load_assignor(path, {}))
    except ConfigException as missing:
        # A broken assignor of ours is an error; one that is not there is left out.
        if isinstance(missing.__cause__, (ImportError, AttributeError)):
            return None
        raise


def _short(kind: type[TaskAssignor]) -> str:
    return kind.__name__.removesuffix("Assignor").removesuffix("Task") or kind.__name__

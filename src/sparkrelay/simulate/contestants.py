"""The assignors of a study: by default all of ours, else ``package.module:Class`` or ``./file.py:Class``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkrelay.assignment import TaskAssignor, load_assignor, require_known_settings
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: The default assignors, by import path so that this module does not import them.
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
    """An assignor of a study: the name in its rows, its class, and the settings of each instance."""

    name: str
    kind: type[TaskAssignor]
    settings: Mapping[str, str]

    def make(self) -> TaskAssignor:
        """Return a new, configured assignor."""
        return load_assignor(self.kind, self.settings)


def contestants(
    named: Iterable[str | type[TaskAssignor]] | None = None, settings: Mapping[str, str] | None = None
) -> tuple[Contestant, ...]:
    """Load the assignors of a study.

    Args:
        named: Import paths, paths of files, or classes; None for those of ours that are installed.
        settings: Settings of the assignors, such as ``task.assignor.elasticsearch.balance.index``.

    Raises:
        ConfigException: an assignor cannot be loaded or is named twice, or no assignor has such a setting.
    """
    given = dict(settings or {})
    if named is None:
        found = [kind for kind in map(_if_installed, OURS) if kind is not None]
    else:
        found = [type(load_assignor(one, given)) for one in named]
    _require_known(found, given)
    if not found:
        raise ConfigException("a study needs at least one assignor; give --assignor package.module:Class")
    names = [_short(kind) for kind in found]
    if len(set(names)) < len(names):
        names = [f"{kind.__module__}:{kind.__qualname__}" for kind in found]
    if len(set(names)) < len(names):
        raise ConfigException(f"an assignor is named twice: {', '.join(sorted(names))}; name each once")
    return tuple(Contestant(name, kind, given) for name, kind in zip(names, found, strict=True))


def _require_known(kinds: Sequence[type[TaskAssignor]], settings: dict[str, str]) -> None:
    """Reject a setting that no assignor of the study has."""
    for key, value in settings.items():
        if not key.startswith("task.assignor."):
            raise ConfigException(f"{key}={value}: settings of assignors begin with task.assignor.")
        refusals = [error for kind in kinds if (error := _refusal(kind, {key: value})) is not None]
        if refusals and len(refusals) == len(kinds):
            raise refusals[0]


def _refusal(kind: type[TaskAssignor], settings: dict[str, str]) -> ConfigException | None:
    try:
        require_known_settings(kind(), settings)
    except ConfigException as error:
        return error
    return None


def _if_installed(path: str) -> type[TaskAssignor] | None:
    try:
        return type(load_assignor(path, {}))
    except ConfigException as missing:
        # A broken assignor of ours is an error; a missing one is left out.
        if isinstance(missing.__cause__, (ImportError, AttributeError)):
            return None
        raise


def _short(kind: type[TaskAssignor]) -> str:
    return kind.__name__.removesuffix("Assignor").removesuffix("Task") or kind.__name__

"""The built-in client-side assignors by name, and the choice of those that a member offers to its group.

Other clients' names and Java's class names are accepted, so that a Java consumer's settings can be used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay.consumer.assignors.range_assignor import RangeAssignor, RoundRobinAssignor
from sparkrelay.consumer.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from sparkrelay.consumer.base.assignor import PartitionAssignor
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CooperativeStickyAssignor", "RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "offered"]

_BUILT_IN: Final = {
    kind.name: kind for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
_JAVA_NAMES: Final = {f"org.apache.kafka.clients.consumer.{kind.__name__}": name for name, kind in _BUILT_IN.items()}


def offered(assignors: Sequence[PartitionAssignor | str], strategies: Sequence[str]) -> tuple[PartitionAssignor, ...]:
    """Return the assignors that a member offers to its group, in order of preference.

    ``strategies``, the names in ``partition.assignment.strategy``, are used without ``assignors``. Raises
    ConfigException if a name is unknown, two are equal, or there are none.
    """
    found = [_made(item) for item in (assignors or strategies)]
    if not found:
        raise ConfigException(f"partition.assignment.strategy is empty; give one of {', '.join(_BUILT_IN)}")
    names = [assignor.name for assignor in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigException(f"two assignors are named {name!r} (of {', '.join(names)}); give each name once")
    return tuple(found)


def _made(item: PartitionAssignor | str) -> PartitionAssignor:
    if not isinstance(item, str):
        if isinstance(item, type) or not isinstance(item, PartitionAssignor):
            raise ConfigException(
                f"assignors has {item!r}, which is not an assignor; give an object with PartitionAssignor's methods, "
                f"or one of the names {', '.join(_BUILT_IN)}"
            )
        return item
    kind = _BUILT_IN.get(_JAVA_NAMES.get(item, item))
    if kind is None:
        raise ConfigException(
            f"partition.assignment.strategy={item!r} must be one of {', '.join(_BUILT_IN)}; pass your own assignors "
            "as Consumer(config, assignors=...)"
        )
    return kind()

"""The built-in client-side assignors by name, and the choice of what a member offers to its group.

Names as other clients give them, and Java's class names too, so that a Java consumer's settings can be taken over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkrelay.consumer.assignors.range_assignor import RangeAssignor, RoundRobinAssignor
from sparkrelay.consumer.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from sparkrelay.consumer.base.assignor import PartitionAssignor
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "offered",
]

_BUILT_IN: Final = {
    kind.name: kind for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
_JAVA_NAMES: Final = {f"org.apache.kafka.clients.consumer.{kind.__name__}": name for name, kind in _BUILT_IN.items()}


def offered(assignors: Sequence[PartitionAssignor | str], strategies: Sequence[str]) -> tuple[PartitionAssignor, ...]:
    """Return what a member offers to its group, the most wanted first.

    Args:
        assignors: the program's own, and names of built-in ones among them.
        strategies: the names in ``partition.assignment.strategy``; they count if there are no ``assignors``.

    Raises:
        ConfigException: there is none of that name, two have the same, or nothing is offered.
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
                f"assignors has {item!r}, which is no assignor; give an object with the methods of PartitionAssignor, "
                f"or one of the names {', '.join(_BUILT_IN)}"
            )
        return item
    kind = _BUILT_IN.get(_JAVA_NAMES.get(item, item))
    if kind is None:
        raise ConfigException(
            f"partition.assignment.strategy={item!r} is none of {', '.join(_BUILT_IN)}; pass assignors of your own "
            "as Consumer(config, assignors=...)"
        )
    return kind()

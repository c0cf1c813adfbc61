"""An immutable set with sorted iteration: KIP-924's ``SortedSet``, hashable.

Plain frozensets of strings iterate in another order in each Python process, so an assignor would decide differently on
each leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T_co = TypeVar("T_co", covariant=True)


class SortedFrozenSet(frozenset[T_co]):
    """A frozenset with sorted iteration; equal to any set of the same members."""

    __slots__ = ("_order",)

    _order: tuple[T_co, ...]

    def __new__(cls, members: Iterable[T_co] = ()) -> SortedFrozenSet[T_co]:
        """Make a set of comparable members."""
        made = super().__new__(cls, members)
        ordered: Any = frozenset.__iter__(made)
        object.__setattr__(made, "_order", tuple(sorted(ordered)))
        return made

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._order)

    def __reduce__(self) -> tuple[object, ...]:
        return SortedFrozenSet, (self._order,)

    def __repr__(self) -> str:
        return "{" + ", ".join(map(str, self._order)) + "}"

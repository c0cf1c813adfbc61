"""An immutable set that is walked in order: what KIP-924 calls ``SortedSet``, and it hashes.

Plain frozensets of strings are walked in an order that changes with each Python process, which would make an assignor
that iterates over them decide differently on each leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["SortedFrozenSet"]

T_co = TypeVar("T_co", covariant=True)


class SortedFrozenSet(frozenset[T_co]):
    """A frozenset whose iteration is sorted; equal to any set of the same members."""

    __slots__ = ("_order",)

    _order: tuple[T_co, ...]

    def __new__(cls, members: Iterable[T_co] = ()) -> SortedFrozenSet[T_co]:
        """Make the set; its members must be comparable with each other."""
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

"""Properties that are found out once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class remembered(Generic[_T]):  # noqa: N801 - used as ``property`` is
    """A property that is found out once for each object.

    Not ``functools.cached_property``: until Python 3.12 all objects share one lock for each property, and these ask for
    one another, so threads that compile at the same time would wait for one another for ever.
    """

    def __init__(self, find: Callable[[Any], _T]) -> None:
        self._find = find
        self.__doc__ = find.__doc__

    def __get__(self, one: Any, _: type | None = None) -> _T:
        # From now on it is found in the object itself.
        found = one.__dict__[self._find.__name__] = self._find(one)
        return found

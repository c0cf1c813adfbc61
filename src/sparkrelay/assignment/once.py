"""A value that is fetched when it is first asked for, for what costs a request to the broker."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Once"]

T = TypeVar("T")


class Once(Generic[T]):
    """Fetches a value on the first call and returns it on every call.

    What fetching raises is raised on every call, too: an assignor may ask for one partition after the other, and each
    time would wait for a broker that is away.

    Args:
        fetch: Returns the value, or raises; any thread may be the first to ask.
    """

    def __init__(self, fetch: Callable[[], T]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._fetched: list[T] = []
        self._error: Exception | None = None

    def __call__(self) -> T:
        """Return the value, fetched now if nobody has asked before."""
        with self._lock:
            if not self._fetched and self._error is None:
                try:
                    self._fetched.append(self._fetch())
                except Exception as error:  # noqa: BLE001 - raised below, now and later
                    self._error = error
            if self._error is not None:
                raise self._error
            return self._fetched[0]

"""A value that is fetched at the first call, for requests to the broker."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Once(Generic[T]):
    """Fetches a value at the first call and returns it at every call. Thread-safe.

    An exception is also raised at every call: an assignor may ask partition by partition, and would wait for an
    unavailable broker each time.
    """

    def __init__(self, fetch: Callable[[], T]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._value: Future[T] = Future()

    def __call__(self) -> T:
        """Return the value."""
        with self._lock:
            if not self._value.done():
                try:
                    self._value.set_result(self._fetch())
                except Exception as error:  # noqa: BLE001 - raised below, now and later
                    self._value.set_exception(error)
        return self._value.result()

"""Who may use a consumer: one thread at a time, and within callbacks whoever was handed the key. See KIP-944.

Each call of the consumer acquires and releases. A stack holds the key of the call that is running; inside a callback
the same thread may call again because it carries that key, and it may give the key to another thread, explicitly.
Contention raises at once and never waits. Keys live in ``threading.local`` and not in a ``ContextVar``: that would leak
into child tasks and threads that nobody handed anything to. asyncio tasks get their own binding with ``AsyncConsumer``.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import AccessKeyError, ConcurrentModificationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AccessControl", "AccessKey"]

_numbers = itertools.count(1)


class AccessKey:
    """Permission to call a consumer from within one of its callbacks. Compared by identity: it cannot be guessed."""

    __slots__ = ("_number", "holder")

    def __init__(self, holder: str) -> None:
        self._number = next(_numbers)
        #: Name of the thread whose call made it.
        self.holder = holder

    def __repr__(self) -> str:
        return f"<AccessKey {self._number} of thread {self.holder!r}>"


class AccessControl:
    """The key stack of one consumer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stack: list[AccessKey] = []
        self._mine = threading.local()

    @property
    def key(self) -> AccessKey | None:
        """The calling thread's key, None if it has none."""
        return getattr(self._mine, "key", None)

    @key.setter
    def key(self, key: AccessKey | None) -> None:
        self._mine.key = key

    def require_key(self) -> AccessKey:
        """Return the calling thread's key.

        Raises:
            AccessKeyError: the thread is not inside a callback of this consumer.
        """
        key = self.key
        if key is None:
            raise AccessKeyError(
                f"thread {threading.current_thread().name!r} has no key: access_key() is for callbacks of this consumer"
            )
        return key

    def acquire(self) -> None:
        """Begin a call.

        Raises:
            ConcurrentModificationError: another thread is using the consumer.
        """
        thread = threading.current_thread()
        with self._lock:
            if self._stack and self._stack[-1] is not self.key:
                holder = self._stack[-1].holder
                hint = _HINT if holder != thread.name else ""
                raise ConcurrentModificationError(
                    f"thread {thread.name!r} called a consumer that thread {holder!r} is using{hint}"
                )
            key = AccessKey(thread.name)
            self._stack.append(key)
            self._mine.key = key

    def release(self) -> None:
        """End a call.

        Raises:
            AccessKeyError: another thread, which a callback let in, is still using the consumer.
        """
        with self._lock:
            if not self._stack:
                raise AccessKeyError("release() without acquire(): this is an error in SparkRelay")
            if self._stack[-1] is not self.key:
                # The call that returns here is over nevertheless: its own key goes, or the consumer is lost for ever.
                mine, other = self.key, self._stack[-1].holder
                self._stack = [key for key in self._stack if key is not mine]
                self._mine.key = None
                raise AccessKeyError(
                    f"a callback returned to thread {threading.current_thread().name!r} while thread {other!r} was "
                    "still using the consumer; wait for it before you return from the callback"
                )
            self._stack.pop()
            self._mine.key = self._stack[-1] if self._stack else None

    @contextlib.contextmanager
    def lend(self, key: AccessKey) -> Iterator[None]:
        """Carry ``key`` on the calling thread for the time of the block."""
        before = self.key
        self.key = key
        try:
            yield
        finally:
            self.key = before


_HINT: Final = (
    "; a consumer belongs to one thread at a time. Inside a callback, hand over consumer.access_key() and use "
    "'with consumer.access(key):' on the other thread"
)

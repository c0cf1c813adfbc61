"""Who may use a consumer: one thread at a time, and within callbacks whoever was handed the key. See KIP-944.

Each call of the consumer acquires and releases. A stack holds the key of the call that is running; inside a callback
the same thread may call again because it carries that key, and it may give the key to another thread, explicitly.
Contention raises at once and never waits. The consumer of an event loop (``AsyncConsumer``) goes by tasks instead of
threads; all else is the same.

What a thread or task carries is kept in ``threading.local`` or by task, and not in a ``ContextVar``: that would leak
into child tasks and threads that nobody handed anything to. The key of a call is also kept in the frame of that call,
so that nothing a callback does to the binding can make the call lose it.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Protocol

from sparkrelay.errors import AccessKeyError, ConcurrentModificationError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["AccessControl", "AccessKey", "Carriers", "Lent", "Tasks", "Threads"]


class AccessKey:
    """Permission to call a consumer from within one of its callbacks. Compared by identity: it cannot be guessed."""

    __slots__ = ("before", "holder")

    #: The thread (its number) or task whose call made it.
    holder: Any
    #: What that thread or task carried before the call.
    before: AccessKey | None
    # There is no __init__ because it would cost as much as all the rest of acquire().

    def __repr__(self) -> str:
        return f"<AccessKey {id(self):#x} of {_name(self.holder)}>"


class Carriers(Protocol):
    """Those who call a consumer, and the key that each of them carries."""

    #: What to do about contention.
    hint: str

    def me(self) -> Any:
        """Return the caller: the number of a thread, or a task."""

    def get(self, holder: Any, /) -> AccessKey | None:
        """Return the key that a caller carries, None if it has none."""

    def put(self, holder: Any, key: AccessKey | None) -> None:
        """Have a caller carry ``key``."""


class Threads(threading.local):
    """Carriers of a blocking consumer. Each thread can see and change only what it carries itself."""

    hint: str = (
        "; a consumer belongs to one thread at a time. Inside a callback, hand over consumer.access_key() and use "
        "'with consumer.access(key):' on the other thread"
    )
    me = staticmethod(threading.get_ident)
    #: An attribute of the class is what a thread sees that has set none.
    key: AccessKey | None = None

    def get(self, _: Any, /) -> AccessKey | None:
        """Return the calling thread's key."""
        return self.key

    def put(self, _: Any, key: AccessKey | None) -> None:
        """Have the calling thread carry ``key``."""
        self.key = key


class Tasks:
    """Carriers of an awaiting consumer: the tasks of its event loop. A child task inherits nothing."""

    hint: str = (
        "; a consumer belongs to one task at a time. Inside a callback, hand over consumer.access_key() and use "
        "'with consumer.access(key):' in the other task, one after another (an asyncio.Lock will do). "
        "asyncio.wait_for() makes a task of its own before Python 3.12: use asyncio.timeout()"
    )

    def __init__(self) -> None:
        keys: dict[asyncio.Task[Any], AccessKey] = {}
        self._keys = keys
        self.get = keys.get

    def me(self) -> asyncio.Task[Any]:
        """Return the current task."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is None:
            raise AccessKeyError(
                f"thread {threading.current_thread().name!r} runs no asyncio task just now: keys of an AsyncConsumer "
                "are for tasks of its event loop"
            )
        return task

    def put(self, holder: asyncio.Task[Any], key: AccessKey | None) -> None:
        """Have a task carry ``key``."""
        if key is not None:
            self._keys[holder] = key
        elif holder in self._keys:
            del self._keys[holder]


class AccessControl:
    """The key stack of one consumer.

    Args:
        carriers: threads by default.
    """

    __slots__ = ("_carriers", "_get", "_lock", "_me", "_put", "_stack")

    def __init__(self, carriers: Carriers | None = None) -> None:
        self._carriers: Carriers = carriers if carriers is not None else Threads()
        self._me, self._get, self._put = self._carriers.me, self._carriers.get, self._carriers.put
        # Reentrant, for signal handlers run between any two lines and may use the consumer.
        self._lock = threading.RLock()
        self._stack: list[AccessKey] = []

    @property
    def key(self) -> AccessKey | None:
        """The caller's key, None if it has none."""
        return self._get(self._me())

    @key.setter
    def key(self, key: AccessKey | None) -> None:
        me = self._me()
        self._put(me, key)
        if isinstance(me, asyncio.Task):
            # Calls and ``with`` blocks put back what was there; a key that was set like this ends with its task.
            me.add_done_callback(lambda task: self._put(task, None))

    @property
    def nested(self) -> bool:
        """Whether a call of the consumer is under way within a callback of another."""
        return len(self._stack) > 1

    def require_key(self) -> AccessKey:
        """Return the caller's key.

        Raises:
            AccessKeyError: the caller is not inside a callback of this consumer.
        """
        key = self.key
        if key is None:
            raise AccessKeyError(f"{_name(self._me())} has no key: access_key() is for callbacks of this consumer")
        return key

    def acquire(self) -> AccessKey:
        """Begin a call; return its key, for ``release``.

        Raises:
            ConcurrentModificationError: somebody else is using the consumer.
        """
        stack, key = self._stack, AccessKey()
        me = key.holder = self._me()
        mine = key.before = self._get(me)
        with self._lock:
            if stack and stack[-1] is not mine:
                raise self._contention(me)
            self._put(me, key)
            stack.append(key)
        return key

    def release(self, key: AccessKey) -> None:
        """End the call that ``acquire`` began.

        Raises:
            AccessKeyError: somebody else, whom a callback let in, is still using the consumer.
        """
        stack = self._stack
        with self._lock:
            # The holder may not be the caller: a coroutine that is never resumed ends wherever it is thrown away.
            self._put(key.holder, key.before)
            if stack and stack[-1] is key:
                stack.pop()
                return
            if key not in stack:
                return  # abandoned
            early = self._early_return()
            # The call is over nevertheless: its own key goes, or the consumer is lost for ever.
            stack.remove(key)
            raise early

    def check(self) -> None:
        """Tell whether the caller still has the consumer to itself, after a callback.

        Raises:
            AccessKeyError: somebody whom the callback let in is still using it.
        """
        me = self._me()
        with self._lock:
            if self._stack:
                top = self._stack[-1]
                if top.holder != me:
                    raise self._early_return()
                # The callback may have set another one for this thread.
                self._put(me, top)

    def abandon(self) -> None:
        """Forget the calls under way: their event loop is gone, they will never end."""
        with self._lock:
            self._stack.clear()

    def lend(self, key: AccessKey) -> Lent:
        """Have the caller carry ``key`` for the time of a ``with`` block."""
        return Lent(self._carriers, key)

    def _contention(self, me: Any) -> ConcurrentModificationError:
        holder = self._stack[-1].holder
        hint = self._carriers.hint if holder != me else ""
        return ConcurrentModificationError(f"{_name(me)} called a consumer that {_name(holder)} is using{hint}")

    def _early_return(self) -> AccessKeyError:
        me, other = _name(self._me()), _name(self._stack[-1].holder)
        return AccessKeyError(
            f"a callback returned to {me} while {other} was still using the consumer; wait for it before you return "
            "from the callback"
        )


class Lent:
    """A key that was handed over, for the time of a ``with`` or ``async with`` block."""

    __slots__ = ("_before", "_carriers", "_holder", "_key")

    def __init__(self, carriers: Carriers, key: AccessKey) -> None:
        self._carriers = carriers
        self._key = key

    def __enter__(self) -> None:
        self._holder = self._carriers.me()
        self._before = self._carriers.get(self._holder)
        self._carriers.put(self._holder, self._key)

    def __exit__(self, *_: object) -> None:
        self._carriers.put(self._holder, self._before)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__()


def _name(holder: Any) -> str:
    if isinstance(holder, asyncio.Task):
        return f"task {holder.get_name()!r}"
    for thread in threading.enumerate():
        if thread.ident == holder:
            return f"thread {thread.name!r}"
    return f"a thread that has ended ({holder})"

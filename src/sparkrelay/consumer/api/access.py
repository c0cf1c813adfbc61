"""Exclusive access to a consumer: one thread at a time, and within callbacks whoever got the key. See KIP-944.

Each call of the consumer acquires and releases. A stack holds the key of the running call; inside a callback the same
thread may call again because it carries that key, and it may pass the key to another thread, explicitly. Contention
raises at once and never waits. The consumer of an event loop (``AsyncConsumer``) uses tasks instead of threads.

Carried keys are kept in ``threading.local`` or by task, not in a ``ContextVar``, which would leak into child tasks and
threads. The key of a call is also kept in the frame of that call, so that a callback cannot make the call lose it.

A carrier inside ``with consumer.access(key)`` is a guest until it leaves the block, also between its calls: KIP-944
knows only calls, so a callback that returned early would be detected only by chance. When the callback has returned,
its key expires and admits nobody.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import AccessKeyError, ConcurrentModificationError

if TYPE_CHECKING:
    from collections.abc import Callable

_EXPIRED: Final = (
    "its key has expired: the callback that issued it has returned; a callback must wait for those it passed its key to"
)


class AccessKey:
    """Permission to call a consumer from within one of its callbacks. Compared by identity, so it cannot be guessed."""

    __slots__ = ("before", "holder", "owner")

    #: The consumer that it is for.
    owner: AccessControl
    #: The thread (its number) or task whose call made it.
    holder: Any
    #: The key that it carried before the call.
    before: AccessKey | None
    # No __init__: it would cost as much as the rest of acquire().

    def __repr__(self) -> str:
        return f"<AccessKey {id(self):#x} of {_name(self.holder)}>"


class Threads(threading.local):
    """Carriers of a blocking consumer: threads, by number. Each sees and changes only its own key."""

    #: The remedy for contention.
    hint: str = (
        "; a consumer belongs to one thread at a time. Inside a callback, pass on consumer.access_key() and use "
        "'with consumer.access(key):' on the other thread"
    )
    me = staticmethod(threading.get_ident)
    #: The default of every thread.
    key: AccessKey | None = None

    def get(self, _: Any, /) -> AccessKey | None:
        """Return the calling thread's key."""
        return self.key

    def put(self, _: Any, key: AccessKey | None) -> None:
        """Set the calling thread's key."""
        self.key = key

    @staticmethod
    def has_ended(holder: int) -> bool:
        """Whether a thread has ended, however it was started: ``threading`` does not list those of ``_thread``."""
        return holder not in sys._current_frames()  # noqa: SLF001 - Python documents it


class Tasks:
    """Carriers of an awaiting consumer: the tasks of its event loop. A child task inherits nothing."""

    #: The remedy for contention.
    hint: str = (
        "; a consumer belongs to one task at a time. Inside a callback, pass on consumer.access_key() and use "
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
                f"thread {threading.current_thread().name!r} is not running an asyncio task: keys of an AsyncConsumer "
                "are for tasks of its event loop"
            )
        return task

    def put(self, holder: asyncio.Task[Any], key: AccessKey | None) -> None:
        """Set a task's key."""
        if key is not None:
            self._keys[holder] = key
        elif holder in self._keys:
            del self._keys[holder]

    @staticmethod
    def has_ended(holder: asyncio.Task[Any]) -> bool:
        """Whether a task is done."""
        return holder.done()


class AccessControl:
    """The key stack of one consumer; its carriers are threads by default."""

    __slots__ = ("_carriers", "_get", "_inside", "_lock", "_me", "_put", "_stack")

    def __init__(self, carriers: Threads | Tasks | None = None) -> None:
        self._carriers: Any = carriers if carriers is not None else Threads()
        #: Return the caller, and get and set a carrier's key.
        self._me: Callable[[], Any] = self._carriers.me
        self._get: Callable[[Any], AccessKey | None] = self._carriers.get
        self._put: Callable[[Any, AccessKey | None], None] = self._carriers.put
        # Reentrant: signal handlers run between any two lines and may use the consumer.
        self._lock = threading.RLock()
        self._stack: list[AccessKey] = []
        #: The ``with`` blocks entered and not left.
        self._inside: list[Lent] = []

    @property
    def key(self) -> AccessKey | None:
        """The caller's key, None if it has none."""
        return self._get(self._me())

    @key.setter
    def key(self, key: AccessKey | None) -> None:
        if key is not None:
            self._require_mine("set_thread_access_key()", key)
        me = self._me()
        self._put(me, key)
        if isinstance(me, asyncio.Task):
            # Unlike calls and ``with`` blocks, nothing else removes this key.
            me.add_done_callback(lambda task: self._put(task, None))

    @property
    def nested(self) -> bool:
        """Whether a call of the consumer runs within a callback of another."""
        return len(self._stack) > 1

    def require_key(self) -> AccessKey:
        """Return the caller's key; raise AccessKeyError outside of this consumer's callbacks."""
        key = self.key
        if key is None:
            raise AccessKeyError(f"{_name(self._me())} has no key: access_key() is for callbacks of this consumer")
        return key

    def acquire(self) -> AccessKey:
        """Begin a call; return its key for ``release``.

        Raises:
            ConcurrentModificationError: another carrier is using the consumer.
            AccessKeyError: the caller is in a ``with`` block whose key has expired.
        """
        stack, key = self._stack, AccessKey()
        key.owner = self
        me = key.holder = self._me()
        mine = key.before = self._get(me)
        with self._lock:
            if (stack[-1] if stack else None) is not mine:
                self._check_stray(me, mine)
            self._put(me, key)
            stack.append(key)
        return key

    def release(self, key: AccessKey) -> None:
        """End the call that ``acquire`` began; raise AccessKeyError if a callback's guest still uses the consumer."""
        stack = self._stack
        with self._lock:
            # The caller may be another: a coroutine that is never resumed ends where it is collected.
            self._put(key.holder, key.before)
            if stack and stack[-1] is key:
                stack.pop()
                if self._inside and (block := self._guest(key)) is not None:
                    raise self._early_return(key.holder, block.holder)
                return
            if key not in stack:
                return  # abandoned
            early = self._early_return(self._me(), stack[-1].holder)
            # The call has ended nevertheless; keeping its key would lock the consumer for ever.
            stack.remove(key)
            raise early

    def check(self) -> None:
        """Raise AccessKeyError if, after a callback, a guest of it still uses the consumer."""
        me = self._me()
        with self._lock:
            if self._stack:
                top = self._stack[-1]
                if top.holder != me:
                    raise self._early_return(me, top.holder)
                # The callback may have set another key for this thread.
                self._put(me, top)
                if (block := self._guest(top)) is not None:
                    raise self._early_return(me, block.holder)

    def abandon(self) -> None:
        """Drop the running calls: their event loop is closed, so they never end."""
        with self._lock:
            self._stack.clear()
            self._inside.clear()

    def lend(self, key: AccessKey) -> Lent:
        """Return a block in which the caller carries ``key``; raise AccessKeyError unless it is this consumer's."""
        self._require_mine("access()", key)
        return Lent(self, key)

    def enter(self, block: Lent) -> None:
        """Admit the caller until ``leave``; raise AccessKeyError if the key has expired or the block is in use."""
        me = self._me()
        before = self._get(me)
        with self._lock:
            if block in self._inside:
                raise AccessKeyError(
                    f"{_name(me)} may not enter the block of {_name(block.holder)}: call consumer.access(key) once for "
                    "each 'with' block"
                )
            if block.key not in self._stack:
                raise AccessKeyError(f"{_name(me)} may not use the consumer: {_EXPIRED}")
            block.holder, block.before = me, before
            try:
                self._inside.append(block)
                self._put(me, block.key)
            except BaseException:  # a signal handler raised, so the block will not be left
                self.leave(block)
                raise

    def leave(self, block: Lent) -> None:
        """Record that the caller has left the block."""
        with self._lock:
            if block in self._inside:
                self._inside.remove(block)
            self._put(block.holder, block.before)

    def _require_mine(self, what: str, key: object) -> None:
        """Raise unless it is a key of this consumer, valid or expired."""
        if not isinstance(key, AccessKey):
            raise AccessKeyError(f"{what}: {key!r} is not a key; take consumer.access_key() inside a callback")
        if key.owner is not self:
            raise AccessKeyError(
                f"{what}: {key!r} is the key of another consumer; take access_key() of the one to be used"
            )

    def _guest(self, key: AccessKey) -> Lent | None:
        """Return the block of another carrier that entered with a key and has not left."""
        for block in self._inside:
            # A carrier that ended without leaving does no harm.
            if block.key is key and block.holder != key.holder and not self._carriers.has_ended(block.holder):
                return block
        return None

    def _check_stray(self, me: Any, mine: AccessKey | None) -> None:
        """Raise unless a caller that does not carry the top of the stack may call nevertheless."""
        expired = mine is not None and mine not in self._stack
        if expired and any(block.key is mine and block.holder == me for block in self._inside):
            raise AccessKeyError(f"{_name(me)} may not use the consumer any more: {_EXPIRED}")
        # Otherwise an expired key, set by KIP-944's own method, is ignored.
        if self._stack:
            holder = self._stack[-1].holder
            hint = f"; {_EXPIRED}" if expired else self._carriers.hint if holder != me else ""
            raise ConcurrentModificationError(f"{_name(me)} called a consumer that {_name(holder)} is using{hint}")

    @staticmethod
    def _early_return(me: Any, other: Any) -> AccessKeyError:
        return AccessKeyError(
            f"a callback returned to {_name(me)} while {_name(other)} was still using the consumer, in a call or in "
            "'with consumer.access(key):'; wait for it to leave before you return from the callback"
        )


class Lent:
    """The ``with`` or ``async with`` block in which a passed-on key is carried."""

    __slots__ = ("_access", "before", "holder", "key")

    #: The carrier inside.
    holder: Any
    #: The key that it carried before.
    before: AccessKey | None

    def __init__(self, access: AccessControl, key: AccessKey) -> None:
        self._access = access
        self.key = key

    def __enter__(self) -> None:
        self._access.enter(self)

    def __exit__(self, *_: object) -> None:
        self._access.leave(self)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


def _name(holder: Any) -> str:
    if isinstance(holder, asyncio.Task):
        return f"task {holder.get_name()!r}"
    for thread in threading.enumerate():
        if thread.ident == holder:
            return f"thread {thread.name!r}"
    return f"a thread that has ended ({holder})" if Threads.has_ended(holder) else f"a thread without a name ({holder})"

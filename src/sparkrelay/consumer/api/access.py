"""Who may use a consumer: one thread at a time, and within callbacks whoever was handed the key. See KIP-944.

Each call of the consumer acquires and releases. A stack holds the key of the call that is running; inside a callback
the same thread may call again because it carries that key, and it may give the key to another thread, explicitly.
Contention raises at once and never waits. The consumer of an event loop (``AsyncConsumer``) goes by tasks instead of
threads; all else is the same.

What a thread or task carries is kept in ``threading.local`` or by task, and not in a ``ContextVar``: that would leak
into child tasks and threads that nobody handed anything to. The key of a call is also kept in the frame of that call,
so that nothing a callback does to the binding can make the call lose it.

Whoever has entered ``with consumer.access(key)`` counts as inside until it leaves the block, also between its calls:
KIP-944 knows only calls, so a callback that does not wait would be found out by chance. When the callback has returned
its key is over, and lets nobody in any more.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from sparkrelay.errors import AccessKeyError, ConcurrentModificationError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["AccessControl", "AccessKey", "Carriers", "Lent", "Tasks", "Threads"]

_OVER: Final = (
    "its key is over, for the callback that handed it out has returned; a callback must wait for those whom it lets in"
)


class AccessKey:
    """Permission to call a consumer from within one of its callbacks. Compared by identity: it cannot be guessed."""

    __slots__ = ("before", "holder", "owner")

    #: Whose key it is: that of one consumer is nothing to another.
    owner: AccessControl
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

    def has_ended(self, holder: Any) -> bool:
        """Whether a caller will never call again."""


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

    @staticmethod
    def has_ended(holder: int) -> bool:
        """Whether a thread has ended, however it was started: `threading` does not list those of `_thread`."""
        return holder not in sys._current_frames()  # noqa: SLF001 - Python documents it


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

    @staticmethod
    def has_ended(holder: asyncio.Task[Any]) -> bool:
        """Whether a task is done."""
        return holder.done()


class AccessControl:
    """The key stack of one consumer.

    Args:
        carriers: threads by default.
    """

    __slots__ = ("_carriers", "_get", "_inside", "_lock", "_me", "_put", "_stack")

    def __init__(self, carriers: Carriers | None = None) -> None:
        self._carriers: Carriers = carriers if carriers is not None else Threads()
        self._me, self._get, self._put = self._carriers.me, self._carriers.get, self._carriers.put
        # Reentrant, for signal handlers run between any two lines and may use the consumer.
        self._lock = threading.RLock()
        self._stack: list[AccessKey] = []
        #: The ``with`` blocks that somebody is in.
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
            AccessKeyError: the caller is in a ``with`` block whose key is over.
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
                if self._inside and (block := self._guest(key)) is not None:
                    raise self._early_return(key.holder, block.holder)
                return
            if key not in stack:
                return  # abandoned
            early = self._early_return(self._me(), stack[-1].holder)
            # The call is over nevertheless: its own key goes, or the consumer is lost for ever.
            stack.remove(key)
            raise early

    def check(self) -> None:
        """Return whether the caller still has the consumer to itself, after a callback.

        Raises:
            AccessKeyError: somebody whom the callback let in is still using it.
        """
        me = self._me()
        with self._lock:
            if self._stack:
                top = self._stack[-1]
                if top.holder != me:
                    raise self._early_return(me, top.holder)
                # The callback may have set another one for this thread.
                self._put(me, top)
                if (block := self._guest(top)) is not None:
                    raise self._early_return(me, block.holder)

    def abandon(self) -> None:
        """Forget the calls under way: their event loop is gone, they will never end."""
        with self._lock:
            self._stack.clear()
            self._inside.clear()

    def lend(self, key: AccessKey) -> Lent:
        """Have the caller carry ``key`` for the time of a ``with`` block.

        Raises:
            AccessKeyError: it is no key, or that of another consumer.
        """
        self._require_mine("access()", key)
        return Lent(self, key)

    def enter(self, block: Lent) -> None:
        """Let the caller in, for ``leave``.

        Raises:
            AccessKeyError: the key is over, or somebody is in this block already.
        """
        me = self._me()
        before = self._get(me)
        with self._lock:
            if block in self._inside:
                raise AccessKeyError(
                    f"{_name(me)} may not enter what {_name(block.holder)} is in: call consumer.access(key) once for "
                    "each 'with' block"
                )
            if block.key not in self._stack:
                raise AccessKeyError(f"{_name(me)} may not use the consumer: {_OVER}")
            block.holder, block.before = me, before
            try:
                self._inside.append(block)
                self._put(me, block.key)
            except BaseException:  # a signal handler raised: nobody will leave what was not entered
                self.leave(block)
                raise

    def leave(self, block: Lent) -> None:
        """Note that whoever entered is out."""
        with self._lock:
            if block in self._inside:
                self._inside.remove(block)
            self._put(block.holder, block.before)

    def _require_mine(self, what: str, key: object) -> None:
        """Raise unless it is a key of this consumer, in use or over."""
        if not isinstance(key, AccessKey):
            raise AccessKeyError(f"{what}: {key!r} is no key; take consumer.access_key() inside a callback")
        if key.owner is not self:
            raise AccessKeyError(
                f"{what}: {key!r} is the key of another consumer; take access_key() of the one that is to be used"
            )

    def _guest(self, key: AccessKey) -> Lent | None:
        """Return the block of somebody else who was let in with a key and is not out yet."""
        for block in self._inside:
            # Whoever entered by hand and ended without leaving cannot do any harm.
            if block.key is key and block.holder != key.holder and not self._carriers.has_ended(block.holder):
                return block
        return None

    def _check_stray(self, me: Any, mine: AccessKey | None) -> None:
        """Raise unless a caller that does not carry the top of the stack may call nevertheless."""
        over = mine is not None and mine not in self._stack
        if over and any(block.key is mine and block.holder == me for block in self._inside):
            raise AccessKeyError(f"{_name(me)} may not use the consumer any more: {_OVER}")
        # Otherwise whoever has set a key by KIP-944's own method may still have it: it is nothing.
        if self._stack:
            raise self._contention(me, over=over)

    def _contention(self, me: Any, *, over: bool) -> ConcurrentModificationError:
        holder = self._stack[-1].holder
        hint = f"; {_OVER}" if over else self._carriers.hint if holder != me else ""
        return ConcurrentModificationError(f"{_name(me)} called a consumer that {_name(holder)} is using{hint}")

    @staticmethod
    def _early_return(me: Any, other: Any) -> AccessKeyError:
        return AccessKeyError(
            f"a callback returned to {_name(me)} while {_name(other)} was still using the consumer, in a call or in "
            "'with consumer.access(key):'; wait for it to leave before you return from the callback"
        )


class Lent:
    """A key that was handed over, for the time of a ``with`` or ``async with`` block."""

    __slots__ = ("_access", "before", "holder", "key")

    #: Who entered.
    holder: Any
    #: What it carried before.
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
    return f"a thread that has ended ({holder})" if Threads.has_ended(holder) else f"a thread without a name ({holder})"

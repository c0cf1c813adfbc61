"""A start on a thread of its own, so that no signal's exception finds it half done.

Python raises what a signal's handler raises (SystemExit, KeyboardInterrupt) between any two steps of the main thread:
between taking a lock and holding it, or between saying that threads run and starting them. No order of ``try`` blocks
covers all of these. So the main thread only waits, and what interrupts its wait has the start broken off at points that
the start knows.
"""

from __future__ import annotations

import _thread
import contextlib
import threading
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import WakeupException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Beginning"]

_LOOK_SECONDS: Final = 0.1


class Beginning:
    """One start. It may be broken off from any thread; ``run`` and ``withdraw`` are its caller's."""

    def __init__(self, steps: Callable[[Beginning], None], *, name: str) -> None:
        """Prepare; nothing runs yet.

        Args:
            steps: does it, on a thread of its own, and undoes it where it raises.
            name: the thread's.
        """
        self._steps = steps
        self._name = name
        #: Taken by the thread, or by who withdraws the start before the thread is there.
        self._turn = threading.Lock()
        #: Released at the end. A bare lock: nobody can be interrupted while holding the inside of an Event.
        self._end = threading.Lock()
        self._end.acquire()
        self._over = False
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._broken_off = False
        #: What breaks off the waits under way.
        self._interrupts: list[Callable[[], object]] = []

    def run(self) -> None:
        """Do the steps and wait for their end; raises what they raise.

        An exception that a signal raises meanwhile must be followed by :meth:`withdraw`.
        """
        _thread.start_new_thread(self._launch, (self._run, self._name))
        self._wait()
        if self._error is not None:
            raise self._error

    def withdraw(self) -> bool:
        """Break the start off and wait until it is undone; return True if it was too late, so that all steps are done.

        Where they have ended already, only the answer is given.
        """
        if self._over:
            return self._error is None
        if self._turn.acquire(blocking=False):
            # The thread never came to it, and never will.
            return False
        # Beside: an exception from here must not leave the lock taken.
        _thread.start_new_thread(self._launch, (self.break_off, f"{self._name}-end"))
        self._wait()
        return self._error is None

    def break_off(self) -> None:
        """Have the steps end with WakeupException at the next point where that can be; returns at once."""
        with self._lock:
            self._broken_off = True
            for interrupt in self._interrupts:
                interrupt()

    def check(self) -> None:
        """Be a point where the start can be broken off.

        Raises:
            WakeupException: it is.
        """
        with self._lock:
            if self._broken_off:
                raise WakeupException("the start was broken off")

    @contextlib.contextmanager
    def breakable(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Have ``interrupt``, which any thread may call, end the waiting in this block if the start is broken off.

        Raises:
            WakeupException: it is broken off.
        """
        self.check()
        with self._lock:
            self._interrupts.append(interrupt)
            if self._broken_off:
                interrupt()
        try:
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)
        self.check()

    def _launch(self, target: Callable[[], None], name: str) -> None:
        # On a bare thread: ``Thread.start`` waits for the thread, and who is interrupted there may leave it stuck.
        try:
            threading.Thread(target=target, name=name, daemon=True).start()
        except RuntimeError as error:  # this computer has no thread left
            if self._turn.acquire(blocking=False):
                self._close(error)

    def _close(self, error: BaseException | None) -> None:
        self._error = error
        self._over = True
        self._end.release()

    def _run(self) -> None:
        if not self._turn.acquire(blocking=False):
            return
        error: BaseException | None = None
        try:
            self._steps(self)
        except BaseException as raised:  # noqa: BLE001 - it is raised where somebody waits
            error = raised
        self._close(error)

    def _wait(self) -> None:
        while not self._over:
            # Again and again: a signal that comes right before the main thread falls asleep does not wake it.
            self._end.acquire(timeout=_LOOK_SECONDS)

"""A start on its own thread, so that a signal's exception cannot interrupt it halfway.

Python raises a signal handler's exception (SystemExit, KeyboardInterrupt) between any two steps of the main thread: for
example between taking a lock and recording that, or before threads that are marked as running have started. No
arrangement of ``try`` blocks covers all cases. So the main thread only waits; an interruption of its wait breaks the
start off at points that the start defines.
"""

from __future__ import annotations

import _thread
import contextlib
import threading
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import WakeupException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOK_SECONDS: Final = 0.1


class Beginning:
    """One start, by ``steps`` on a thread of that name, which undo it before they raise.

    Any thread may break it off; ``run`` and ``withdraw`` are for its caller.
    """

    def __init__(self, steps: Callable[[Beginning], None], *, name: str) -> None:
        self._steps = steps
        self._name = name
        #: Taken by the thread, or by a withdrawal before the thread runs.
        self._turn = threading.Lock()
        #: Released at the end. A bare lock: an interrupted thread may leave an Event's inner lock taken.
        self._end = threading.Lock()
        self._end.acquire()
        self._over = False
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._broken_off = False
        #: Interrupt the current waits.
        self._interrupts: list[Callable[[], object]] = []

    def run(self) -> None:
        """Run the steps, wait for their end and raise their error. Call :meth:`withdraw` if a signal interrupts it."""
        _thread.start_new_thread(self._launch, (self._run, self._name))
        self._wait()
        if self._error is not None:
            raise self._error

    def withdraw(self) -> bool:
        """Break the start off and wait until it is undone; return True if it had completed before."""
        if self._over:
            return self._error is None
        if self._turn.acquire(blocking=False):
            # The thread has not begun, and never will.
            return False
        # On another thread: an exception here must not leave the lock taken.
        _thread.start_new_thread(self._launch, (self.break_off, f"{self._name}-end"))
        self._wait()
        return self._error is None

    def break_off(self) -> None:
        """End the steps with WakeupException at the next possible point; returns at once."""
        with self._lock:
            self._broken_off = True
            for interrupt in self._interrupts:
                interrupt()

    def check(self) -> None:
        """Raise WakeupException if the start was broken off."""
        with self._lock:
            if self._broken_off:
                raise WakeupException("the start was broken off")

    @contextlib.contextmanager
    def breakable(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Have the thread-safe ``interrupt`` end the wait in this block if the start is broken off; see ``check``."""
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
        # On a bare thread: an interruption of ``Thread.start``, which waits for the thread, may leave it stuck.
        try:
            threading.Thread(target=target, name=name, daemon=True).start()
        except RuntimeError as error:  # the system has no threads left
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
        except BaseException as raised:  # noqa: BLE001 - raised again in run()
            error = raised
        self._close(error)

    def _wait(self) -> None:
        while not self._over:
            # In short waits: a signal right before the main thread blocks does not wake it.
            self._end.acquire(timeout=_LOOK_SECONDS)

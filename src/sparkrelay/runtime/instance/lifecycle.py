"""The life of an instance: its state, which state may follow which, who is notified, and waiting for the end.

The states are those of Kafka Streams' ``KafkaStreams.State``.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StreamsException
from sparkrelay.state_machine import StateMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ALIVE", "CREATED", "ERROR", "FOLLOWING", "NOT_RUNNING", "PENDING_SHUTDOWN", "RUNNING", "Life", "State"]

log = logging.getLogger(__name__)

State = str

CREATED: Final = "CREATED"
REBALANCING: Final = "REBALANCING"
RUNNING: Final = "RUNNING"
PENDING_SHUTDOWN: Final = "PENDING_SHUTDOWN"
NOT_RUNNING: Final = "NOT_RUNNING"
PENDING_ERROR: Final = "PENDING_ERROR"
ERROR: Final = "ERROR"

#: State -> the states that may come after it; docs/watching.md has them too.
FOLLOWING: Final[Mapping[State, frozenset[State]]] = {
    CREATED: frozenset({REBALANCING, PENDING_SHUTDOWN}),
    REBALANCING: frozenset({RUNNING, PENDING_SHUTDOWN, PENDING_ERROR}),
    RUNNING: frozenset({REBALANCING, PENDING_SHUTDOWN, PENDING_ERROR}),
    PENDING_SHUTDOWN: frozenset({NOT_RUNNING}),
    PENDING_ERROR: frozenset({ERROR}),
    NOT_RUNNING: frozenset(),
    ERROR: frozenset(),
}
#: States in which an instance is part of its group.
ALIVE: Final = frozenset({REBALANCING, RUNNING})
_LOOK_SECONDS: Final = 0.5
_ENDED: Final = frozenset({NOT_RUNNING, ERROR})


class Life:
    """Any thread may call it.

    ``on_change`` is called and the listener notified of every change, in order, on a thread that made one. Who waits
    for the end waits for them too.
    """

    def __init__(self, name: str, on_change: Callable[[State, State], None] = lambda *_: None) -> None:
        self._name = name
        self._on_change = on_change
        self._changed = threading.Condition()
        self._machine: StateMachine[State] = StateMachine(f"instance {name}", CREATED, FOLLOWING)
        self._starting = False
        self._cause: Exception | None = None
        #: Changes (new, old) of which the listener is still to be notified.
        self._not_notified: deque[tuple[State, State]] = deque()
        self._notifier: int | None = None
        self.listener: Callable[[State, State], None] | None = None

    @property
    def state(self) -> State:
        """The state now."""
        with self._changed:
            return self._machine.state

    @property
    def alive(self) -> bool:
        """True from the end of ``start()`` until a stop or a failure begins."""
        return self.state in ALIVE

    @property
    def ended(self) -> bool:
        """True once everything is released."""
        return self.state in _ENDED

    @property
    def under_way(self) -> bool:
        """True from the beginning of ``start()``, unless it fails, until everything is released."""
        with self._changed:
            return self._starting and self.state not in _ENDED

    @property
    def cause(self) -> Exception | None:
        """What ended the instance, if something failed."""
        with self._changed:
            return self._cause

    def begin(self) -> None:
        """Take the one start that an instance has.

        Raises:
            StreamsException: it was taken, or the instance has been stopped.
        """
        with self._changed:
            if self._starting or self.state != CREATED:
                state = "being started" if self._starting and self.state == CREATED else self.state
                raise StreamsException(f"start() needs a new instance; this one is {state}. Make another KafkaStreams")
            self._starting = True

    def begun(self) -> bool:
        """Say that everything is in place; return False if a stop came in between."""
        with self._changed:
            if self.state != CREATED:
                return False
            self._move(REBALANCING, "started")
        self._notify()
        return True

    def not_begun(self) -> None:
        """Say that the start failed: the instance may be started again, unless a stop came in between."""
        with self._changed:
            self._starting = False
            self._changed.notify_all()
            stopped = self.state == PENDING_SHUTDOWN
        if stopped:
            self.end()

    def note_tasks(self, in_service: Callable[[], bool]) -> None:
        """Note whether every thread has its tasks in service; asked under the lock: the newest answer counts."""
        with self._changed:
            wanted = RUNNING if in_service() else REBALANCING
            if self.state not in ALIVE or self.state == wanted:
                return
            self._move(wanted, "a thread's tasks changed")
        self._notify()

    def ask_to_end(self) -> None:
        """Begin an orderly stop, if the instance is not ending already."""
        with self._changed:
            if self.state != CREATED and self.state not in ALIVE:
                return
            self._move(PENDING_SHUTDOWN, "asked to end")
            never_started = not self._starting
        try:
            self._notify()
        finally:
            if never_started:
                self.end()

    def fail(self, cause: Exception) -> None:
        """Note what failed; the first cause counts."""
        with self._changed:
            self._cause = self._cause or cause
            if self.state not in ALIVE:
                return
            self._move(PENDING_ERROR, f"failed: {cause!r}")
        self._notify()

    def end(self) -> None:
        """Say that everything is released."""
        with self._changed:
            if self.state in _ENDED:
                return
            self._move(ERROR if self.state == PENDING_ERROR else NOT_RUNNING, "everything is released")
        self._notify()

    @property
    def notifying(self) -> bool:
        """True on the thread that notifies the listener, that is, in its callback."""
        return self._notifier == threading.get_ident()

    def wait_for_end(self, timeout: float | None) -> bool:
        """Wait until everything is released and the listener notified; return False if it takes longer.

        Args:
            timeout: seconds; None: for ever.

        Raises:
            StreamsException: nobody has started the instance, or its start failed meanwhile: no end would come.
        """
        with self._changed:
            by_us = self.notifying

            def ended() -> bool:
                return self.state in _ENDED and (by_us or not self._not_notified)

            deadline = math.inf if timeout is None else time.monotonic() + timeout
            while not (ended() or self._unstarted) and (left := deadline - time.monotonic()) > 0:
                # Again and again: a signal that comes right before the main thread falls asleep does not wake it.
                self._changed.wait(min(left, _LOOK_SECONDS))
            if self._unstarted:
                raise StreamsException(f"{self._name} is not started, so its end would never come: call start() first")
            return ended()

    @property
    def _unstarted(self) -> bool:
        return self.state == CREATED and not self._starting

    def _move(self, state: State, event: str) -> None:
        old = self.state
        self._machine.move(state, event)
        log.info("%s: %s -> %s", self._name, old, state)
        self._not_notified.append((state, old))
        self._changed.notify_all()

    def _notify(self) -> None:
        """Notify the listener of what is new, unless another thread, or this one further up, does already.

        Raises:
            KeyboardInterrupt, SystemExit: on the main thread, once that is done: a signal may have raised it.
        """
        with self._changed:
            if self._notifier is not None:
                return
            self._notifier = threading.get_ident()
        interrupt: BaseException | None = None
        while True:
            with self._changed:
                if not self._not_notified:
                    self._notifier = None
                    break
                new, old = self._not_notified[0]
            try:
                self._on_change(new, old)
                if self.listener is not None:
                    self.listener(new, old)
            except Exception:
                log.exception("the state listener failed")
            except BaseException as error:  # others wait for the end of this
                if threading.current_thread() is threading.main_thread():
                    interrupt = error
                else:
                    log.exception("the state listener failed")
            with self._changed:
                self._not_notified.popleft()
                self._changed.notify_all()
        if interrupt is not None:
            raise interrupt

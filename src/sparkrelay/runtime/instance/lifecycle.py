"""The life cycle of an instance: its state, transitions, listeners, and waiting for the end.

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

log = logging.getLogger(__name__)

State = str

CREATED: Final = "CREATED"
REBALANCING: Final = "REBALANCING"
RUNNING: Final = "RUNNING"
PENDING_SHUTDOWN: Final = "PENDING_SHUTDOWN"
NOT_RUNNING: Final = "NOT_RUNNING"
PENDING_ERROR: Final = "PENDING_ERROR"
ERROR: Final = "ERROR"

#: State -> allowed next states; also in docs/watching.md.
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
    """The life cycle of one instance. Thread-safe.

    ``on_change`` and the listener are called for every change, in order, on a thread that made one. Waiting for the end
    includes these calls.
    """

    def __init__(self, name: str, on_change: Callable[[State, State], None] = lambda *_: None) -> None:
        self._name = name
        self._on_change = on_change
        self._changed = threading.Condition()
        self._machine: StateMachine[State] = StateMachine(f"instance {name}", CREATED, FOLLOWING)
        self._starting = False
        self._cause: Exception | None = None
        #: Changes (new, old) not yet passed to the listener.
        self._not_notified: deque[tuple[State, State]] = deque()
        self._notifier: int | None = None
        self.listener: Callable[[State, State], None] | None = None

    @property
    def state(self) -> State:
        """The current state."""
        with self._changed:
            return self._machine.state

    @property
    def alive(self) -> bool:
        """True from the end of ``start()`` to the beginning of a stop or failure."""
        return self.state in ALIVE

    @property
    def ended(self) -> bool:
        """True once all resources are released."""
        return self.state in _ENDED

    @property
    def under_way(self) -> bool:
        """True from the beginning of ``start()``, unless it fails, until all resources are released."""
        with self._changed:
            return self._starting and self.state not in _ENDED

    @property
    def cause(self) -> Exception | None:
        """The failure that ended the instance, if any."""
        with self._changed:
            return self._cause

    def begin(self) -> None:
        """Begin the only start of the instance; raises StreamsException after an earlier start or stop."""
        with self._changed:
            if self._starting or self.state != CREATED:
                state = "being started" if self._starting and self.state == CREATED else self.state
                raise StreamsException(f"start() needs a new instance; this one is {state}. Make another KafkaStreams")
            self._starting = True

    def begun(self) -> bool:
        """Record that the start is complete; return False if a stop came first."""
        with self._changed:
            if self.state != CREATED:
                return False
            self._move(REBALANCING, "started")
        self._notify()
        return True

    def not_begun(self) -> None:
        """Record that the start failed; the instance may be started again unless it was stopped."""
        with self._changed:
            self._starting = False
            self._changed.notify_all()
            stopped = self.state == PENDING_SHUTDOWN
        if stopped:
            self.end()

    def note_tasks(self, in_service: Callable[[], bool]) -> None:
        """Record whether every thread has its tasks in service; asks under the lock: the newest answer counts."""
        with self._changed:
            wanted = RUNNING if in_service() else REBALANCING
            if self.state not in ALIVE or self.state == wanted:
                return
            self._move(wanted, "a thread's tasks changed")
        self._notify()

    def ask_to_end(self) -> None:
        """Begin an orderly stop unless the instance is already ending."""
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
        """Record a failure; the first one is the cause."""
        with self._changed:
            self._cause = self._cause or cause
            if self.state not in ALIVE:
                return
            self._move(PENDING_ERROR, f"failed: {cause!r}")
        self._notify()

    def end(self) -> None:
        """Record that all resources are released."""
        with self._changed:
            if self.state in _ENDED:
                return
            self._move(ERROR if self.state == PENDING_ERROR else NOT_RUNNING, "everything is released")
        self._notify()

    @property
    def notifying(self) -> bool:
        """True on the thread that runs the listener's callback."""
        return self._notifier == threading.get_ident()

    def wait_for_end(self, timeout: float | None) -> bool:
        """Wait until all resources are released and the listener was notified; return False after ``timeout`` seconds.

        Raises:
            StreamsException: the instance is not started, or its start failed, so that the wait would never end.
        """
        with self._changed:
            by_us = self.notifying

            def ended() -> bool:
                return self.state in _ENDED and (by_us or not self._not_notified)

            deadline = math.inf if timeout is None else time.monotonic() + timeout
            while not (ended() or self._unstarted) and (left := deadline - time.monotonic()) > 0:
                # In short waits: a signal right before the main thread blocks does not wake it.
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
        """Notify the listener of new changes, unless another thread, or an outer call of this one, is doing so.

        Raises:
            KeyboardInterrupt, SystemExit: raised by a signal on the main thread; after all notifications.
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
            except BaseException as error:  # other threads wait for the notifications
                if threading.current_thread() is threading.main_thread():
                    interrupt = error
                else:
                    log.exception("the state listener failed")
            with self._changed:
                self._not_notified.popleft()
                self._changed.notify_all()
        if interrupt is not None:
            raise interrupt

"""The selector loop under one or many Kafka clients, used by one thread.

kafka-python's loop, with what it does for each exchange made cheap. Measured with 400 connections, its own ways cost
more than the rest of an exchange: it enters and leaves ``epoll`` for each wait, and cancelling a timer (each answered
request does) searches and rebuilds the heap of all timers. Here a connection's socket stays registered and is read by a
plain call; a cancelled timer stays in the heap until it is due or half of the heap is like it; and a wakeup is a system
call only if the thread sleeps.

Refused: a loop of our own (kafka.net's connections, TLS and SASL want its tasks), asyncio (the same, and it would take
over the thread).
"""

from __future__ import annotations

import heapq
import logging
import selectors
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kafka.net.selector import KernelEvent, NetworkSelector, Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Loop"]

_log = logging.getLogger(__name__)

_SCRATCH_BYTES: Final = 64 * 1024
#: What every system's select() takes.
_LONGEST_SECONDS: Final = 86_400.0
#: The heap of timers is cleared of cancelled ones when there are more of them than this, and more than others.
_CANCELLED_KEPT: Final = 256


class Loop(NetworkSelector):  # type: ignore[misc]
    """See the module.

    Attributes:
        scratch: memory for receiving, used between a read and the end of its handling: one for all connections.
    """

    _poll_owner: threading.Thread | None
    _scheduled: list[tuple[float, Any]]
    _current: Any

    def __init__(self, client_id: str) -> None:
        # kafka.net warns of each step of the loop over 100 ms; decoding a large response may take that.
        super().__init__(client_id=client_id, slow_task_threshold_secs=0)
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._cancelled_timers = 0
        self._woken = False
        self._asleep = False

    def turn(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for anything to happen, and handle what did. See ``wakeup``."""
        self._poll_once(max(0.0, timeout))

    def wakeup(self) -> None:
        """End a waiting turn, or the next one. May be called from any thread.

        Put what the turn is to find where it looks, then call this: both sides write before they read, so one of them
        sees the other.
        """
        self._woken = True
        if self._asleep:
            try:
                self._asleep = False
                super().wakeup()
            except BaseException:  # a signal handler raised: the next one must not rely on it
                self._asleep = True
                raise

    def _poll_once(self, timeout: float | None = None) -> None:
        if not self._poll_lock.acquire(blocking=False):
            how = "Recursive" if self._poll_owner is threading.current_thread() else "Concurrent"
            raise RuntimeError(f"{how} access to net.poll!")
        self._poll_owner = threading.current_thread()
        try:
            self._asleep = True
            if self._woken or self._ready:
                timeout = 0.0
            elif (due := self._next_timer()) is not None:
                left = max(0.0, due - time.monotonic())
                timeout = left if timeout is None else min(timeout, left)
            events = self._selector.select(None if timeout is None else min(timeout, _LONGEST_SECONDS))
            self._asleep = False
            if events:
                self._process_events(events)
            self._schedule_tasks()
            for _ in range(len(self._ready)):
                self._step(self._ready.popleft())
        finally:
            # The caller looks now: it sees what was put down before any wakeup up to here.
            self._asleep = self._woken = False
            self._current = None
            self._poll_owner = None
            self._poll_lock.release()

    def _step(self, task: Any) -> None:
        """Run a task up to its next wait."""
        if task.state in (TaskState.DONE, TaskState.CANCELLED):
            return
        self._current = task
        task.state = TaskState.RUNNING
        try:
            event = task()
        except StopIteration:
            self._task_done(task)
            return
        except BaseException as error:
            _log.exception("a task of the network loop failed")
            self._task_done(task)
            if not isinstance(error, Exception):
                raise
            return
        if task.state is TaskState.CANCELLED:
            self._pending_tasks.discard(task)
            task.close()
        elif isinstance(event, KernelEvent):
            try:
                getattr(self, event.method)(*event.args)
            except Exception as error:  # noqa: BLE001 - the task's to handle
                task.inject_exc(error)
                self._add_ready_task(task)
        else:
            task.state = TaskState.WAIT_FUTURE
            event.add_both(lambda _: self.call_soon(task))
        if task.state is TaskState.RUNNING:
            task.state = TaskState.UNSCHEDULED

    # -- sockets -----------------------------------------------------------------------------------------------------

    def receive(self, sock: Any, callback: Callable[[], None]) -> None:
        """Call ``callback()`` whenever ``sock`` can be read, until ``unregister_event``."""
        # kafka.net keeps a pair of waiting tasks with each socket; ours is a plain function in the first place.
        self._selector.register(sock, selectors.EVENT_READ, (callback, None))

    def _process_events(self, event_list: list[tuple[selectors.SelectorKey, int]]) -> None:
        for key, events in event_list:
            reader, writer = key.data
            if key.fileobj is self._wakeup_r:
                super()._process_events([(key, events)])
                continue
            if writer is not None and events & selectors.EVENT_WRITE:
                self._add_ready_task(writer)
            if reader is None or not events & selectors.EVENT_READ:
                continue
            if isinstance(reader, Task):
                self._add_ready_task(reader)
                continue
            try:
                reader()
            except Exception:  # noqa: BLE001 - logged
                # A connection handles its own trouble, and ends itself if need be: none ends the loop of the others.
                _log.exception("a socket could not be read")

    # -- timers ------------------------------------------------------------------------------------------------------

    def timer(self, when: float, callback: Callable[[], None]) -> Any:
        """Call ``callback()`` at a monotonic time, unless ``cancel`` is called with what this returns."""
        timer: Any = _Timer(callback)
        timer.scheduled_at = when
        timer.state = TaskState.SCHEDULED
        heapq.heappush(self._scheduled, (when, timer))
        return timer

    def _unschedule(self, task: Any) -> None:
        task.scheduled_at = None
        task.state = TaskState.UNSCHEDULED
        self._cancelled_timers += 1
        if self._cancelled_timers > max(_CANCELLED_KEPT, len(self._scheduled) // 2):
            self._scheduled = [entry for entry in self._scheduled if entry[1].scheduled_at == entry[0]]
            heapq.heapify(self._scheduled)
            self._cancelled_timers = 0

    def _next_timer(self) -> float | None:
        """Return the time of the first timer that counts, and drop cancelled ones in front of it."""
        timers = self._scheduled
        while timers:
            when, task = timers[0]
            if task.scheduled_at == when:
                return float(when)
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        return None

    def _schedule_tasks(self) -> None:
        while (when := self._next_timer()) is not None and when <= time.monotonic():
            _, task = heapq.heappop(self._scheduled)
            task.scheduled_at = None
            self._add_ready_task(task)


class _Timer(Task):  # type: ignore[misc]
    """A task that is one plain function. kafka.net's own look at a function in five ways before they call it."""

    _stack: tuple[Callable[[], None], None] | None

    def __init__(self, callback: Callable[[], None]) -> None:
        self._stack = (callback, None)
        self._res = self._exc = self.scheduled_at = None
        self.state = TaskState.CREATED

    def __call__(self, arg: object = None) -> None:
        """Call the function; like every task, end with StopIteration."""
        del arg
        stack, self._stack = self._stack, None
        if stack is not None:
            stack[0]()
        raise StopIteration

    def close(self) -> None:
        """Forget the function."""
        self._stack = None
        self.state = TaskState.CANCELLED

"""The selector loop under the Kafka clients of one thread.

kafka-python's loop, with the per-request work made cheap. Measured with 400 connections, its own ways cost more than
the rest of a request: it enters and leaves ``epoll`` for each wait, and cancelling a timer (each answer does) searches
and rebuilds the heap of all timers. Here a connection's socket stays registered and is read by a plain call; a
cancelled timer stays in the heap until it is due or half of the heap is cancelled; and a wakeup is a system call only
if the thread sleeps.

Refused: a loop of our own (kafka.net's connections, TLS and SASL need its tasks), asyncio (the same, and it would take
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

_log = logging.getLogger(__name__)

_SCRATCH_BYTES: Final = 64 * 1024
#: Accepted by every system's select().
_LONGEST_SECONDS: Final = 86_400.0
#: Cancelled timers are removed when there are more than this, and more than half of all.
_CANCELLED_KEPT: Final = 256


class Loop(NetworkSelector):  # type: ignore[misc]
    """The loop; ``scratch`` is memory that all connections receive into, valid until a read is handled."""

    _poll_owner: threading.Thread | None
    _scheduled: list[tuple[float, Any]]
    _current: Any

    def __init__(self, client_id: str) -> None:
        # Slow steps are not logged: decoding a large response may take kafka.net's 100 ms.
        super().__init__(client_id=client_id, slow_task_threshold_secs=0)
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._cancelled_timers = 0
        self._woken = False
        self._asleep = False

    def turn(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for events and handle them."""
        self._poll_once(max(0.0, timeout))

    def wakeup(self) -> None:
        """End a waiting turn, or the next one. Thread-safe.

        Publish what the turn must see before the call: both sides write before they read, so one of them sees the
        other.
        """
        self._woken = True
        if self._asleep:
            try:
                self._asleep = False
                super().wakeup()
            except BaseException:  # a signal handler raised: the next wakeup must not rely on this one
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
            # The caller sees everything that was published before any wakeup until now.
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
        # kafka.net registers a pair of waiting tasks with each socket; ours has a plain function as the reader.
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
                # A connection handles its own errors; none may end the loop of the others.
                _log.exception("a socket could not be read")

    # -- timers ------------------------------------------------------------------------------------------------------

    def timer(self, when: float, callback: Callable[[], None]) -> Any:
        """Call ``callback()`` at a monotonic time, unless the returned timer is given to ``cancel``."""
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
        """Return the time of the next timer, and drop cancelled ones before it."""
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
    """A task of one plain function, without kafka.net's five ways of inspecting a function before each call."""

    _stack: tuple[Callable[[], None], None] | None

    def __init__(self, callback: Callable[[], None]) -> None:
        self._stack = (callback, None)
        self._res = self._exc = self.scheduled_at = None
        self.state = TaskState.CREATED

    def __call__(self, arg: object = None) -> None:
        """Call the function and, like every task, end with StopIteration."""
        del arg
        stack, self._stack = self._stack, None
        if stack is not None:
            stack[0]()
        raise StopIteration

    def close(self) -> None:
        """Drop the function."""
        self._stack = None
        self.state = TaskState.CANCELLED

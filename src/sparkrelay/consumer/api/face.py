"""What both faces of the consumer share: methods that wait for nothing, and the cleanup of unclosed consumers.

A network thread would keep a consumer and its connections for ever. So the thread refers to managers, buffer and
mailbox, but neither to the session nor to the face; and when the face is garbage-collected, the connections are closed.
The member does not leave its group: that needs the broker's answer, and callbacks that only ``close`` can run.
"""

from __future__ import annotations

import os
import time
import warnings
import weakref
from typing import TYPE_CHECKING, TypeVar

from sparkrelay.consumer.base.errors import forked_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.consumer.api.access import AccessControl, AccessKey, Lent
    from sparkrelay.consumer.api.session import Session
    from sparkrelay.consumer.network.network_thread import ConsumerHandle

A = TypeVar("A")
R = TypeVar("R")


class Face:
    """The common methods. A *carrier* is the caller: a thread for ``Consumer``, a task for ``AsyncConsumer``."""

    _access: AccessControl
    _session: Session
    #: The process that made it.
    _process: int

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise forked_error(type(self).__name__, self._process)

    def _check_caller(self) -> None:
        self._check_process()

    def _call(self, action: Callable[[], R]) -> R:
        """Run an action with exclusive use of the consumer, see ``access``."""
        self._check_caller()
        key = self._access.acquire()
        try:
            self._session.check_open()
            return action()
        finally:
            self._access.release(key)

    def wakeup(self) -> None:
        """End a waiting call with WakeupException, or the next one. For any thread or task, and signal handlers.

        It does nothing in a process forked from the consumer's own, which inherits the handlers.
        """
        if self._process == os.getpid():
            self._session.wakeup()

    def metrics(self) -> Mapping[str, float]:
        """Return the consumer's metrics by Kafka's names (docs/consumer-metrics.md). For any thread."""
        self._check_process()
        return self._session.metrics.snapshot(self._session.subscription, time.monotonic())

    def access_key(self) -> AccessKey:
        """Return the carrier's key, inside a callback, to pass it to another carrier.

        Raises:
            AccessKeyError: the carrier is not inside a callback of this consumer.
        """
        return self._access.require_key()

    def access(self, key: AccessKey) -> Lent:
        """Use the consumer under a key in a ``with`` (or ``async with``) block; the callback must wait for its end.

        Raises:
            AccessKeyError: it is not a key of this consumer, or it has expired: the callback has returned.
        """
        return self._access.lend(key)

    def get_thread_access_key(self) -> AccessKey | None:
        """Return the carrier's key, or None: KIP-944's own name."""
        return self._access.key

    def set_thread_access_key(self, key: AccessKey | None) -> None:
        """Set the carrier's key: KIP-944's own name.

        Raises:
            AccessKeyError: it is not a key of this consumer.
        """
        self._access.key = key


def close_if_forgotten(face: object, network: ConsumerHandle, client_id: str) -> Callable[[], object]:
    """Close the connections when a face is garbage-collected; return a function that calls that off."""
    finalizer = weakref.finalize(face, _close, network, client_id, os.getpid())
    finalizer.atexit = False  # the process ends, and with it the connections
    return finalizer.detach


def not_holding(method: Callable[[A], R]) -> Callable[[A], R]:
    """Return a bound method that does not keep its object alive, for callers that the object waits for."""
    held = weakref.WeakMethod(method)

    def call(argument: A) -> R:
        bound = held()
        assert bound is not None, "the object waits for this call"
        return bound(argument)

    return call


def _close(network: ConsumerHandle, client_id: str, process: int) -> None:
    """Never wait: this may run in any thread, between any two lines."""
    if network.dead or process != os.getpid():
        return  # in a forked process the consumer belongs to the other one
    network.ask_to_stop()
    warnings.warn(
        f"the consumer with client.id={client_id!r} was never closed: it did not leave its group, and its last records "
        "are not committed; call close(), or use it in a 'with' block",
        ResourceWarning,
        stacklevel=2,
    )

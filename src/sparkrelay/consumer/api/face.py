"""Methods of both ``Consumer`` and ``AsyncConsumer`` that never wait."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TypeVar

from sparkrelay.consumer.base.errors import forked_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.consumer.api.access import AccessControl, AccessKey, Lent
    from sparkrelay.consumer.api.session import Session

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

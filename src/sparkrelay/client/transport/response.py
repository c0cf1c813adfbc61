"""The answer to a request, before and after it comes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.errors import KafkaException

__all__ = ["Response"]

_log = logging.getLogger(__name__)


class Response:
    """The answer to a request, now or later.

    Callbacks run inside ``KafkaClient.poll``, never inside ``send``.
    """

    __slots__ = ("_callbacks", "_done", "_error", "_message", "node")

    def __init__(self, node: int | None) -> None:
        #: Broker that was asked (negative: a bootstrap address); None if there was none to ask.
        self.node = node
        self._done = False
        self._message: Any = None
        self._error: KafkaException | None = None
        self._callbacks: list[Callable[[Response], object]] = []

    @property
    def done(self) -> bool:
        """Whether the answer, or the reason why there is none, is here."""
        return self._done

    @property
    def error(self) -> KafkaException | None:
        """Why there is no answer; None while waiting and after success. Error codes in answers are not looked at."""
        return self._error

    def result(self) -> Any:
        """Return the response message.

        Raises:
            KafkaException: there is no answer: DisconnectException, TimeoutException, AuthenticationException or
                UnsupportedVersionException.
        """
        if not self._done:
            raise RuntimeError("the response is not here yet; poll() until it is done")
        if self._error is not None:
            raise self._error
        return self._message

    def add_done_callback(self, callback: Callable[[Response], object]) -> None:
        """Call ``callback(self)`` once done; at once if it already is."""
        if self._done:
            self._call(callback)
        else:
            self._callbacks.append(callback)

    def _finish(self, message: Any, error: KafkaException | None) -> None:
        if self._done:
            return
        self._done, self._message, self._error = True, message, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Response], object]) -> None:
        try:
            callback(self)
        except Exception:  # noqa: BLE001 - logged
            # One caller's mistake must not end the loop that serves the others.
            _log.exception("a callback of a Kafka response failed")

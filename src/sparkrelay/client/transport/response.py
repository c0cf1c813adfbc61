"""The future of a request's answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.errors import KafkaException

_log = logging.getLogger(__name__)


class Response:
    """The answer to a request, now or later. Callbacks run inside ``KafkaClient.poll``, never inside ``send``.

    Attributes:
        node: the broker (negative: a bootstrap address); None if no broker was known.
        done: whether there is an answer, or an error.
        error: why there is no answer, if so. Error codes inside answers are not considered.
    """

    __slots__ = ("_callbacks", "_message", "done", "error", "node")

    def __init__(self, node: int | None) -> None:
        self.node = node
        self.done = False
        self.error: KafkaException | None = None
        self._message: Any = None
        self._callbacks: list[Callable[[Response], object]] = []

    def result(self) -> Any:
        """Return the response message.

        Raises:
            KafkaException: there is none: DisconnectException, TimeoutException, AuthenticationException or
                UnsupportedVersionException.
        """
        if not self.done:
            raise RuntimeError("the response is not here yet; poll() until it is done")
        if self.error is not None:
            raise self.error
        return self._message

    def add_done_callback(self, callback: Callable[[Response], object]) -> None:
        """Call ``callback(self)`` once done, at once if it already is."""
        if self.done:
            self._call(callback)
        else:
            self._callbacks.append(callback)

    def finish(self, message: Any, error: KafkaException | None) -> None:
        """Take the answer or the error; only the first call counts."""
        if self.done:
            return
        self.done, self._message, self.error = True, message, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Response], object]) -> None:
        try:
            callback(self)
        except Exception:  # noqa: BLE001 - logged
            # A caller's bug must not end the loop that serves the others.
            _log.exception("a callback of a Kafka response failed")

"""What becomes of a consumer that nobody holds any more, and that was never closed.

Its network thread would keep it, and its connections, for ever. So the thread holds the managers, the buffer and the
mailbox, but neither the session nor the face that the program has; and when the face goes, the connections are closed.
It does not leave its group, for that takes an answer of the broker, and callbacks that only ``close`` can run.
"""

from __future__ import annotations

import os
import warnings
import weakref
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.consumer.network.network_thread import ConsumerHandle

__all__ = ["close_if_forgotten", "not_holding"]

A = TypeVar("A")
R = TypeVar("R")


def close_if_forgotten(face: object, network: ConsumerHandle, client_id: str) -> Callable[[], object]:
    """Close the connections when a face is garbage-collected; return what calls that off."""
    finalizer = weakref.finalize(face, _close, network, client_id, os.getpid())
    finalizer.atexit = False  # the process ends, and with it the connections
    return finalizer.detach


def not_holding(method: Callable[[A], R]) -> Callable[[A], R]:
    """Return a bound method that does not keep its object, for callers that the object waits for."""
    held = weakref.WeakMethod(method)

    def call(argument: A) -> R:
        bound = held()
        assert bound is not None, "the object waits for this call"
        return bound(argument)

    return call


def _close(network: ConsumerHandle, client_id: str, process: int) -> None:
    """Wait for nothing: this may run in any thread, between any two lines."""
    if network.dead or process != os.getpid():
        return  # in a forked process: the consumer is the other one's
    network.ask_to_stop()
    warnings.warn(
        f"the consumer with client.id={client_id!r} was never closed: it did not leave its group, and what it read "
        "last is not committed; call close(), or use it in a 'with' block",
        ResourceWarning,
        stacklevel=2,
    )

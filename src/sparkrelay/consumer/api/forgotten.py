"""Cleanup of consumers that were garbage-collected without ``close()``.

A network thread would keep a consumer and its connections for ever. So the thread refers to managers, buffer and
mailbox, but neither to the session nor to the face; and when the face is garbage-collected, the connections are closed.
The member does not leave its group: that needs the broker's answer, and callbacks that only ``close`` can run.
"""

from __future__ import annotations

import os
import warnings
import weakref
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.consumer.network.network_thread import ConsumerHandle

A = TypeVar("A")
R = TypeVar("R")


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

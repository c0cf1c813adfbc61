"""Blocking functions outside of a client's loop: name lookups, and the user's token function.

A silent name server blocks ``getaddrinfo`` for ten seconds and more, while heartbeats must be sent. The thread lives as
long as the function. Refused: a pool (its threads would outlive the client), asyncio (the loop is kafka.net's).
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from kafka.future import Future

if TYPE_CHECKING:
    from collections.abc import Callable


def off_loop(net: Any, function: Callable[[], Any], *, name: str) -> Any:
    """Return an awaitable for the outcome of ``function()``, which runs in a thread called ``name``.

    ``net`` is kafka.net's selector, on whose thread this is called and awaited.
    """
    future = Future()

    def run() -> None:
        try:
            outcome, error = function(), None
        except BaseException as problem:  # noqa: BLE001 - raised by the await
            outcome, error = None, problem

        def resolve() -> None:
            if future.is_done:
                return
            if error is None:
                future.success(outcome)
            else:
                future.failure(error)

        with contextlib.suppress(RuntimeError):  # the client has been closed
            net.call_soon_threadsafe(resolve)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future

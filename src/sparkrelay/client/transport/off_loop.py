"""Run a function that blocks without blocking the loop of a client: name lookups, and the user's token function.

A name server that does not answer holds ``getaddrinfo`` up for ten seconds and more; meanwhile heartbeats must go out.
The thread lives as long as the function. Refused: a pool (its threads would outlive the client), and asyncio (the loop
is kafka.net's).
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from kafka.future import Future

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["off_loop"]


def off_loop(net: Any, function: Callable[[], Any], *, name: str) -> Any:
    """Return something to await: the outcome of ``function()``, run in a thread of its own.

    Args:
        net: kafka.net's selector, in whose thread this is called and awaited.
        function: what to run; whatever it raises is raised by the await.
        name: of the thread.
    """
    future = Future()

    def run() -> None:
        try:
            outcome, error = function(), None
        except BaseException as problem:  # noqa: BLE001 - it is raised where it is awaited
            outcome, error = None, problem

        def resolve() -> None:
            if future.is_done:
                return
            if error is None:
                future.success(outcome)
            else:
                future.failure(error)

        with contextlib.suppress(RuntimeError):  # the client was closed meanwhile
            net.call_soon_threadsafe(resolve)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future

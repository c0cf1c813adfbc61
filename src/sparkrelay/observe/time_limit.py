"""A limit on the whole duration of a request, since a dripping answer keeps each single wait short."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The watching thread ends after so many seconds without requests.
_LONGEST_IDLE_S: Final = 10.0


class _Connection(Protocol):
    """The standard library's connection, or ``http_client``'s."""

    sock: Any

    def connect(self) -> None: ...


@contextlib.contextmanager
def time_limit(connection: _Connection, timeout_s: float) -> Iterator[None]:
    """Connect, if need be, and abort what the block does with the connection once ``timeout_s`` have passed.

    The name lookup is not included.

    Raises:
        TimeoutError: it took longer, whatever else failed because of that.
        OSError: nobody listens there.
    """
    until = time.monotonic() + timeout_s
    if connection.sock is None:
        connection.connect()
    # The connection drops its socket once it has a response that lasts as long as the connection.
    under_way = _UnderWay(connection.sock, until)
    _WATCH.add(under_way)
    try:
        yield
    except (OSError, ValueError, http.client.HTTPException) as error:
        if under_way.overdue:
            raise TimeoutError(f"no whole answer within {timeout_s:g} s") from error
        raise
    finally:
        _WATCH.remove(under_way)
    if under_way.overdue:
        raise TimeoutError(f"no whole answer within {timeout_s:g} s")


@dataclass(eq=False, slots=True)
class _UnderWay:
    way: socket.socket
    until: float
    overdue: bool = False


class _Watch:
    """One thread for all requests of this process, running only while there are any."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._all: set[_UnderWay] = set()
        self._wakes = float("inf")
        self._thread: threading.Thread | None = None

    def add(self, one: _UnderWay) -> None:
        with self._changed:
            self._all.add(one)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="sparkrelay-time-limits", daemon=True)
                self._thread.start()
            elif one.until < self._wakes:
                self._changed.notify_all()

    def remove(self, one: _UnderWay) -> None:
        with self._changed:
            self._all.discard(one)

    def _run(self) -> None:
        with self._changed:
            idle_since = time.monotonic()
            while True:
                now = time.monotonic()
                for one in [one for one in self._all if one.until <= now]:
                    one.overdue = True
                    with contextlib.suppress(OSError):
                        one.way.shutdown(socket.SHUT_RDWR)
                    self._all.discard(one)
                if self._all:
                    idle_since = now
                elif now - idle_since >= _LONGEST_IDLE_S:
                    self._thread = None
                    return
                # Finished requests do not wake it.
                self._wakes = min([now + _LONGEST_IDLE_S, *(one.until for one in self._all)])
                self._changed.wait(max(0.0, self._wakes - now))


_WATCH: Final = _Watch()

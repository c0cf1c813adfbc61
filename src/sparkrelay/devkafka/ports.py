"""Loopback ports that are reserved before a server starts.

A port that is only checked can be taken by another process before the server binds it. :class:`HeldPort` binds it
without listening: then the kernel assigns it to no other process, and another ``HeldPort`` cannot bind it. The server
can, because both sockets have SO_REUSEADDR, which Java and Python set for every listening socket. Ours is set after the
bind, because with it two holders could bind the same port.

Ports are chosen below the range of outgoing connections (32768 and up on Linux). Refused: a port chosen by the kernel,
which is from that range. While the broker is down nobody listens at its port, and outside Linux it is not reserved
either: an outgoing connection may take it.
"""

from __future__ import annotations

import random
import socket
import sys
import weakref
from typing import Self

from sparkrelay.errors import DevKafkaException

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 20_000, 32_000
_ATTEMPTS = 200


def is_free(port: int) -> bool:
    """Return whether a server could listen on the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


class HeldPort:
    """A random free loopback port ``number``, reserved until ``release()``, the end of the context or of this process.

    Servers of any process can listen on it, one at a time. Outside Linux a bound port cannot be listened on, so there
    it is only chosen, not reserved. ``but_not`` is never chosen.

    Raises:
        DevKafkaException: no free port was found.
    """

    def __init__(self, *, but_not: int | None = None) -> None:
        for _ in range(_ATTEMPTS):
            port = random.randint(_FIRST, _LAST)
            if port != but_not and (holder := _bound(port)) is not None:
                break
        else:
            raise DevKafkaException(f"No free port found between {_FIRST} and {_LAST}. Name one with port=N.")
        self.number = port
        #: Closes the socket, also when this object is garbage-collected.
        self.release = weakref.finalize(self, holder.close)
        if sys.platform != "linux":
            self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _bound(port: int) -> socket.socket | None:
    """Return a socket bound to the port, None if another one is."""
    holder = socket.socket()
    try:
        holder.bind((LOOPBACK, port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        holder.close()
        return None
    return holder

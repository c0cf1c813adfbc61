"""Ports on the loopback interface that are bound before a server is started for them.

A port that is only looked at can be taken by another process before the server binds it. So :class:`HeldPort` binds it
and does not listen. The kernel then gives it to no other process that asks for a port of its own, and another
``HeldPort`` cannot bind it. A server can, because both sockets have SO_REUSEADDR, which Java and Python set for every
listening socket. We set ours only after the bind: with the option, two holders could bind the same port.

Ports are chosen below the range of outgoing connections (32768 and up on Linux). Refused: any port that the kernel
chooses, which is from that range. While the broker is down nobody listens at its port, and elsewhere than on Linux it
is not held then: an outgoing connection may take it.
"""

from __future__ import annotations

import random
import socket
import sys
import weakref
from typing import TYPE_CHECKING, Self

from sparkrelay.errors import DevKafkaException

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["LOOPBACK", "HeldPort", "is_free"]

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
    """A random free loopback port, held until ``release()``, the end of the context or of this process.

    Servers of any process can listen on it, one at a time. Elsewhere than on Linux a bound port cannot be listened on,
    so it is only chosen there, not held.

    Args:
        but_not: a port that is not chosen.

    Attributes:
        number: the port.

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
        #: Closes the socket once; also if this object is only forgotten.
        self.release = weakref.finalize(self, holder.close)
        if sys.platform != "linux":
            self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _bound(port: int) -> socket.socket | None:
    """Return a socket that is bound to the port; None if another socket is."""
    holder = socket.socket()
    try:
        holder.bind((LOOPBACK, port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        holder.close()
        return None
    return holder

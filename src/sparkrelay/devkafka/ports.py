"""Free ports on the loopback interface.

Ports come from below the range that the kernel hands to outgoing connections (32768 and up on Linux). Asking the
kernel for "any free port" gives one from that range, and while the broker is down, for a restart or because a test
killed it, some client's outgoing connection may take it. That was the refused alternative.
"""

from __future__ import annotations

import random
import socket

from sparkrelay.errors import DevKafkaException

__all__ = ["LOOPBACK", "free_port", "is_free"]

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 20_000, 32_000


def is_free(port: int) -> bool:
    """Return whether a server could listen on the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(*, but_not: int = 0) -> int:
    """Return a random loopback port that nobody listens on, other than ``but_not``."""
    for _ in range(200):
        port = random.randint(_FIRST, _LAST)
        if port != but_not and is_free(port):
            return port
    raise DevKafkaException(f"No free port found between {_FIRST} and {_LAST}. Name one with port=N.")

"""Ports that are bound before a test names them."""

import socket
import sys

__all__ = ["own_port"]


def own_port():
    """Return a port of 127.0.0.1 that the kernel gives to nobody else until this process ends.

    It is bound without listening, so connections are refused. A server that sets SO_REUSEADDR, as those of Java and of
    Python do, can listen on it nevertheless, and again after it was killed.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port = holder.getsockname()[1]
    if sys.platform == "linux":
        holder.detach()  # it stays open
    else:
        holder.close()  # elsewhere a port that is bound cannot be listened on by another process
    return port

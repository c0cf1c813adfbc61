"""A probe of whether a broker serves requests: one Metadata request.

An accepted connection proves little: a starting broker and a paused one accept too, and another server may use the
port. A Metadata answer that lists a broker proves that requests are served. It is encoded by hand, because this package
may not import kafka-python (only the client may) and because a probe needs a bound on every step.

Request (big endian): int32 length, int16 api key 3, int16 version 1, int32 correlation id, string client id, int32
number of topics 0. Answer: int32 length, int32 correlation id, array of brokers (int32 id, string host, int32 port,
nullable string rack), int32 controller id, array of topics.
"""

from __future__ import annotations

import socket
import struct

#: Bound of each network step, in seconds.
PROBE_TIMEOUT_S = 2.0

_CLIENT = b"sparkrelay-probe"
_CORRELATION = 0x5EA7
_BODY = struct.pack(">hhih", 3, 1, _CORRELATION, len(_CLIENT)) + _CLIENT + struct.pack(">i", 0)
_REQUEST = struct.pack(">i", len(_BODY)) + _BODY
_LARGEST_ANSWER = 1 << 20


def answers(host: str, port: int, *, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """Return whether a Kafka broker serves requests at an address; each network step takes at most ``timeout_s``."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(_REQUEST)
            (length,) = struct.unpack(">i", _exactly(connection, 4))
            if not 12 <= length <= _LARGEST_ANSWER:
                return False
            correlation, brokers = struct.unpack(">ii", _exactly(connection, length)[:8])
    except OSError:
        return False
    return bool(correlation == _CORRELATION and brokers > 0)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise ConnectionResetError("the peer closed the connection in the middle of an answer")
        parts += part
    return bytes(parts)

"""A reusable connection to another instance's HTTP server. httptools parses the answers.

Refused: the standard library's client, which parses headers as e-mail, and spends most of the processor time of a small
answer on that.
"""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import httptools

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_HEAD: Final = 262_144
_PIECE: Final = 65_536
_HTTP_PORT, _HTTPS_PORT = 80, 443
#: Lower statuses announce that the answer is still to come.
_FINAL: Final = 200


@dataclass(slots=True)
class HttpAnswer:
    """An answer.

    Attributes:
        status: such as 200.
        headers: by lower-case name.
        body: cut one byte after the maximum length.
        stays: whether the connection may be used again.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    stays: bool = False


class HttpConnection:
    """A connection for requests of one thread at a time.

    ``timeout_s`` bounds a whole answer, from connecting to its last byte, since a dripping one keeps each single wait
    short. The name lookup is not included. ``tls`` is True for https.
    """

    def __init__(self, host: str, port: int | None, timeout_s: float, *, tls: bool = False) -> None:
        usual = _HTTPS_PORT if tls else _HTTP_PORT
        self._host, self._port = host, port or usual
        self._timeout_s = timeout_s
        self._tls = tls
        named = f"[{host}]" if ":" in host else host
        self._named = named if self._port == usual else f"{named}:{self._port}"
        self._sock: socket.socket | None = None

    def close(self) -> None:
        """Close the connection; a further request opens another."""
        connection, self._sock = self._sock, None
        if connection is not None:
            connection.close()

    def get(self, path: str, headers: Mapping[str, str], *, longest: int) -> HttpAnswer:
        """Send a request and return the answer, reading at most a little more than ``longest`` bytes.

        Raises:
            ConnectionError: the connection was closed before the answer was complete.
            OSError: nobody listens there, or no whole answer in time.
            ValueError: the answer is not HTTP, or a header of the request has a line break.
        """
        until = time.monotonic() + self._timeout_s
        connection = self._sock = self._sock or self._connected()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {self._named}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header of a request has a line break")
        reading = _Reading(longest)
        try:
            connection.settimeout(_left(until))
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            while not reading.whole:
                connection.settimeout(_left(until))
                piece = connection.recv(_PIECE)
                if not piece:
                    reading.end()
                    break
                reading.feed(piece)
        except TimeoutError as error:
            raise TimeoutError(f"no whole answer within {self._timeout_s:g} s") from error
        return reading.answer

    def _connected(self) -> socket.socket:
        connection = socket.create_connection((self._host, self._port), self._timeout_s)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._tls:
                return connection
            context = ssl.create_default_context()
            context.set_alpn_protocols(["http/1.1"])
            return context.wrap_socket(connection, server_hostname=self._host)
        except BaseException:
            connection.close()
            raise


def _left(until: float) -> float:
    """Return the seconds until a moment (monotonic); raise TimeoutError after it."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Reading:
    """An answer that is being received. The parser calls the methods ``on_*``."""

    def __init__(self, longest: int) -> None:
        self.answer = HttpAnswer()
        self.whole = False
        self._longest = longest
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._size = self._head = 0
        self._headed = self._begun = False

    def feed(self, piece: bytes) -> None:
        self._begun = True
        try:
            self._parser.feed_data(piece)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.whole:
                raise ValueError(f"it does not speak HTTP: {error}") from error
            # Bytes after the answer belong to no request.
            self.answer.stays = False
        self._head += 0 if self._headed else len(piece)
        if self._head > _LONGEST_HEAD:
            raise ValueError(f"the head of its answer has more than {_LONGEST_HEAD} bytes")
        if self._size > self._longest and not self.whole:
            self._finish()

    def end(self) -> None:
        """Handle the end of the connection, which also ends an answer of unknown length."""
        if not self._begun:
            raise ConnectionResetError("the connection was closed without an answer")
        headers = self.answer.headers
        if not self._headed or "content-length" in headers or "chunked" in headers.get("transfer-encoding", ""):
            raise ConnectionResetError("the connection was closed within an answer")
        self._finish()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.whole:
            self.answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if not self.whole:
            self.answer.status = self._parser.get_status_code()
            self._headed = True

    def on_body(self, piece: bytes) -> None:
        if not self.whole:
            self._size += len(piece)
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        if self.whole:
            self.answer.stays = False
        elif self.answer.status < _FINAL:
            self.answer, self._headed = HttpAnswer(), False
        else:
            self.answer.stays = self._parser.should_keep_alive()
            self._finish()

    def _finish(self) -> None:
        self.whole = True
        self.answer.body = b"".join(self._pieces)[: self._longest + 1]

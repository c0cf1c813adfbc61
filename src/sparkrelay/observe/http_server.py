"""The HTTP server of an instance: WSGI applications, with bounds. httptools parses the requests.

A thread that has accepted a connection serves it, so nothing is passed between threads. One thread is always ready to
accept, so a client that hangs blocks nobody; the number of connections is bounded. A connection may send several
requests, but is closed after a few seconds of silence. A request must arrive within a few seconds, and its answer end
within a minute, even if bytes drip. Bodies of requests are not read.

Probes decide about restarts, so they must get through: an address gets at most three quarters of the connections, and a
new connection replaces the one that has waited longest for a request.

Refused: the standard library's server, which starts a thread for each connection, parses headers as e-mail, and takes
five times the processor time for a request.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import struct
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote_to_bytes

import httptools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

log = logging.getLogger(__name__)

#: Silence after which a connection is closed, in seconds; also how long ``close`` waits for answers under way.
_LONGEST_WAIT_S: Final = 5.0
_SILENCE: Final = struct.pack("@ll", int(_LONGEST_WAIT_S), 0)
#: From a request's first byte to the end of its headers, in seconds.
_LONGEST_ARRIVAL_S: Final = 5.0
#: From a request's first byte to the end of its answer, in seconds.
_LONGEST_REQUEST_S: Final = 60.0
_MOST_CONNECTIONS: Final = 64
#: Threads that wait for connections; further ones, added in a burst, end again.
_MOST_WAITING: Final = 8
_BACKLOG: Final = 128
_LONGEST_HEAD: Final = 262_144
_PIECE: Final = 65_536


class HttpServer:
    """A running server and its threads."""

    def __init__(
        self,
        application: Callable[..., Iterable[bytes]],
        *,
        host: str,
        port: int,
        name: str,
        most_connections: int = _MOST_CONNECTIONS,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Listen and answer until closed.

        Args:
            application: the WSGI application; each connection calls it on its own thread.
            host: address to listen at.
            port: where to listen; 0 for any free port.
            name: prefix of the threads' names.
            most_connections: maximum of open connections. If all are busy with answers, further ones are closed at
                once.
            on_close: called before connections are closed, to end endless answers.

        Raises:
            OSError: the address cannot be used.
        """
        self._application = application
        self._on_close = on_close
        self._most = most_connections
        self._most_of_one = max(1, most_connections * 3 // 4)
        self._changed = threading.Condition()
        self._closed = False
        self._open: dict[socket.socket, _Visit] = {}
        #: Threads that wait for a connection, or are about to.
        self._waiting = 1
        self._threads: set[threading.Thread] = set()
        # No reuse_port: two instances at one port would each get some of the requests.
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self._listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self.port = int(self._listening.getsockname()[1])
        self._name = f"{name}-{self.port}"
        self._environ = {
            "SCRIPT_NAME": "",
            "SERVER_NAME": host,
            "SERVER_PORT": str(self.port),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        self._add_thread()

    def close(self) -> None:
        """Stop listening and close every connection. Idempotent."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
        self._on_close()
        _shut(self._listening, socket.SHUT_RDWR)
        with self._changed:
            for connection in self._open:
                _shut(connection, socket.SHUT_RD)  # an answer under way may still be sent
            self._changed.wait_for(lambda: not self._threads, _LONGEST_WAIT_S)
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        with self._changed:
            if self._closed:
                return
            self._threads.add(thread)
        # start() waits for the new thread, so it is called without the lock.
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("no more threads can be started, so connections wait for each other: %s", error)
            with self._changed:
                self._threads.discard(thread)
                self._waiting -= 1

    def _run(self) -> None:
        try:
            while self._serves_next():
                pass
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())
                self._changed.notify_all()

    def _serves_next(self) -> bool:
        """Accept and serve a connection; return whether this thread should wait for another one."""
        try:
            connection, address = self._listening.accept()
        except OSError:
            with self._changed:
                if self._closed:
                    return False
            # The process may have reached its limit of open files: others will be closed.
            time.sleep(0.1)
            return True
        with self._changed:
            full = self._closed or not self._make_room(address[0])
            if not full:
                visit = self._open[connection] = _Visit(address[0])
            wanted = not full and self._waiting == 1
            self._waiting -= not full and not wanted
        if full:
            connection.close()
            return True
        if wanted:
            self._add_thread()
        try:
            self._serve(connection, visit)
        except OSError:
            pass  # the client has gone away, or has taken too long
        except Exception:
            log.exception("an answer was not completed")
        finally:
            with self._changed:
                self._open.pop(connection, None)
                self._changed.notify_all()
                stays = not self._closed and self._waiting < _MOST_WAITING
                self._waiting += stays
            connection.close()
        return stays

    def _make_room(self, host: str) -> bool:
        """Return whether there is room for a new connection of a host, if need be by closing one without a request."""
        rivals = {connection: visit for connection, visit in self._open.items() if visit.host == host}
        if len(rivals) < self._most_of_one:
            if len(self._open) < self._most:
                return True
            rivals = self._open
        waiting = [(visit.since, connection) for connection, visit in rivals.items() if visit.since is not None]
        if not waiting:
            return False
        _, oldest = min(waiting, key=lambda one: one[0])
        del self._open[oldest]
        _shut(oldest, socket.SHUT_RDWR)  # its thread closes it
        return True

    def _serve(self, connection: socket.socket, visit: _Visit) -> None:
        """Answer the requests of a connection one after another."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel's timeout: Python's takes two more system calls for each wait, and after each of them this thread
        # has to get the interpreter back.
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _SILENCE)
        requests = _Requests()
        while True:
            began = 0.0
            while not requests.whole:
                piece = connection.recv(_PIECE)
                if not piece:
                    return
                now = time.monotonic()
                began = began or now
                wrong = requests.feed(piece)
                if wrong is None and not requests.whole and now >= began + _LONGEST_ARRIVAL_S:
                    wrong = "408 Request Timeout"
                if wrong is not None:
                    _send(connection, _head(wrong, [("Content-Length", "0")], stays=False), now + _LONGEST_WAIT_S)
                    return
            visit.since = None
            request = requests.whole.popleft()
            # With few connections left, none is kept open. Without a lock this may be off by one.
            stays = request.stays and not self._closed and len(self._open) < self._most * 3 // 4
            # The time of a request that arrived together with the previous one begins now.
            until = (began or time.monotonic()) + _LONGEST_REQUEST_S
            if not self._answer(connection, request, until, stays=stays):
                return
            visit.since = time.monotonic()

    def _answer(self, connection: socket.socket, request: _Request, until: float, *, stays: bool) -> bool:
        """Send the answer to a request; return whether the connection stays open."""
        body: Iterable[bytes] = []
        try:
            try:
                started: list[Any] = []
                body = self._application(
                    request.environ(self._environ), lambda status, headers, _=None: started.extend((status, headers))
                )
                status, headers = started
                has_length = any(name.lower() == "content-length" for name, _ in headers)
                if isinstance(body, list) and not has_length:
                    headers, has_length = [*headers, ("Content-Length", str(sum(map(len, body))))], True
                # An answer of unknown length ends with the connection.
                stays = stays and has_length
                data = _head(status, headers, stays=stays)
            except Exception:
                log.exception("a request for %s cannot be answered", request.path)
                _send(connection, _head("500 Internal Server Error", [("Content-Length", "0")], stays=False), until)
                return False
            for piece in body if request.method != "HEAD" else ():
                _send(connection, data + piece, until)
                data = b""
            if data:
                _send(connection, data, until)
            return stays
        finally:
            if (close := getattr(body, "close", None)) is not None:
                close()


@dataclass(eq=False, slots=True)
class _Visit:
    """An open connection.

    Attributes:
        host: the client's address.
        since: when it began to wait for a request (monotonic); None during an answer.
    """

    host: str
    since: float | None = field(default_factory=time.monotonic)


class _Request:
    """A request, without its body."""

    __slots__ = ("headers", "method", "path", "query", "stays", "version")

    def __init__(self) -> None:
        self.method, self.path, self.query, self.version, self.stays = "", "", "", "1.1", False
        self.headers: dict[str, str] = {}

    def environ(self, shared: dict[str, Any]) -> dict[str, Any]:
        """Return the environment of PEP 3333."""
        return {
            **shared,
            **self.headers,
            "REQUEST_METHOD": self.method,
            "PATH_INFO": self.path,
            "QUERY_STRING": self.query,
            "SERVER_PROTOCOL": f"HTTP/{self.version}",
            "wsgi.input": io.BytesIO(),
        }


class _Requests:
    """The requests of a connection. The parser calls the methods ``on_*``."""

    def __init__(self) -> None:
        self.whole: deque[_Request] = deque()
        self._parser = httptools.HttpRequestParser(self)
        self._wrong: str | None = None
        self._size = 0
        self._url = b""
        self._request = _Request()

    def feed(self, piece: bytes) -> str | None:
        """Take the next bytes; return the status of an error, if any."""
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # Java's client and curl offer HTTP/2 with a request: it is answered, and nothing after it is read.
            if not self.whole:
                return "400 Bad Request"
            self.whole[-1].stays = False
        except (httptools.HttpParserError, ValueError):
            return "400 Bad Request"
        if not self.whole:
            self._grow(len(piece))
        return self._wrong

    def on_message_begin(self) -> None:
        self._request, self._url, self._size = _Request(), b"", 0

    def on_url(self, url: bytes) -> None:
        self._grow(len(url))
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value))
        key = name.decode("latin-1").upper().replace("-", "_")
        if key not in {"CONTENT_TYPE", "CONTENT_LENGTH"}:
            key = f"HTTP_{key}"
        text, headers = value.decode("latin-1"), self._request.headers
        headers[key] = f"{headers[key]},{text}" if key in headers else text

    def on_headers_complete(self) -> None:
        request, parser = self._request, self._parser
        request.method, request.version = parser.get_method().decode("latin-1"), parser.get_http_version()
        url = self._url
        if not url.startswith(b"/"):
            # A proxy's form, beginning with the host.
            parsed = httptools.parse_url(url)
            url = (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")
        path, _, query = url.partition(b"?")
        request.path = unquote_to_bytes(path).decode("latin-1")
        request.query = query.partition(b"#")[0].decode("latin-1")
        # A body is not read, so nothing after it can be.
        has_body = request.headers.get("CONTENT_LENGTH", "0") != "0" or "HTTP_TRANSFER_ENCODING" in request.headers
        request.stays = parser.should_keep_alive() and not has_body
        if has_body:
            self._end()

    def on_message_complete(self) -> None:
        if self._request.method:
            self._end()

    def _end(self) -> None:
        if not self._request.version.startswith("1."):
            self._wrong = "505 HTTP Version Not Supported"
        self.whole.append(self._request)
        self._request, self._size = _Request(), 0

    def _grow(self, size: int) -> None:
        """Count the bytes of an incomplete request; those held by the parser may count twice."""
        self._size += size
        if self._size > _LONGEST_HEAD:
            self._wrong = "431 Request Header Fields Too Large"


def _head(status: str, headers: Iterable[tuple[str, str]], *, stays: bool) -> bytes:
    """Return status line and headers; raises ValueError for a line break in a header: an answer could begin there."""
    lines = [f"HTTP/1.1 {status}", f"Date: {formatdate(usegmt=True)}", *(f"{name}: {value}" for name, value in headers)]
    if not stays:
        lines.append("Connection: close")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError(f"a header of the answer {status} has a line break")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _send(connection: socket.socket, data: bytes, until: float) -> None:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    # Usually the kernel takes all at once.
    with contextlib.suppress(BlockingIOError):
        data = data[connection.send(data, socket.MSG_DONTWAIT) :]
    if data:
        connection.settimeout(left)
        connection.sendall(data)
        connection.settimeout(None)


def _shut(connection: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(how)

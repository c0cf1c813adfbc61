"""The HTTP server of an instance: the standard library's, with bounds.

A thread a connection, so that one client that hangs keeps nobody from asking; so many at a time and no more. A
connection is closed after one answer, after a few seconds of silence, or when it has been open for long, whoever drips
bytes into it. Lines and headers are as long and as many as ``http.client`` reads; bodies of requests are not read.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["HttpServer", "address_family"]

#: Silence after which a connection is closed, in seconds; also the longest that closing waits for answers under way.
_LONGEST_WAIT_S: Final = 5.0
#: How long a connection may be open, in seconds.
_LONGEST_OPEN_S: Final = 60.0
_MOST_CONNECTIONS: Final = 64


def address_family(host: str, port: int) -> int:
    """Return which kind of address that is.

    Raises:
        OSError: it is none.
    """
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]


class HttpServer:
    """An open server, and its thread."""

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
        """Listen, and answer until it is closed.

        Args:
            application: the WSGI application; called on a thread of each connection's own.
            host: address to listen at.
            port: where to listen; 0 for any free port.
            name: what the thread is called.
            most_connections: how many are open at a time; more are closed at once.
            on_close: called before connections are closed, to end answers that go on and on.

        Raises:
            OSError: nobody can listen there.
        """
        self._server = _Server(address_family(host, port), (host, port), application, most_connections)
        self._on_close = on_close
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name=f"{name}-{self.port}",
            daemon=True,
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening and close every connection; closing twice does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._on_close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.close_connections()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # Two instances at one port would each get some of the questions.
    allow_reuse_port = False

    def __init__(self, family: int, address: tuple[str, int], application: Any, most: int) -> None:
        self.address_family = family
        self._changed = threading.Condition()
        #: Open connection -> since when (monotonic seconds).
        self._open: dict[socket.socket, float] = {}
        self._most = most
        super().__init__(address, _Handler)
        self.set_app(application)

    def server_bind(self) -> None:
        """Listen, without asking the name service what this machine is called: that may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            full = len(self._open) >= self._most
            self._open[request] = time.monotonic()
        if full:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Look after connections that have been open for long; called several times a second."""
        super().service_actions()
        with self._changed:
            overdue = time.monotonic() - _LONGEST_OPEN_S
            for request in [request for request, since in self._open.items() if since < overdue]:
                _shut(request, socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._open.pop(request, None)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client has gone away."""

    def close_connections(self) -> None:
        with self._changed:
            for request in self._open:
                _shut(request, socket.SHUT_RD)  # an answer under way may still be sent
            self._changed.wait_for(lambda: not self._open, _LONGEST_WAIT_S)


class _Handler(WSGIRequestHandler):
    timeout = _LONGEST_WAIT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing: a scrape every few seconds is no news, and a request may name what is nobody's business."""


def _shut(request: socket.socket, how: int) -> None:
    try:
        request.shutdown(how)
    except OSError:
        return

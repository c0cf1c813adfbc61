"""The HTTP endpoint of an instance.

``/metrics`` is for Prometheus, ``/health`` for whoever must decide about a restart, ``/ready`` for a rollout.

It is served by the standard library's WSGI server with a thread a connection, so that one client that hangs keeps
nobody from asking. A connection is closed after one answer, or after a few seconds of silence.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from typing import TYPE_CHECKING, Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from sparkrelay.errors import ConfigException
from sparkrelay.observe.exposition import InstanceCollector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkrelay.observe.snapshot import InstanceSnapshot

__all__ = ["Endpoint", "serve"]

#: Silence after which a connection is closed, in seconds; also the longest that closing waits for answers under way.
_LONGEST_WAIT_S: Final = 5.0
_PLAIN: Final = ("Content-Type", "text/plain; charset=utf-8")


def serve(read: Callable[[], InstanceSnapshot], *, port: int, host: str = "127.0.0.1") -> Endpoint:
    """Open an endpoint for an instance, such as ``serve(streams.snapshot, port=9404)``; it serves until it is closed.

    Args:
        read: gives the instance as it is now; called for each question, on threads of the endpoint.
        port: where to listen; 0 for any free port.
        host: address to listen at.

    Raises:
        ConfigException: nobody can listen there.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except OSError as error:
        raise ConfigException(
            f"setting 'metrics.host' has the value {host!r}: {error.strerror or error}; name an address of this machine"
        ) from error
    try:
        return Endpoint(_Server(family, (host, port), _answering(read)))
    except OSError as error:
        raise ConfigException(
            f"setting 'metrics.port' has the value {port}, but {host}:{port} cannot be listened at: "
            f"{error.strerror or error}. Each instance of a machine needs a port of its own: choose another, stop what "
            "uses it (an instance that failed does until stop() is called), or set metrics.port to 0 for none"
        ) from error


class Endpoint:
    """An open endpoint, and its thread."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name=f"sparkrelay-metrics-{self.port}",
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

    def __init__(self, family: int, address: tuple[str, int], application: Any) -> None:
        self.address_family = family
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)
        self.set_app(application)

    def server_bind(self) -> None:
        """Listen, without asking the name service what this machine is called: that may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client has gone away."""

    def close_connections(self) -> None:
        with self._changed:
            for request in self._open:
                try:
                    request.shutdown(socket.SHUT_RD)  # an answer under way may still be sent
                except OSError:
                    continue
            self._changed.wait_for(lambda: not self._open, _LONGEST_WAIT_S)


class _Handler(WSGIRequestHandler):
    timeout = _LONGEST_WAIT_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing: a scrape every few seconds is no news."""


def _answering(read: Callable[[], InstanceSnapshot]) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI application."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(InstanceCollector(read))
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/metrics":
                answered: Iterable[bytes] = metrics(environ, start_response)
                return answered
            case "/health":
                instance = read()
                return _respond(instance, instance.alive, start_response)
            case "/ready":
                instance = read()
                return _respond(instance, instance.ready, start_response)
        start_response("404 Not Found", [_PLAIN])
        return [b"there are /metrics, /health and /ready\n"]

    return answer


def _respond(instance: InstanceSnapshot, well: bool, start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK" if well else "503 Service Unavailable", [_PLAIN])
    text = instance.state if instance.trouble is None else f"{instance.state}: {instance.trouble}"
    return [f"{text}\n".encode("utf-8", "backslashreplace")]

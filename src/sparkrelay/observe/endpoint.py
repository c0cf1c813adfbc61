"""The HTTP endpoint of an instance, on ``http_server``.

``/metrics`` is for Prometheus, ``/health`` for decisions about a restart, ``/ready`` for a rollout, ``/``
(``live_page``) for people.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, make_wsgi_app

from sparkrelay.errors import ConfigException
from sparkrelay.observe.details import InstanceDetails
from sparkrelay.observe.exposition import InstanceCollector
from sparkrelay.observe.http_server import HttpServer
from sparkrelay.observe.live_page import LivePage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkrelay.observe.snapshot import InstanceSnapshot

log = logging.getLogger(__name__)

_PLAIN: Final = ("Content-Type", "text/plain; charset=utf-8")
_READ_ONLY: Final = frozenset({"/metrics", "/health", "/ready"})
_METHODS: Final = ("GET", "HEAD")


def serve(
    read: Callable[[], InstanceSnapshot],
    *,
    port: int,
    host: str = "127.0.0.1",
    details: Callable[[], InstanceDetails] = InstanceDetails,
) -> HttpServer:
    """Open an endpoint for an instance, such as ``serve(streams.snapshot, port=9404)``, until it is closed.

    Args:
        read: returns the current state of the instance; called for each request, on threads of the endpoint.
        port: where to listen; 0 for any free port.
        host: address to listen at.
        details: returns what else the live page shows, such as ``streams.details``.

    Raises:
        ConfigException: the address cannot be used.
    """
    try:
        addresses = [at[4][0] for at in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigException(
            f"setting 'metrics.host' has the value {host!r}: {reason}; name an address of this machine"
        ) from error
    page = LivePage(read, details)
    answer = _answering(read, page)
    if all(ipaddress.ip_address(str(at)).is_loopback for at in addresses):
        answer = _for_this_machine(answer)
    try:
        return HttpServer(answer, host=host, port=port, name="sparkrelay-metrics", on_close=page.close)
    except OSError as error:
        page.close()
        raise ConfigException(
            f"setting 'metrics.port' has the value {port}, but {host}:{port} cannot be listened at: "
            f"{error.strerror or error}. Each instance on a machine needs its own port: choose another, stop what "
            "uses it (an instance that failed does until stop() is called), or set metrics.port to 0 for none"
        ) from error


def _answering(read: Callable[[], InstanceSnapshot], page: LivePage) -> Callable[..., Iterable[bytes]]:
    """Return the WSGI application."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(InstanceCollector(read))
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path in _READ_ONLY and environ.get("REQUEST_METHOD") not in _METHODS:
            start_response("405 Method Not Allowed", [_PLAIN, ("Allow", ", ".join(_METHODS))])
            return [f"{path} is only read: {' or '.join(_METHODS)}\n".encode()]
        match path:
            case "/metrics":
                # The server omits the body of an answer to HEAD.
                answered: Iterable[bytes] = metrics({**environ, "REQUEST_METHOD": "GET"}, start_response)
                return answered
            case "/health" | "/ready":
                try:
                    instance = read()
                except Exception as error:
                    log.warning("the state of the instance cannot be read", exc_info=True)
                    return _say(f"the state cannot be read: {type(error).__name__}", start_response, well=False)
                text = instance.state if instance.trouble is None else f"{instance.state}: {instance.trouble}"
                return _say(text, start_response, well=instance.alive if path == "/health" else instance.ready)
        shown = page.answer(environ, start_response)
        if shown is not None:
            return shown
        start_response("404 Not Found", [_PLAIN])
        return [b"there are /, /api/instance, /api/group, /events, /metrics, /health and /ready\n"]

    return answer


def _for_this_machine(answer: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Refuse requests for another host: a web page could lead its name here and read the answers.

    Browsers always name a host, so a request without one is from no browser.
    """

    def checked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if not _names_this_machine(environ.get("HTTP_HOST", "localhost")):
            start_response("403 Forbidden", [_PLAIN])
            return [b"metrics.host is of this machine only: use localhost, or an address in digits\n"]
        return answer(environ, start_response)

    return checked


def _names_this_machine(host: str) -> bool:
    """Return whether a Host header is an address or localhost: not a name that others can control."""
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost" or name.lower().endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _say(text: str, start_response: Callable[..., Any], *, well: bool) -> Iterable[bytes]:
    start_response("200 OK" if well else "503 Service Unavailable", [_PLAIN])
    return [f"{text}\n".encode("utf-8", "backslashreplace")]

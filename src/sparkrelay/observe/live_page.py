"""The live page over HTTP: ``/`` and its files, ``/api/instance``, ``/api/group`` and ``/events``. Read-only.

All shown content comes from others: names of topics, errors, settings. So the page's script writes text, never markup,
and a Content-Security-Policy restricts the browser to these files.

Refused: a web framework. The server underneath has the bounds needed here (connections, seconds); with Starlette and
uvicorn these five answers would not be fewer lines, and would add an event loop to the threads.
"""

from __future__ import annotations

import importlib.resources
import json
import threading
import zlib
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.observe.group import GroupWatch
from sparkrelay.observe.history import History
from sparkrelay.observe.instance_view import instance_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sparkrelay.observe.details import InstanceDetails
    from sparkrelay.observe.snapshot import InstanceSnapshot

_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/views.js": ("views.js", "text/javascript; charset=utf-8"),
    "/elements.js": ("elements.js", "text/javascript; charset=utf-8"),
    "/graph.js": ("graph.js", "text/javascript; charset=utf-8"),
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
_JSON: Final = ("Content-Type", "application/json; charset=utf-8")
_PLAIN: Final = ("Content-Type", "text/plain; charset=utf-8")
#: Maximum number of following browsers. Some of the server's connections are left for the scraper and the kubelet.
_MOST_FOLLOWERS: Final = 24
_EVERY_S: Final = 2.0


class LivePage:
    """The page of one instance, until closed. Thread-safe.

    Args:
        read: returns the current state of the instance.
        details: returns what a snapshot does not have.
        every: seconds between two events.
    """

    def __init__(
        self,
        read: Callable[[], InstanceSnapshot],
        details: Callable[[], InstanceDetails],
        *,
        every: float = _EVERY_S,
    ) -> None:
        self._read = read
        self._details = details
        self._every = every
        self._history = History(read)
        self._group = GroupWatch(self._view)
        self._followers = threading.BoundedSemaphore(_MOST_FOLLOWERS)
        self._closed = threading.Event()
        folder = importlib.resources.files("sparkrelay.observe") / "page"
        self._files = {path: (folder / name).read_bytes() for path, (name, _) in _FILES.items()}

    def close(self) -> None:
        """End every stream of events."""
        self._closed.set()
        self._history.close()

    def answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
        """Answer a request; return None for an unknown path."""
        path = environ.get("PATH_INFO") or "/"
        if path not in {*_FILES, "/api/instance", "/api/group", "/events"}:
            return None
        if environ.get("REQUEST_METHOD") != "GET":
            start_response("405 Method Not Allowed", [_PLAIN, ("Allow", "GET"), *_HEADERS])
            return [b"the page is only read: GET\n"]
        if path in _FILES:
            start_response("200 OK", [("Content-Type", _FILES[path][1]), *_HEADERS])
            return [self._files[path]]
        if path == "/events":
            return self._follow(environ, start_response)
        text = self._group.text() if path == "/api/group" else json.dumps(self._view(), allow_nan=False).encode()
        start_response("200 OK", [_JSON, *_HEADERS])
        return [text + b"\n"]

    def _view(self) -> dict[str, Any]:
        return instance_view(self._read(), self._details(), self._history.samples)

    def _follow(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if not self._followers.acquire(blocking=False):
            start_response("503 Service Unavailable", [_PLAIN, ("Retry-After", "10"), *_HEADERS])
            return [f"{_MOST_FOLLOWERS} browsers follow already; try again later\n".encode()]
        zipped = "gzip" in environ.get("HTTP_ACCEPT_ENCODING", "")
        headers = [("Content-Type", "text/event-stream; charset=utf-8"), ("X-Accel-Buffering", "no"), *_HEADERS]
        start_response("200 OK", [*headers, *([("Content-Encoding", "gzip")] if zipped else [])])
        return _Events(self, zipped=zipped)

    def events(self) -> Iterator[bytes]:
        """Yield the group repeatedly until the page is closed."""
        yield b"retry: 2000\n\n"
        while not self._closed.is_set():
            yield b"event: group\ndata: " + self._group.text() + b"\n\n"
            self._closed.wait(self._every)

    def release(self) -> None:
        """Count one follower less."""
        self._followers.release()


class _Events:
    """The events for one browser, closed by the server when the browser is gone."""

    def __init__(self, page: LivePage, *, zipped: bool) -> None:
        self._page = page
        self._events = page.events()
        # The window is larger than an event, and the next event is nearly the same.
        self._zip = zlib.compressobj(level=6, wbits=31) if zipped else None
        self._open = True

    def __iter__(self) -> Iterator[bytes]:
        for event in self._events:
            yield event if self._zip is None else self._zip.compress(event) + self._zip.flush(zlib.Z_SYNC_FLUSH)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._page.release()

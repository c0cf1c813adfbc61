"""Asking another instance over HTTP, with bounds: how long it may take, how much it may say."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import pyarrow as pa

from sparkrelay.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    StateStoreNotAvailableException,
    UnknownStateStoreException,
)
from sparkrelay.observe.time_limit import time_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sparkrelay.protocol import HostInfo

__all__ = [
    "ANSWER_HEADER",
    "ARROW",
    "FOLLOWING_HEADER",
    "FORWARDED_HEADER",
    "TRUNCATED_HEADER",
    "Peers",
    "RemoteRows",
    "as_place",
    "as_text",
    "pages",
]

ARROW: Final = "application/vnd.apache.arrow.stream"
#: Says of each task that had a part in an answer where it stands, as JSON.
ANSWER_HEADER: Final = "SparkRelay-Tasks"
TRUNCATED_HEADER: Final = "SparkRelay-Truncated"
#: Where the next page of a partition goes on, as :func:`as_text` writes it.
FOLLOWING_HEADER: Final = "SparkRelay-Following"
#: A request with it comes from an instance, and goes no further.
FORWARDED_HEADER: Final = "SparkRelay-Forwarded"
_LONGEST_ANSWER: Final = 256 << 20
_LONGEST_ERROR: Final = 4_096
#: Connections to one instance that wait for the next question.
_MOST_KEPT: Final = 8
_OK: Final = 200
_UNKNOWN: Final = 404
_MISDIRECTED: Final = 421
_BUSY: Final = 503


@dataclass(frozen=True, slots=True)
class RemoteRows:
    """What another instance said.

    Attributes:
        rows: of the store.
        tasks: of each task that had a part in it where it stands.
        truncated: True if there were more rows than it may send.
        following: where the next page of a partition goes on; None if there is none.
    """

    rows: pa.RecordBatch
    tasks: list[dict[str, Any]]
    truncated: bool
    following: bytes | None = None


class Peers:
    """The instances of a group. Any thread may ask. Connections are kept for the next question."""

    def __init__(self, own: str | None, token: str, timeout_s: float) -> None:
        """Take what each request says.

        Args:
            own: this instance's ``application.server``: then those who are asked pass nothing on. None for who is no
                instance.
            token: what shows that we may ask; empty if nobody needs it.
            timeout_s: how long an answer may take, from connecting to its last byte.
        """
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._kept: defaultdict[HostInfo, list[http.client.HTTPConnection]] = defaultdict(list)
        self._closed = False
        self._headers = {"Accept": ARROW}
        if own is not None:
            self._headers[FORWARDED_HEADER] = own or "an instance without application.server"
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(
        self, host: HostInfo, store: str, key: str | None, parameters: Mapping[str, str], schema: pa.Schema | None
    ) -> RemoteRows:
        """Ask an instance.

        Args:
            host: which.
            store: the store.
            key: as the path has it; None for many rows.
            parameters: the rest of the question.
            schema: of the store's rows: an answer with others is refused; None for any.

        Raises:
            InvalidStateStorePartitionException: it does not have them.
            StateStoreNotAvailableException: it does not answer, or says that it cannot just now.
            InvalidStateStoreException: it refuses.
        """
        path = f"/stores/{quote(store, safe='')}" + ("" if key is None else f"/{quote(key, safe='')}")
        with self._saying_who(host):
            response, data = self._answer(host, f"{path}?{urlencode(parameters)}")
            tasks = json.loads(response.headers.get(ANSWER_HEADER, "[]"))
            text = response.headers.get(FOLLOWING_HEADER)
            following = None if text is None else as_place(text)
            truncated = response.headers.get(TRUNCATED_HEADER) == "true"
            return RemoteRows(_rows(data, schema), tasks, truncated, following)

    def stores(self, host: HostInfo) -> list[dict[str, Any]]:
        """Ask which stores there are: ``store``, ``key``, ``window`` and ``partitions`` of each; raises as ``ask``."""
        with self._saying_who(host):
            _, data = self._answer(host, "/stores")
            stores = [json.loads(line) for line in data.splitlines()]
            for one in stores:
                if not (
                    isinstance(one["store"], str)
                    and all(isinstance(name, str) for name in one["key"])
                    and isinstance(one["window"], str | None)
                    and isinstance(one["partitions"], int)
                ):
                    raise ValueError(f"{one!r:.200} is no store")
            return stores

    def close(self) -> None:
        """Close what is kept; answers that come later are not kept any more."""
        with self._lock:
            self._closed = True
            kept, self._kept = [one for some in self._kept.values() for one in some], defaultdict(list)
        for connection in kept:
            connection.close()

    @contextlib.contextmanager
    def _saying_who(self, host: HostInfo) -> Iterator[None]:
        try:
            yield
        except (
            OSError, http.client.HTTPException, LookupError, TypeError, ValueError, RecursionError, pa.ArrowException,
        ) as error:  # fmt: skip
            raise StateStoreNotAvailableException(f"{host} does not answer: {error or type(error).__name__}") from error

    def _answer(self, host: HostInfo, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        """Return an answer that is none of an error, and its body."""
        response, data = self._response(host, path)
        if response.status != _OK:
            raise self._refused(host, response.status, data[:_LONGEST_ERROR])
        if len(data) > _LONGEST_ANSWER:
            raise InvalidStateStoreException(
                f"{host} answers with more than {_LONGEST_ANSWER >> 20} MiB; ask for fewer rows"
            )
        return response, data

    def _response(self, host: HostInfo, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        with self._lock:
            kept = self._kept[host].pop() if self._kept[host] else None
        if kept is not None:
            # Who has closed it meanwhile has not seen the question.
            with contextlib.suppress(ConnectionError, http.client.BadStatusLine):
                return self._asked(kept, host, path)
        return self._asked(
            http.client.HTTPConnection(host.host.strip("[]"), host.port, timeout=self._timeout_s), host, path
        )

    def _asked(
        self, connection: http.client.HTTPConnection, host: HostInfo, path: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        whole = False
        try:
            with time_limit(connection, self._timeout_s):
                connection.request("GET", path, headers=self._headers)
                response = connection.getresponse()
                data = response.read(_LONGEST_ANSWER + 1)
            # One that answers more than it may, or is to be closed, has lost its socket or has bytes left.
            whole = response.isclosed() and connection.sock is not None
            return response, data
        finally:
            with self._lock:
                stays = whole and not self._closed and len(self._kept[host]) < _MOST_KEPT
                if stays:
                    self._kept[host].append(connection)
            if not stays:
                connection.close()

    def _refused(self, host: HostInfo, status: int, body: bytes) -> Exception:
        text = body.decode("utf-8", "replace").strip()
        if status == _MISDIRECTED:
            return InvalidStateStorePartitionException(f"{host}: {text}")
        kinds = {_UNKNOWN: UnknownStateStoreException, _BUSY: StateStoreNotAvailableException}
        return kinds.get(status, InvalidStateStoreException)(f"{host} says {status}: {text}")


def as_text(place: bytes) -> str:
    """Return where a page goes on as text for a header or a parameter."""
    return base64.urlsafe_b64encode(place).decode()


def as_place(text: str) -> bytes:
    """Read what :func:`as_text` wrote.

    Raises:
        ValueError: it is something else.
    """
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True)
    except ValueError:
        raise ValueError(f"{text[:100]!r} is not where a page has ended: take it from {FOLLOWING_HEADER}") from None


def pages(ask: Callable[[bytes], tuple[pa.RecordBatch, bytes | None]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, page by page.

    Args:
        ask: gets where a page begins; returns its rows, and where the next one goes on, or None.

    Raises:
        InvalidStateStoreException: that is not behind where it began: who answers so could be asked for ever.
    """
    at = b""
    while True:
        rows, following = ask(at)
        yield rows
        if following is None:
            return
        if following <= at:
            raise InvalidStateStoreException(f"a page goes on at {following!r:.100}, and began at {at!r:.100}")
        at = following


def _rows(data: bytes, schema: pa.Schema | None) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
        if schema is not None and reader.schema != schema:
            raise ValueError("it has other columns: it runs another release of the pipeline")
        batches = [batch for batch in reader if batch.validate(full=True) is None]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], reader.schema)

"""Queries of another instance over HTTP, with bounds on time and size."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import pyarrow as pa

from sparkrelay.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    StateStoreNotAvailableException,
    UnknownStateStoreException,
)
from sparkrelay.observe.http_client import HttpConnection
from sparkrelay.runtime.queries.query import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from sparkrelay.observe.http_client import HttpAnswer
    from sparkrelay.protocol import HostInfo

ARROW: Final = "application/vnd.apache.arrow.stream"
#: The position and lag of each task that answered, as JSON.
ANSWER_HEADER: Final = "SparkRelay-Tasks"
TRUNCATED_HEADER: Final = "SparkRelay-Truncated"
#: Start of the partition's next page, as :func:`as_text` writes it.
FOLLOWING_HEADER: Final = "SparkRelay-Following"
#: Marks a request of another instance, which is not forwarded again.
FORWARDED_HEADER: Final = "SparkRelay-Forwarded"
#: ``StoreKeys.fingerprint`` of a forwarded query for one row: an instance with equal columns answers in JSON.
ROW_HEADER: Final = "SparkRelay-Row"
_JSON: Final = "application/json"
JSON: Final = f"{_JSON}; charset=utf-8"
_LONGEST_ANSWER: Final = 256 << 20
_LONGEST_ERROR: Final = 4_096
#: Most idle connections to one instance.
_MOST_KEPT: Final = 8
_OK: Final = 200
_UNKNOWN: Final = 404
_MISDIRECTED: Final = 421
_BUSY: Final = 503


class Peers:
    """Connections to the instances of a group, kept for the next query. Thread-safe."""

    def __init__(self, own: str | None, token: str, timeout_s: float) -> None:
        """Connect to nobody yet.

        With ``own``, this instance's ``application.server``, peers do not forward our queries; None for other clients.
        ``timeout_s`` bounds an answer, from connecting to its last byte.
        """
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._kept: defaultdict[HostInfo, list[HttpConnection]] = defaultdict(list)
        self._closed = False
        self._headers = {"Accept": ARROW}
        if own is not None:
            self._headers[FORWARDED_HEADER] = own or "an instance without application.server"
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(  # noqa: PLR0917 - as they are needed
        self,
        host: HostInfo,
        store: str,
        key: str | None,
        parameters: Mapping[str, str],
        schema: pa.Schema | None,
        row: str | None = None,
    ) -> Answer:
        """Return the answer of an instance.

        ``key`` is spelt as in the path, or None for many rows. Answers with other columns than ``schema`` are refused.
        ``row`` is the schema's fingerprint if one row may come as JSON, to be forwarded unchanged.

        Raises:
            InvalidStateStorePartitionException: the instance does not have the rows.
            StateStoreNotAvailableException: it does not answer, or cannot answer now.
            InvalidStateStoreException: it refuses.
        """
        path = f"/stores/{quote(store, safe='')}" + ("" if key is None else f"/{quote(key, safe='')}")
        with self._named(host):
            answer = self._answer(host, f"{path}?{urlencode(parameters)}", {} if row is None else {ROW_HEADER: row})
            tasks = json.loads(answer.headers.get(ANSWER_HEADER.lower(), "[]"))
            place = answer.headers.get(FOLLOWING_HEADER.lower())
            following = None if place is None else as_place(place)
            truncated = answer.headers.get(TRUNCATED_HEADER.lower()) == "true"
            if row is not None and answer.headers.get("content-type", "").startswith(_JSON):
                return Answer(None, tasks, truncated, following, _one_line(answer.body))
            return Answer(_rows(answer.body, schema), tasks, truncated, following)

    def stores(self, host: HostInfo) -> list[dict[str, Any]]:
        """Return the stores, each with ``store``, ``key``, ``window`` and ``partitions``; raises as ``ask``."""
        with self._named(host):
            stores = [json.loads(line) for line in self._answer(host, "/stores").body.splitlines()]
            for one in stores:
                if not (
                    isinstance(one["store"], str)
                    and all(isinstance(name, str) for name in one["key"])
                    and isinstance(one["window"], str | None)
                    and isinstance(one["partitions"], int)
                ):
                    raise ValueError(f"{one!r:.200} is not a store")
            return stores

    def keep_only(self, hosts: Collection[HostInfo]) -> None:
        """Close idle connections to all other hosts: those have left the group."""
        with self._lock:
            gone = [connection for host in self._kept.keys() - hosts for connection in self._kept.pop(host)]
        for connection in gone:
            connection.close()

    def close(self) -> None:
        """Close idle connections, and from now on each one after its answer."""
        with self._lock:
            self._closed = True
            kept, self._kept = [one for some in self._kept.values() for one in some], defaultdict(list)
        for connection in kept:
            connection.close()

    @contextlib.contextmanager
    def _named(self, host: HostInfo) -> Iterator[None]:
        try:
            yield
        except (OSError, LookupError, TypeError, ValueError, RecursionError, pa.ArrowException) as error:
            raise StateStoreNotAvailableException(f"{host} does not answer: {error or type(error).__name__}") from error

    def _answer(self, host: HostInfo, path: str, more: Mapping[str, str] = MappingProxyType({})) -> HttpAnswer:
        """Return a successful answer."""
        answer = self._response(host, path, {**self._headers, **more})
        if answer.status != _OK:
            raise self._refused(host, answer.status, answer.body[:_LONGEST_ERROR])
        if len(answer.body) > _LONGEST_ANSWER:
            raise InvalidStateStoreException(
                f"the answer of {host} exceeds {_LONGEST_ANSWER >> 20} MiB; query fewer rows"
            )
        return answer

    def _response(self, host: HostInfo, path: str, headers: Mapping[str, str]) -> HttpAnswer:
        with self._lock:
            kept = self._kept[host].pop() if self._kept[host] else None
        if kept is not None:
            # A peer that has closed the connection has not seen the query.
            with contextlib.suppress(ConnectionError):
                return self._asked(kept, host, path, headers)
        return self._asked(HttpConnection(host.host.strip("[]"), host.port, self._timeout_s), host, path, headers)

    def _asked(self, connection: HttpConnection, host: HostInfo, path: str, headers: Mapping[str, str]) -> HttpAnswer:
        stays = False
        try:
            answer = connection.get(path, headers, longest=_LONGEST_ANSWER)
            stays = answer.stays
            return answer
        finally:
            with self._lock:
                stays = stays and not self._closed and len(self._kept[host]) < _MOST_KEPT
                if stays:
                    self._kept[host].append(connection)
            if not stays:
                connection.close()

    def _refused(self, host: HostInfo, status: int, body: bytes) -> Exception:
        text = body.decode("utf-8", "replace").strip()
        if status == _MISDIRECTED:
            return InvalidStateStorePartitionException(f"{host}: {text}")
        kinds = {_UNKNOWN: UnknownStateStoreException, _BUSY: StateStoreNotAvailableException}
        return kinds.get(status, InvalidStateStoreException)(f"{host} answers {status}: {text}")


def as_text(place: bytes) -> str:
    """Encode the start of a page for a header or a parameter."""
    return base64.urlsafe_b64encode(place).decode()


def as_place(text: str) -> bytes:
    """Decode the text of :func:`as_text`; raises ValueError if it is something else."""
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True)
    except ValueError:
        raise ValueError(f"{text[:100]!r} is not the start of a page: use the value of {FOLLOWING_HEADER}") from None


def pages(ask: Callable[[bytes], Answer]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition; ``ask`` returns the page that begins at a place.

    Raises:
        InvalidStateStoreException: the next page starts no later, so that there would be no end.
    """
    at: bytes | None = b""
    while at is not None:
        page = ask(at)
        yield page.rows
        if page.following is not None and page.following <= at:
            raise InvalidStateStoreException(f"the page after {at!r:.100} starts at {page.following!r:.100}")
        at = page.following


def _one_line(body: bytes) -> bytes:
    """Return the one JSON object of an answer, unchanged."""
    if not (body.startswith(b"{") and body.endswith(b"}\n") and body.count(b"\n") == 1):
        raise ValueError(f"{body[:100]!r} is not a row in JSON")
    return body[:-1]


def _rows(data: bytes, schema: pa.Schema | None) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
        if schema is not None and reader.schema != schema:
            raise ValueError("its store has other columns: it runs another release of the pipeline")
        batches = [batch for batch in reader if batch.validate(full=True) is None]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], reader.schema)

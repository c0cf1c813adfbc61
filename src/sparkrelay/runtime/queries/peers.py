"""Asking another instance over HTTP, with bounds: how long it may take, how much it may say."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections import defaultdict
from dataclasses import dataclass
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
from sparkrelay.observe.time_limit import time_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from sparkrelay.observe.http_client import HttpAnswer
    from sparkrelay.protocol import HostInfo

__all__ = [
    "ANSWER_HEADER",
    "ARROW",
    "FOLLOWING_HEADER",
    "FORWARDED_HEADER",
    "JSON",
    "ROW_HEADER",
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
#: Of a forwarded question for one row: its columns, as ``StoreKeys.fingerprint``. Who has the same sends it as JSON.
ROW_HEADER: Final = "SparkRelay-Row"
_JSON: Final = "application/json"
JSON: Final = f"{_JSON}; charset=utf-8"
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
        text: the one row as JSON, where it came so; ``rows`` are None then.
    """

    rows: pa.RecordBatch
    tasks: list[dict[str, Any]]
    truncated: bool
    following: bytes | None = None
    text: bytes | None = None


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
    ) -> RemoteRows:
        """Ask an instance.

        Args:
            host: which.
            store: the store.
            key: as the path has it; None for many rows.
            parameters: the rest of the question.
            schema: of the store's rows: an answer with others is refused; None for any.
            row: the schema's fingerprint, where one row may come as JSON, to be passed on as it is; else None.

        Raises:
            InvalidStateStorePartitionException: it does not have them.
            StateStoreNotAvailableException: it does not answer, or says that it cannot just now.
            InvalidStateStoreException: it refuses.
        """
        path = f"/stores/{quote(store, safe='')}" + ("" if key is None else f"/{quote(key, safe='')}")
        with self._saying_who(host):
            answer = self._answer(host, f"{path}?{urlencode(parameters)}", {} if row is None else {ROW_HEADER: row})
            tasks = json.loads(answer.headers.get(ANSWER_HEADER.lower(), "[]"))
            place = answer.headers.get(FOLLOWING_HEADER.lower())
            following = None if place is None else as_place(place)
            truncated = answer.headers.get(TRUNCATED_HEADER.lower()) == "true"
            if row is not None and answer.headers.get("content-type", "").startswith(_JSON):
                return RemoteRows(None, tasks, truncated, following, _one_line(answer.body))
            return RemoteRows(_rows(answer.body, schema), tasks, truncated, following)

    def stores(self, host: HostInfo) -> list[dict[str, Any]]:
        """Ask which stores there are: ``store``, ``key``, ``window`` and ``partitions`` of each; raises as ``ask``."""
        with self._saying_who(host):
            stores = [json.loads(line) for line in self._answer(host, "/stores").body.splitlines()]
            for one in stores:
                if not (
                    isinstance(one["store"], str)
                    and all(isinstance(name, str) for name in one["key"])
                    and isinstance(one["window"], str | None)
                    and isinstance(one["partitions"], int)
                ):
                    raise ValueError(f"{one!r:.200} is no store")
            return stores

    def keep_only(self, hosts: Collection[HostInfo]) -> None:
        """Close what is kept to others: nobody asks who has left, and its end of a connection is closed."""
        with self._lock:
            gone = [connection for host in self._kept.keys() - hosts for connection in self._kept.pop(host)]
        for connection in gone:
            connection.close()

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
        except (OSError, LookupError, TypeError, ValueError, RecursionError, pa.ArrowException) as error:
            raise StateStoreNotAvailableException(f"{host} does not answer: {error or type(error).__name__}") from error

    def _answer(self, host: HostInfo, path: str, more: Mapping[str, str] = MappingProxyType({})) -> HttpAnswer:
        """Return an answer that is none of an error."""
        answer = self._response(host, path, {**self._headers, **more})
        if answer.status != _OK:
            raise self._refused(host, answer.status, answer.body[:_LONGEST_ERROR])
        if len(answer.body) > _LONGEST_ANSWER:
            raise InvalidStateStoreException(
                f"{host} answers with more than {_LONGEST_ANSWER >> 20} MiB; ask for fewer rows"
            )
        return answer

    def _response(self, host: HostInfo, path: str, headers: Mapping[str, str]) -> HttpAnswer:
        with self._lock:
            kept = self._kept[host].pop() if self._kept[host] else None
        if kept is not None:
            # Who has closed it meanwhile has not seen the question.
            with contextlib.suppress(ConnectionError):
                return self._asked(kept, host, path, headers)
        return self._asked(HttpConnection(host.host.strip("[]"), host.port, self._timeout_s), host, path, headers)

    def _asked(self, connection: HttpConnection, host: HostInfo, path: str, headers: Mapping[str, str]) -> HttpAnswer:
        stays = False
        try:
            with time_limit(connection, self._timeout_s):
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


def _one_line(body: bytes) -> bytes:
    """Return the one object that an answer is, as it is."""
    if not (body.startswith(b"{") and body.endswith(b"}\n") and body.count(b"\n") == 1):
        raise ValueError(f"{body[:100]!r} is no row as JSON")
    return body[:-1]


def _rows(data: bytes, schema: pa.Schema | None) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
        if schema is not None and reader.schema != schema:
            raise ValueError("it has other columns: it runs another release of the pipeline")
        batches = [batch for batch in reader if batch.validate(full=True) is None]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], reader.schema)

"""Interactive queries over HTTP, at an instance's ``application.server``.

    GET /stores                                      the stores
    GET /stores/STORE/KEY                            the row of a key; a key of several columns is a JSON array
    GET /stores/STORE/KEY?from=TIME&to=TIME          its windows that begin between two times
    GET /stores/STORE?from=KEY&to=KEY&limit=N        many rows; of a store with windows the bounds are times
    GET /stores/STORE?partition=N&after=PLACE        all rows of a partition, page by page

``stale=true`` (and ``max_lag=N``) lets standby copies answer, ``isolation=read_uncommitted`` includes the changes of an
open micro-batch, ``partition=N`` names the partition to read. Rows are JSON, many rows JSON lines, or an Arrow stream
if ``Accept`` requests one. The header ``SparkRelay-Tasks`` names the tasks that answered, ``SparkRelay-Following`` the
start of the partition's next page.
"""

from __future__ import annotations

import functools
import hmac
import json
import logging
import threading
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import pyarrow as pa

from sparkrelay.errors import (
    ConfigException,
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    RecordException,
    SparkRelayError,
    StateStoreNotAvailableException,
    StreamsNotStartedException,
    UnknownStateStoreException,
)
from sparkrelay.observe.http_server import HttpServer
from sparkrelay.protocol import HostInfo
from sparkrelay.records.json.writer import columns_to_json
from sparkrelay.runtime.contract.arrow_stream import to_stream
from sparkrelay.runtime.queries.instance_queries import require_windows
from sparkrelay.runtime.queries.peers import (
    ANSWER_HEADER,
    ARROW,
    FOLLOWING_HEADER,
    FORWARDED_HEADER,
    JSON,
    ROW_HEADER,
    TRUNCATED_HEADER,
    as_place,
    as_text,
)
from sparkrelay.runtime.queries.query import Answer, Query, QueryScope
from sparkrelay.runtime.queries.routing import Router
from sparkrelay.runtime.queries.store_keys import as_milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.queries.instance_queries import InstanceQueries
    from sparkrelay.runtime.queries.store_keys import KeptKeys

    Response = tuple[int, list[tuple[str, str]], bytes]

log = logging.getLogger(__name__)

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
_LINES: Final = "application/x-ndjson; charset=utf-8"
#: Long enough for the start of a page, which is a key in base64.
_LONGEST_QUERY: Final = 98_304
_LONGEST_PLACE: Final = _LONGEST_QUERY - 2_048
#: Longest wait of a query for its turn: a burst is not refused.
_LONGEST_TURN_S: Final = 1.0
_LONGEST_HEADER: Final = 32_768
_KNOWN: Final = frozenset({"from", "to", "limit", "isolation", "stale", "max_lag", "partition", "after"})
_FORWARDED: Final = f"HTTP_{FORWARDED_HEADER.upper().replace('-', '_')}"
_ROW: Final = f"HTTP_{ROW_HEADER.upper().replace('-', '_')}"
_STATUS: Final[Mapping[int, str]] = {
    200: "200 OK",
    400: "400 Bad Request",
    401: "401 Unauthorized",
    404: "404 Not Found",
    405: "405 Method Not Allowed",
    414: "414 URI Too Long",
    421: "421 Misdirected Request",
    500: "500 Internal Server Error",
    501: "501 Not Implemented",
    503: "503 Service Unavailable",
}


def serve_queries(queries: InstanceQueries, config: StreamsConfig) -> HttpServer | None:
    """Answer queries at ``application.server`` until the server is closed; None if the settings disable it.

    Raises:
        ConfigException: the address cannot be listened at, or it is open to the network without a token.
    """
    if not (config.application_server and config.queries_enabled):
        return None
    own = HostInfo.parse(config.application_server)
    host = (config.queries_host or own.host).strip("[]")
    if host not in _LOOPBACK and not config.queries_token:
        raise ConfigException(
            f"{host}:{own.port} (application.server, queries.host) would let anyone on the network query the stores: "
            "set queries.token to the same value for all instances, or queries.host=127.0.0.1 behind your own proxy, "
            "or queries.enabled=false if another server listens there"
        )
    application = QueryApplication(queries, config)
    try:
        return HttpServer(
            application,
            host=host,
            port=own.port,
            name="sparkrelay-queries",
            most_connections=4 * config.queries_max_requests,
            on_close=application.close,
        )
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigException(
            f"application.server={config.application_server!r}: cannot listen at {host}:{own.port}: {reason}. Each "
            "instance on a machine needs its own port. If the name is not an address of this machine, set queries.host "
            "to one that is; queries.enabled=false leaves the port to your own server"
        ) from error


class QueryApplication:
    """The WSGI application, called on the thread of each connection."""

    def __init__(self, queries: InstanceQueries, config: StreamsConfig) -> None:
        """Answer by an instance's stores."""
        self._queries = queries
        own = {HostInfo.parse(config.application_server).host.lower()} if config.application_server else set()
        self._names = _LOOPBACK | own
        self._token = config.queries_token
        self._most = config.queries_max_rows
        # Queries of other instances have their own turns: waiting for ours could deadlock, as ours wait for theirs.
        self._turns, self._turns_of_others = (threading.BoundedSemaphore(config.queries_max_requests) for _ in range(2))
        self._longest_wait = min(_LONGEST_TURN_S, config.queries_timeout_ms / 1000 / 2)
        self._router = Router(queries, config)

    def close(self) -> None:
        """Close the connections to other instances."""
        self._router.close()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        status, headers, body = self._answered(environ)
        if status in {421, 503}:
            headers = [*headers, ("Retry-After", str(StateStoreNotAvailableException.retry_after))]
        start_response(_STATUS[status], [*headers, ("Content-Length", str(len(body))), ("Cache-Control", "no-store")])
        return [body]

    def _answered(self, environ: dict[str, Any]) -> Response:
        if environ.get("REQUEST_METHOD") != "GET":
            return _error(405, "stores are read-only: use GET", ("Allow", "GET"))
        if not self._permitted(environ):
            return _error(401, "send Authorization: Bearer <queries.token>", ("WWW-Authenticate", "Bearer"))
        if len(environ.get("QUERY_STRING", "")) + len(environ.get("PATH_INFO", "")) > _LONGEST_QUERY:
            return _error(414, f"a request has at most {_LONGEST_QUERY} characters")
        turns = self._turns_of_others if _forwarded(environ) else self._turns
        if not turns.acquire(timeout=self._longest_wait):
            return _error(503, "too many concurrent queries (queries.max.requests); try again soon")
        try:
            return self._answer(environ)
        except UnknownStateStoreException as error:
            return _error(404, str(error))
        except InvalidStateStorePartitionException as error:
            return _error(421 if _forwarded(environ) else 503, str(error))
        except (StateStoreNotAvailableException, StreamsNotStartedException) as error:
            return _error(503, str(error))
        except (RecordException, ValueError) as error:
            return _error(400, str(error))
        except InvalidStateStoreException as error:
            return _error(501, str(error))
        except SparkRelayError as error:
            log.warning("a query failed: %s", error)
            return _error(500, str(error))
        except Exception:
            log.exception("a query failed")
            return _error(500, "see the instance's log")
        finally:
            turns.release()

    def _permitted(self, environ: Mapping[str, Any]) -> bool:
        if self._token:
            given = str(environ.get("HTTP_AUTHORIZATION", "")).encode("latin-1", "replace")
            return hmac.compare_digest(given, f"Bearer {self._token}".encode())
        # A web page in a browser on this machine must not reach us by a host name that it controls.
        name = str(environ.get("HTTP_HOST", "localhost")).lower()
        name = name if name.endswith("]") else name.rpartition(":")[0] or name
        return name in self._names

    def _answer(self, environ: Mapping[str, Any]) -> Response:
        path = str(environ.get("PATH_INFO", "")).encode("latin-1", "replace").decode("utf-8", "strict")
        first, _, rest = path.removeprefix("/").partition("/")
        name, slash, key = rest.partition("/")
        if first != "stores":
            return _error(404, "use /stores, /stores/STORE or /stores/STORE/KEY")
        if not name:
            return 200, [("Content-Type", _LINES)], self._stores()
        text = str(environ.get("QUERY_STRING", ""))
        given = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=20)
        parameters = dict(given)
        if unknown := sorted(parameters.keys() - _KNOWN):
            raise ValueError(f"unknown parameter {unknown[0]!r}; use {', '.join(sorted(_KNOWN))}")
        if len(parameters) < len(given):
            raise ValueError("a parameter is given twice; write several partitions as partition=0,3")
        self._queries.require_running()
        keys = self._queries.local.keys(name)
        limit = min(_number(parameters, "limit", self._most), self._most)
        scope = _scope(parameters)
        # Another instance may already know of more; 0 is unknown.
        if scope.partitions and not _forwarded(environ) and 0 < self._partitions(keys) <= max(scope.partitions):
            raise ValueError(
                f"partition={max(scope.partitions)}: store {name!r} has partitions 0 to {self._partitions(keys) - 1}"
            )
        arrow = ARROW in str(environ.get("HTTP_ACCEPT", ""))
        # An instance forwards a JSON row unchanged if its rows have the same columns as ours.
        as_json = limit > 0 and (not arrow or environ.get(_ROW) == keys.fingerprint)
        query = _query(keys, scope, key if slash else None, parameters, limit, as_json=as_json)
        answer = self._router.answer(query, forwarded=_forwarded(environ))
        return _rendered(answer, many=query.kind != "row", arrow=arrow)

    def _stores(self) -> bytes:
        lines = []
        for name in self._queries.stores.names:
            keys = self._queries.local.keys(name)
            columns = {field.name: str(field.type) for field in keys.layout.columns}
            line: dict[str, Any] = {"store": name, "key": keys.schema.names, "window": keys.window, "columns": columns}
            line |= {"global": self._queries.is_global(name), "partitions": self._partitions(keys)}
            # After a repartition topic each key is where the default partitioner puts it, whoever produced the input.
            line["repartitioned"] = bool(keys.layout.repartitioned_by)
            lines.append(json.dumps(line))
        return "".join(f"{line}\n" for line in lines).encode()

    def _partitions(self, keys: KeptKeys) -> int:
        """Return the number of partitions of a store; 0 while unknown."""
        if self._queries.is_global(keys.spec.store):
            return 1
        return self._queries.group.width(keys.spec.subtopology)


def _query(
    keys: KeptKeys, scope: QueryScope, text: str | None, parameters: dict[str, str], limit: int, *, as_json: bool
) -> Query:
    bounds = parameters.get("from"), parameters.get("to")
    paged = text is None and bounds == (None, None) and len(scope.partitions or ()) == 1
    if "after" in parameters and not paged:
        raise ValueError("after= continues in one partition: give partition=, and no key, from= or to=")
    made = functools.partial(Query, keys, scope, limit=limit, text=text, parameters=parameters)
    if paged:
        return made("page", after=as_place(parameters.get("after", "")))
    if keys.window is not None and (text is None or bounds != (None, None)):
        times = _milliseconds(bounds[0], "from"), _milliseconds(bounds[1], "to")
        key = None if text is None else keys.from_text(text, keys.plain)
        return made("windows", key=key, times=times)
    if text is not None:
        if bounds != (None, None):
            require_windows(keys)
        return made("row", key=keys.from_text(text), as_json=as_json)
    first, last = (None if bound is None else keys.from_text(bound) for bound in bounds)
    return made("rows", span=(first, last))


def _rendered(answer: Answer, *, many: bool, arrow: bool) -> Response:
    tasks = json.dumps(answer.tasks)
    if len(tasks) > _LONGEST_HEADER:
        tasks = json.dumps([{"tasks": len(answer.tasks)}])
    headers = [(ANSWER_HEADER, tasks)]
    if answer.truncated:
        headers.append((TRUNCATED_HEADER, "true"))
    if answer.following is not None:
        place = as_text(answer.following)
        if len(place) > _LONGEST_PLACE:
            raise InvalidStateStoreException(
                f"the next page starts after a key of about {len(answer.following)} bytes, too long for a request: "
                "change limit= so that the page ends at another key, or use from= and to="
            )
        headers.append((FOLLOWING_HEADER, place))
    if arrow and answer.text is None:
        return 200, [("Content-Type", ARROW), *headers], to_stream(answer.rows)
    lines: list[bytes] = columns_to_json(answer.rows).to_pylist() if answer.text is None else [answer.text]
    if many:
        return 200, [("Content-Type", _LINES), *headers], b"".join(line + b"\n" for line in lines)
    if not lines:
        status, more, body = _error(404, "the store has no such key")
        return status, [*more, *headers], body
    return 200, [("Content-Type", JSON), *headers], lines[0] + b"\n"


def _scope(parameters: Mapping[str, str]) -> QueryScope:
    stale = parameters.get("stale", "false")
    if stale not in {"true", "false"}:
        raise ValueError(f"stale={stale!r} must be true or false")
    partition = parameters.get("partition")
    if partition is not None and not all(part.isdecimal() and len(part) < 10 for part in partition.split(",")):
        raise ValueError(f"partition={partition!r} must be a number, or several separated by commas")
    return QueryScope(
        parameters.get("isolation", "read_committed"),  # type: ignore[arg-type]  # checked there
        stale=stale == "true",
        max_lag=_number(parameters, "max_lag", None),
        partitions=None if partition is None else frozenset(map(int, partition.split(","))),
    )


def _number(parameters: Mapping[str, str], name: str, default: Any) -> Any:
    text = parameters.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise ValueError(f"{name}={text!r} must be a whole number, 0 or more")
    return int(text)


def _milliseconds(text: str | None, name: str) -> int | None:
    """Return a time, written in milliseconds since 1970 or as ISO 8601, in milliseconds."""
    if text is None:
        return None
    if text.removeprefix("-").isdecimal() and len(text) <= 18:
        return as_milliseconds(int(text), name)
    try:
        return int(pa.scalar(text).cast(pa.timestamp("ms", "UTC")).value)
    except pa.ArrowInvalid:
        raise ValueError(f"{text!r} is not a time: write 2026-01-01T10:00:00Z, or milliseconds since 1970") from None


def _forwarded(environ: Mapping[str, Any]) -> bool:
    return _FORWARDED in environ


def _error(status: int, text: str, *headers: tuple[str, str]) -> Response:
    return status, [("Content-Type", JSON), *headers], json.dumps({"error": text}).encode() + b"\n"

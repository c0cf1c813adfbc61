"""Who may ask over HTTP, how much and how many at a time; what is asked of whom."""

import contextlib
import datetime as dt
import json
import threading
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.doubles.state_steps import state_spec
from tests.waiting import LONG

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import ConfigException
from sparkrelay.observe.http_server import HttpServer
from sparkrelay.operators.table.reading import StoreRead
from sparkrelay.protocol import HostInfo
from sparkrelay.runtime.queries.local_stores import ACTIVE, LocalStores, LocalTask
from sparkrelay.runtime.queries.metadata import KeyQueryMetadata
from sparkrelay.runtime.queries.peers import Peers, as_text
from sparkrelay.runtime.queries.query_server import QueryApplication, serve_queries
from sparkrelay.types import TaskId

SPEC = state_spec([("user", pa.string())], [], [("n", pa.int64())], (), partitioned_by=("user",))
SETTINGS = {"application.id": "app", "bootstrap.servers": "b:9092", "application.server": "127.0.0.1:1"}
TOKEN = "s3cret"


class Stores:
    """A pipeline with one store."""

    names = ("counts",)

    def spec(self, _):
        return SPEC

    def is_global(self, _):
        return False


class Group:
    """Where tasks are: of one partition, which is here."""

    hosts = frozenset()

    def width(self, _):
        return 1

    def hosts_of(self, _, __):
        return HostInfo("127.0.0.1", 1), frozenset()


class Queries:
    """An instance with one task and one row."""

    stores, group = Stores(), Group()

    def __init__(self, *, held=None, following=None):
        self.held, self.waiting = held, threading.Event()
        self.following, self.reading = following, None
        self.local = LocalStores(lambda: self.stores, self.tasks)

    def tasks(self, _):
        return [LocalTask(TaskId(0, 0), "0_0", ACTIVE, 1, width=1, read=self.read)]

    def read(self, spec, reading):
        self.reading = reading
        if self.held is not None:
            self.waiting.set()
            assert self.held.wait(LONG)
        rows = pa.RecordBatch.from_pylist([{"user": "ada", "n": 3}], spec.layout.columns)
        return StoreRead(rows, self.following, watermark=12, places=(0,))

    def require_running(self):
        pass

    def is_global(self, store):
        return self.stores.is_global(store)

    def located(self, keys, key):
        del keys, key
        return KeyQueryMetadata(HostInfo("127.0.0.1", 1), frozenset(), 0)


def application(queries=None, **settings):
    config = StreamsConfig.from_dict(SETTINGS | {key.replace("_", "."): value for key, value in settings.items()})
    return QueryApplication(queries or Queries(), config)


def ask(made, path, method="GET", **headers):
    path, _, query = path.partition("?")
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "HTTP_HOST": "127.0.0.1:1",
        **headers,
    }
    answered = []
    body = b"".join(made(environ, lambda status, headers: answered.append((status, dict(headers)))))
    ((status, sent),) = answered
    assert int(sent["Content-Length"]) == len(body)
    return int(status[:3]), sent, body


def test_a_row_says_where_it_comes_from():
    status, headers, body = ask(application(), "/stores/counts/ada")
    assert (status, json.loads(body)) == (200, {"user": "ada", "n": 3})
    (task,) = json.loads(headers["SparkRelay-Tasks"])
    assert task == {
        "task": "0_0",
        "partition": 0,
        "role": "active",
        "host": "127.0.0.1:1",
        "position": None,
        "lag": 0,
        "watermark": 12,
    }


@pytest.mark.parametrize(
    ("given", "status"),
    [(None, 401), ("", 401), ("Bearer ", 401), ("Bearer s3cre", 401), ("s3cret", 401), ("Bearer s3cret", 200)],
)
def test_who_has_the_token_may_ask(given, status):
    headers = {} if given is None else {"HTTP_AUTHORIZATION": given}
    for path in ("/stores", "/stores/counts/ada", "/stores/counts"):
        found, sent, body = ask(application(queries_token=TOKEN), path, **headers)
        assert found == status
        assert TOKEN not in f"{sent}{body}"


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:1", 200), ("localhost", 200), ("[::1]:8081", 200), ("evil.example:1", 401), ("", 401)],
)
def test_without_a_token_no_other_name_leads_here(host, status):
    assert ask(application(), "/stores/counts/ada", HTTP_HOST=host)[0] == status


def test_only_so_many_at_a_time():
    held = threading.Event()
    queries = Queries(held=held)
    made = application(queries, queries_max_requests=1)
    first = threading.Thread(target=ask, args=(made, "/stores/counts/ada"))
    first.start()
    try:
        assert queries.waiting.wait(LONG)
        status, headers, body = ask(made, "/stores/counts/ada")
        assert (status, headers["Retry-After"]) == (503, "1")
        assert b"queries.max.requests" in body
        # Whom other instances ask, they may be waiting for in turn.
        assert made._turns_of_others.acquire(blocking=False)
        assert ask(made, "/stores/counts/ada", HTTP_SPARKRELAY_FORWARDED="b:1")[0] == 503
        made._turns_of_others.release()
    finally:
        held.set()
        first.join()
    assert ask(made, "/stores/counts/ada")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", ""])
def test_nothing_is_written(method):
    status, headers, _ = ask(application(), "/stores/counts/ada", method)
    assert (status, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 404),
        ("/metrics", 404),
        ("/stores/counts/ada?from=1", 501),
        ("/stores/counts?limit=x", 400),
        ("/stores/counts?limit=" + "9" * 30, 400),
        ("/stores/counts?partition=0,x", 400),
        ("/stores/counts?partition=0,1", 400),
        ("/stores/counts/ada?partition=999", 400),
        ("/stores/counts?after=YWJj", 400),
        ("/stores/counts?partition=0&after=%", 400),
        ("/stores/counts?partition=0&after=YWJ", 400),
        ("/stores/counts?partition=0&from=a&after=YWJj", 400),
        ("/stores/counts/ada?partition=0&after=YWJj", 400),
        ("/stores/counts?" + "&".join(["a=1"] * 30), 400),
        ("/stores/counts?partition=1&partition=0", 400),
        ("/stores/counts?partition=0&limit=1&limit=1", 400),
        ("/stores/counts?from=%ff", 400),
        ("/stores/counts/\xff", 400),
        ("/stores/counts?" + "x" * 100_000, 414),
    ],
)
def test_what_is_no_question_is_refused(path, status):
    found, _, body = ask(application(), path)
    assert (found, list(json.loads(body))) == (status, ["error"])


@pytest.mark.parametrize("path", ["/stores/counts", "/stores/counts/ada"])
@pytest.mark.parametrize("bound", ["from", "to"])
@pytest.mark.parametrize("time", ["9" * 18, "-" + "9" * 17])
def test_a_time_that_no_window_can_have_is_refused_in_words(path, bound, time):
    queries = Queries()
    window = ("window", pa.struct([(name, pa.timestamp("us", "UTC")) for name in ("start", "end")]))
    spec = state_spec([("user", pa.string()), window], [], [("n", pa.int64())], (), partitioned_by=("user",))
    queries.stores = type("Stores", (Stores,), {"spec": lambda *_: spec})()
    found, _, body = ask(application(queries), f"{path}?{bound}={time}")
    assert found == 400
    assert f"{bound}={time} is too far from 1970" in json.loads(body)["error"]


def test_a_fault_of_ours_is_none_of_who_asks(caplog):
    queries = Queries()

    def read(*_):
        raise TypeError("an int and a str")

    queries.read = read
    status, _, body = ask(application(queries), "/stores/counts/ada")
    assert (status, json.loads(body)) == (500, {"error": "see the instance's log"})
    assert "an int and a str" in caplog.text


def test_an_arrow_stream_is_sent_to_who_accepts_it():
    _, headers, body = ask(application(), "/stores/counts", HTTP_ACCEPT="application/vnd.apache.arrow.stream")
    assert headers["Content-Type"] == "application/vnd.apache.arrow.stream"
    assert pa.ipc.open_stream(body).read_all().to_pylist() == [{"user": "ada", "n": 3}]


def test_what_there_is_says_how_many_partitions():
    _, _, body = ask(application(), "/stores")
    (store,) = map(json.loads, body.splitlines())
    assert (store["store"], store["key"], store["window"], store["partitions"]) == ("counts", ["user"], None, 1)


@pytest.mark.parametrize(("columns", "repartitioned"), [((), False), (("user",), True)])
def test_what_there_is_says_whether_a_key_is_where_the_default_partitioner_has_it(columns, repartitioned):
    queries = Queries()
    queries.stores = type(
        "Stores", (Stores,), {"spec": lambda *_: replace(SPEC, layout=replace(SPEC.layout, repartitioned_by=columns))}
    )()
    assert json.loads(ask(application(queries), "/stores")[2])["repartitioned"] is repartitioned


def test_a_page_says_where_the_next_one_goes_on():
    queries = Queries(following=b"ada\0")
    _, headers, body = ask(application(queries), "/stores/counts?partition=0&limit=1&after=YWE=")
    assert json.loads(body) == {"user": "ada", "n": 3}
    assert (headers["SparkRelay-Following"], headers["SparkRelay-Truncated"]) == ("YWRhAA==", "true")
    assert (queries.reading.start, queries.reading.most) == (b"aa", 1)
    _, headers, _ = ask(application(), "/stores/counts?partition=0&limit=5")
    assert "SparkRelay-Following" not in headers
    assert "SparkRelay-Truncated" not in headers


@pytest.mark.parametrize("size", [12_500, 70_000])
def test_a_page_goes_on_behind_a_long_key(size):
    place = b"k" * size
    queries = Queries(following=place)
    with HttpServer(application(queries), host="127.0.0.1", port=0, name="pages") as server:
        peers, host = Peers(None, "", 10), HostInfo("127.0.0.1", server.port)
        with contextlib.closing(peers):
            found = peers.ask(host, "counts", None, {"partition": "0"}, None)
            assert found.following == place
            peers.ask(host, "counts", None, {"partition": "0", "after": as_text(found.following)}, None)
    assert queries.reading.start == place


def test_a_page_that_no_request_could_go_on_behind_is_refused_in_words():
    status, headers, body = ask(application(Queries(following=b"k" * 80_000)), "/stores/counts?partition=0")
    assert (status, "SparkRelay-Following" in headers) == (501, False)
    assert "a key of about 80000 bytes" in json.loads(body)["error"]


def test_a_server_beyond_this_machine_wants_a_token():
    settings = SETTINGS | {"application.server": "example.org:80"}
    for more in ({}, {"queries.host": "0.0.0.0"}):
        with pytest.raises(ConfigException, match=r"queries\.token"):
            serve_queries(Queries(), StreamsConfig.from_dict(settings | more))
    with pytest.raises(ConfigException, match=r"cannot listen at a\.\.b:80"):
        serve_queries(Queries(), StreamsConfig.from_dict(settings | {"queries.token": "t", "queries.host": "a..b"}))
    for more in ({"queries.enabled": "false"}, {"application.server": None}):
        assert serve_queries(Queries(), StreamsConfig.from_dict(settings | more)) is None


def test_the_token_is_not_shown():
    config = StreamsConfig.from_dict(SETTINGS | {"queries.token": TOKEN})
    assert TOKEN not in repr(config)
    with pytest.raises(ConfigException) as raised:
        StreamsConfig.from_dict(SETTINGS | {"queries.token": f"{TOKEN} and more"})
    assert TOKEN not in str(raised.value)


def test_a_window_alone_is_a_key():
    queries = Queries()
    window = ("window", pa.struct([(name, pa.timestamp("us", "UTC")) for name in ("start", "end")]))
    spec = state_spec([window], [], [("n", pa.int64())], ())
    queries.stores = type("Stores", (Stores,), {"spec": lambda *_: spec})()
    asked = []

    def read(spec, reading):
        asked.append(reading.key)
        begun = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        rows = [{"window": {"start": begun, "end": begun + dt.timedelta(minutes=5)}, "n": 3}]
        return StoreRead(pa.RecordBatch.from_pylist(rows, spec.layout.columns), watermark=12, places=(0,))

    queries.read = read
    key = '{"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:05:00Z"}'
    status, _, body = ask(application(queries), f"/stores/counts/{key}")
    assert (status, json.loads(body)["n"]) == (200, 3)
    assert asked[0].to_pylist()[0]["window"]["start"] == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    status, _, body = ask(application(queries), "/stores/counts/" + key.replace("end", "stop"))
    assert (status, "its fields are start, end" in json.loads(body)["error"]) == (400, True)

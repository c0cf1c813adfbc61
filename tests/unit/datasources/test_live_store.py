"""A store as instances answer for it: pages, keys, and who does not answer."""

import json
from urllib.parse import parse_qsl

import pyarrow as pa
import pytest
from tests.ports import own_port
from tests.waiting import AVOIDED, within

from sparkrelay.datasources.live_store import Instances, LiveStore, find_store
from sparkrelay.errors import InvalidStateStoreException, StateStoreNotAvailableException, UnknownStateStoreException
from sparkrelay.observe.http_server import HttpServer
from sparkrelay.protocol import HostInfo
from sparkrelay.runtime.queries.peers import FOLLOWING_HEADER, as_place, as_text

SCHEMA = pa.schema({"user": pa.string(), "n": pa.int64()})
PAGE = 3


class Answering:
    """An instance with ten rows in each of two partitions; says 503 the first ``busy`` times."""

    def __init__(self, busy=0):
        self.busy = busy
        self.said = {"repartitioned": True}
        self.asked = []

    def __call__(self, environ, start_response):
        path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
        self.asked.append((path, query))
        if environ.get("HTTP_AUTHORIZATION") != "Bearer secret":
            start_response("401 Unauthorized", [])
            return [b'{"error": "queries.token"}']
        if self.busy:
            self.busy -= 1
            start_response("503 Service Unavailable", [])
            return [b'{"error": "it moves"}']
        if path == "/stores":
            start_response("200 OK", [])
            listed = {"store": "counts", "key": ["user"], "window": None, "partitions": 2, **self.said}
            return [json.dumps(listed).encode() + b"\n"]
        if path.startswith("/stores/counts/"):
            return self._rows(start_response, [row for row in rows(0) + rows(1) if path.endswith("/" + row["user"])])
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        if parameters.get("limit") == "0":
            return self._rows(start_response, [])
        after = int(as_place(parameters["after"]) or b"0")
        some = rows(int(parameters["partition"]))[after : after + PAGE]
        return self._rows(start_response, some, after + PAGE if after + PAGE < 10 else None)

    def _rows(self, start_response, some, following=None):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_batch(pa.RecordBatch.from_pylist(some, SCHEMA))
        more = [] if following is None else [(FOLLOWING_HEADER, as_text(b"%d" % following))]
        start_response("200 OK", more)
        return [sink.getvalue().to_pybytes()]


def rows(partition):
    return [{"user": f"user-{partition}-{number}", "n": number} for number in range(10)]


@pytest.fixture
def application():
    return Answering()


@pytest.fixture
def server(application):
    with HttpServer(application, host="127.0.0.1", port=0, name="test") as found:
        yield HostInfo("127.0.0.1", found.port)


def test_all_rows_come_page_by_page(server):
    store = find_store(Instances((server,), "secret", 30.0), "counts")
    assert (store.columns, store.keys, store.partitions) == (SCHEMA, ("user",), 2)
    for partition in range(2):
        batches = list(store.rows(partition))
        assert len(batches) == 4
        assert pa.Table.from_batches(batches).to_pylist() == rows(partition)


def test_a_key_is_asked_for_alone(server, application):
    store = find_store(Instances((server,), "secret", 30.0), "counts")
    application.asked.clear()
    assert store.row("user-1-3").to_pylist() == [{"user": "user-1-3", "n": 3}]
    assert store.row("nobody").num_rows == 0
    assert application.asked == [("/stores/counts/user-1-3", ""), ("/stores/counts/nobody", "")]


def test_the_next_instance_is_asked_where_one_is_gone(server):
    instances = Instances((HostInfo("127.0.0.1", own_port()), server), "secret", 30.0)
    assert sum(batch.num_rows for batch in find_store(instances, "counts").rows(0)) == 10


def test_who_cannot_answer_just_now_is_asked_again(server, application):
    application.busy = 2
    assert find_store(Instances((server,), "secret", 60.0), "counts").partitions == 2


def test_nobody_answers_for_long():
    instances = Instances((HostInfo("127.0.0.1", own_port()),), "", 0.2)
    with pytest.raises(StateStoreNotAvailableException, match="does not answer.*mode=changelog"):
        find_store(instances, "counts")


def test_a_refusal_is_said_at_once(server):
    with within():
        with pytest.raises(InvalidStateStoreException, match="401"):
            find_store(Instances((server,), "wrong", AVOIDED), "counts")
        with pytest.raises(UnknownStateStoreException, match="no store 'other' that can be read, but 'counts'"):
            find_store(Instances((server,), "secret", AVOIDED), "other")


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ({"repartitioned": True, "global": False}, ""),
        ({"repartitioned": False, "global": True}, ""),
        ({"repartitioned": False, "global": False}, "partition=0%2C1"),
        ({"global": False}, "partition=0%2C1"),
    ],
)
def test_a_key_is_asked_of_every_partition_where_producers_may_put_it_anywhere(server, application, said, question):
    """A producer of a user's topic may have another partitioner; and an older instance says nothing of it."""
    application.said = said
    found = find_store(Instances((server,), "secret", 30.0), "counts")
    application.asked.clear()
    assert found.row("user-0-1").num_rows == 1
    assert application.asked == [("/stores/counts/user-0-1", question)]


def test_keys_that_are_named_twice_have_one_row(server):
    found = find_store(Instances((server,), "secret", 30.0), "counts")
    rows_of = list(found.rows_of(["user-0-1", "nobody", "user-1-2", "user-0-1"]))
    assert pa.Table.from_batches(rows_of).column("user").to_pylist() == ["user-0-1", "user-1-2"]


def test_one_that_goes_round_in_a_circle_is_noticed():
    def application(environ, start_response):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA):
            pass
        start_response("200 OK", [(FOLLOWING_HEADER, as_text(b"user-1"))])
        return [sink.getvalue().to_pybytes()]

    with HttpServer(application, host="127.0.0.1", port=0, name="test") as server:
        instances = Instances((HostInfo("127.0.0.1", server.port),), "", 30.0)
        made = LiveStore(instances, "counts", SCHEMA, ("user",), 1, keyed=True)
        with pytest.raises(InvalidStateStoreException, match="the page after b'user-1' starts at b'user-1'"):
            list(made.rows(0))

"""Asking other instances: connections that are kept, and what a peer may do to us."""

import json
import threading

import pyarrow as pa
import pytest
from tests.ports import own_port
from tests.speaker import speaker
from tests.waiting import LONG, wait_until

from sparkrelay.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    StateStoreNotAvailableException,
    UnknownStateStoreException,
)
from sparkrelay.observe.http_server import HttpServer
from sparkrelay.protocol import HostInfo
from sparkrelay.runtime.queries import peers as peers_module
from sparkrelay.runtime.queries.peers import ANSWER_HEADER, Peers

SCHEMA = pa.schema({"user": pa.string(), "n": pa.int64()})
ROWS = pa.record_batch({"user": ["ada"], "n": [3]})
OK = b"HTTP/1.1 200 OK\r\n"


def arrow(rows=ROWS):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def peers():
    found = Peers("me:1", "secret", 30.0)
    yield found
    found.close()


class Answering:
    """A peer that counts its connections by the threads that serve them."""

    def __init__(self, status="200 OK", body=None):
        self.asked = []
        self._status = status
        self._body = arrow() if body is None else body

    def __call__(self, environ, start_response):
        self.asked.append((environ["PATH_INFO"], environ["QUERY_STRING"], environ["HTTP_AUTHORIZATION"]))
        start_response(self._status, [(ANSWER_HEADER, json.dumps([{"task": "0_1"}]))])
        return [self._body]


def serving(application):
    return HttpServer(application, host="127.0.0.1", port=0, name="peer")


def ask(peers, port, **more):
    return peers.ask(HostInfo("127.0.0.1", port), "a store", "ad/a", {"stale": "true", **more}, SCHEMA)


def test_an_answer_is_rows_and_where_their_tasks_stand(peers):
    application = Answering()
    with serving(application) as server:
        found = ask(peers, server.port)
    assert found.rows.equals(ROWS)
    assert (found.tasks, found.truncated) == ([{"task": "0_1"}], False)
    assert application.asked == [("/stores/a store/ad/a", "stale=true", "Bearer secret")]


def test_one_connection_serves_question_after_question(peers):
    with serving(Answering()) as server:
        for _ in range(20):
            ask(peers, server.port)
        assert len(server._open) == 1


def test_a_connection_that_was_closed_meanwhile_is_made_again(peers):
    port = own_port()
    with HttpServer(Answering(), host="127.0.0.1", port=port, name="peer"):
        ask(peers, port)
    with HttpServer(Answering(), host="127.0.0.1", port=port, name="peer"):
        assert ask(peers, port).rows.equals(ROWS)


def test_nothing_is_kept_once_it_is_closed(peers):
    with serving(Answering()) as server:
        ask(peers, server.port)
        peers.close()
        ask(peers, server.port)
        assert not any(peers._kept.values())


def test_connections_to_who_has_left_are_closed(peers):
    with serving(Answering()) as stays, serving(Answering()) as left:
        for server in (stays, left):
            ask(peers, server.port)
        peers.keep_only({HostInfo("127.0.0.1", stays.port)})
        wait_until(lambda: not left._open, "the connection is still open")
        assert list(peers._kept) == [HostInfo("127.0.0.1", stays.port)]
        assert len(stays._open) == 1
        assert ask(peers, left.port).rows.equals(ROWS)


def test_threads_ask_at_a_time(peers):
    with serving(Answering()) as server:
        threads = [
            threading.Thread(target=lambda: [ask(peers, server.port) for _ in range(20)], daemon=True)
            for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert len(peers._kept[HostInfo("127.0.0.1", server.port)]) <= 8


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("421 Misdirected Request", InvalidStateStorePartitionException),
        ("503 Service Unavailable", StateStoreNotAvailableException),
        ("404 Not Found", UnknownStateStoreException),
        ("401 Unauthorized", InvalidStateStoreException),
    ],
)
def test_a_refusal_is_an_error_that_names_the_host(peers, status, error):
    with serving(Answering(status, b'{"error": "not here"}')) as server:
        with pytest.raises(error, match=f"127.0.0.1:{server.port}.*not here"):
            ask(peers, server.port)
        # The connection is as good as before.
        with pytest.raises(error):
            ask(peers, server.port)
        assert len(server._open) == 1


@pytest.mark.parametrize(
    ("says", "again"),
    [
        ([OK], (b"X: y\r\n", 0.01)),
        ([OK + b"Content-Length: 9999\r\n\r\n"], (b" ", 0.01)),
        ([], (b"", 0.05)),
        ([OK + b"\r\n"], (b" ", 0.01)),
    ],
)
def test_one_that_hangs_or_drips_is_given_up_in_time(says, again):
    with speaker(*says, again=again) as address, pytest.raises(StateStoreNotAvailableException, match="does not"):
        ask(Peers("me:1", "secret", 0.5), int(address.rpartition(":")[2]))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"no Arrow", "does not answer"),
        (arrow(pa.record_batch({"other": [1]})), "other columns"),
        (arrow()[:60], "does not answer"),
    ],
)
def test_an_answer_that_is_none_is_refused(peers, body, why):
    with serving(Answering(body=body)) as server, pytest.raises(StateStoreNotAvailableException, match=why):
        ask(peers, server.port)


def test_one_that_never_stops_is_cut_off(monkeypatch, peers):
    monkeypatch.setattr(peers_module, "_LONGEST_ANSWER", 1 << 20)
    with (
        speaker(OK + b"\r\n", again=(b"[" * 65_536, 0)) as address,
        pytest.raises(InvalidStateStoreException, match="exceeds 1 MiB"),
    ):
        ask(peers, int(address.rpartition(":")[2]))


def test_nobody_there_is_said(peers):
    with serving(Answering()) as server:
        port = server.port
    with pytest.raises(StateStoreNotAvailableException, match="does not answer.*[Rr]efused"):
        ask(peers, port)

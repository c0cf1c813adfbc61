"""The server's bounds: how many connections, how long, and that nothing of it is left."""

import contextlib
import re
import socket
import threading
import time

import pytest
from tests.waiting import LONG, wait_until

from sparkrelay.observe import http_server
from sparkrelay.observe.http_server import HttpServer


def hello(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]


def connected(server, source="127.0.0.1"):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=LONG, source_address=(source, 0))
    connection.settimeout(30)
    return connection


def answer(connection):
    """Return everything that comes until it is closed."""
    found = b""
    try:
        while more := connection.recv(65536):
            found += more
    except ConnectionError:
        pass
    return found


class Held:
    """An application whose answers wait until they may go."""

    def __init__(self):
        self.under_way, self.go = threading.Semaphore(0), threading.Event()

    def __call__(self, environ, start_response):
        if environ["PATH_INFO"] == "/slow":
            self.under_way.release()
            self.go.wait(LONG)
        return hello(environ, start_response)


def test_answers_under_way_are_not_given_up_for_more_connections():
    held = Held()
    with HttpServer(held, host="127.0.0.1", port=0, name="test", most_connections=4) as server:
        # One address may have three of the four.
        slow = [connected(server) for _ in range(3)]
        for connection in slow:
            connection.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
            assert held.under_way.acquire(timeout=LONG)
        with connected(server) as fourth:
            assert answer(fourth) == b""
        with connected(server, "127.0.0.2") as other:
            other.sendall(b"GET /other HTTP/1.0\r\n\r\n")
            assert answer(other).endswith(b"/other")
        held.go.set()
        for connection in slow:
            assert answer(connection).endswith(b"/slow")
            connection.close()
        wait_until(lambda: not server._open, "they are not forgotten")
        with connected(server) as fourth:
            fourth.sendall(b"GET /y HTTP/1.0\r\n\r\n")
            assert answer(fourth).endswith(b"/y")


@pytest.mark.parametrize("probe", ["127.0.0.1", "127.0.0.2"])
def test_who_drips_or_is_silent_takes_nobodys_place(probe):
    """64 dripping connections took `/health` away, and pods were restarted by it."""
    with HttpServer(hello, host="127.0.0.1", port=0, name="test", most_connections=8) as server:
        hosts = ["127.0.0.1"] * 6 + ["127.0.0.3"] * 6
        silent = [connected(server, host) for host in hosts]
        for connection in silent[::2]:
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /")
        for _ in range(20):
            with connected(server, probe) as connection:
                connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                assert answer(connection).endswith(b"/health")
        assert len(server._open) <= 8
        for connection in silent:
            connection.close()


def test_the_place_is_that_of_who_has_waited_longest():
    with HttpServer(hello, host="127.0.0.1", port=0, name="test", most_connections=4) as server:
        connections = []
        for number in (1, 2, 3):
            connections.append(connected(server))
            wait_until(lambda n=number: len(server._open) == n, "it is not seen")
        first, second, third = connections
        with connected(server) as fourth:
            fourth.sendall(b"GET /b HTTP/1.0\r\n\r\n")
            assert answer(fourth).endswith(b"/b")
        assert answer(first) == b""
        for connection in (third, second):
            connection.sendall(b"GET /c HTTP/1.0\r\n\r\n")
            assert answer(connection).endswith(b"/c")
        for connection in (first, second, third):
            connection.close()


def test_a_connection_waits_from_the_moment_it_was_accepted():
    """Not from when its thread gets a core: those that came later may get theirs first."""
    visit, seen = http_server._Visit("127.0.0.1"), []
    visit.since = accepted = 1.0

    class Connection:
        setsockopt = settimeout = print

        def recv(self, size):
            seen.append(visit.since)
            return b""

    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server:
        server._serve(Connection(), visit)
    assert seen == [accepted]


def test_who_drips_bytes_is_closed_in_the_end(monkeypatch):
    monkeypatch.setattr(http_server, "_LONGEST_ARRIVAL_S", 0.5)
    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server, connected(server) as connection:
        over = threading.Event()

        def drip():
            while not over.wait(0.02):
                try:
                    connection.sendall(b"G")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            assert b"200" not in answer(connection)
        finally:
            over.set()
            dripping.join()


@pytest.mark.parametrize("request_line", [b"GET /" + b"x" * 140_000, b"\x00\xff", b"GET"])
def test_nonsense_is_answered_or_closed(request_line):
    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server:
        with connected(server) as connection:
            connection.sendall(request_line + b"\r\n\r\n")
            assert b"200" not in answer(connection)
        with connected(server) as connection:
            connection.sendall(b"GET /z HTTP/1.0\r\n\r\n")
            assert answer(connection).endswith(b"/z")


def test_a_connection_may_ask_again():
    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server, connected(server) as connection:
        for path in (b"/a", b"/b"):
            connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            found = b""
            while not found.endswith(b"\r\n\r\n" + path):
                found += connection.recv(65536)
            assert b"Content-Length: 2\r\n" in found
            assert b"Connection: close" not in found
        connection.sendall(b"GET /c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer(connection).endswith(b"Connection: close\r\n\r\n/c")


def test_requests_that_come_at_once_are_answered_in_their_order():
    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server, connected(server) as connection:
        more = b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(50))
        connection.sendall(more + b"GET /last HTTP/1.0\r\n\r\n")
        assert re.findall(rb"\r\n\r\n/(\w+?)(?=HTTP|$)", answer(connection)) == [
            *(b"%d" % number for number in range(50)),
            b"last",
        ]


def test_what_comes_behind_a_body_is_not_read_as_a_request():
    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server, connected(server) as connection:
        connection.sendall(b"POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\n\r\n")
        found = answer(connection)
        assert found.count(b"HTTP/1.1 200 OK") == 1
        assert found.endswith(b"/a")


def test_an_answer_without_a_length_ends_with_the_connection():
    closed = []

    class Pieces:
        def __iter__(self):
            yield b"one, "
            yield b"two"

        def close(self):
            closed.append(True)

    def application(environ, start_response):
        start_response("200 OK", [])
        return Pieces()

    with HttpServer(application, host="127.0.0.1", port=0, name="test") as server, connected(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert answer(connection).endswith(b"Connection: close\r\n\r\none, two")
        wait_until(lambda: closed, "it is not closed")


@pytest.mark.parametrize("headers", [[("X", "a\r\nSet-Cookie: b")], [("X", "a\nb")]])
def test_an_application_that_fails_is_answered_for(headers, caplog):
    def application(environ, start_response):
        if environ["PATH_INFO"] == "/raise":
            raise RuntimeError("oops")
        start_response("200 OK", headers)
        return [b"body"]

    with HttpServer(application, host="127.0.0.1", port=0, name="test") as server:
        for path in (b"/raise", b"/headers"):
            with connected(server) as connection:
                connection.sendall(b"GET " + path + b" HTTP/1.1\r\n\r\n")
                found = answer(connection)
                assert found.startswith(b"HTTP/1.1 500 ")
                assert b"Cookie" not in found
    assert "/raise" in caplog.text


def test_head_has_the_headers_alone():
    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server, connected(server) as connection:
        connection.sendall(b"HEAD /abc HTTP/1.1\r\nConnection: close\r\n\r\n")
        found = answer(connection)
        assert b"Content-Length: 4\r\n" in found
        assert found.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("http://h:1/stores/s?from=1&to=a%20b#f", "/stores/s", "from=1&to=a%20b"),
        ("http://h/stores", "/stores", ""),
        ("http://h?x=1", "/", "x=1"),
        ("http://h", "/", ""),
    ],
)
def test_a_target_with_the_host_in_front_is_taken_whole(target, path, query):
    requests = http_server._Requests()
    assert requests.feed(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode()) is None
    assert (requests.whole[0].path, requests.whole[0].query) == (path, query)


def test_the_environment_is_that_of_the_request():
    seen = {}

    def application(environ, start_response):
        seen.update(environ)
        start_response("200 OK", [])
        return []

    with HttpServer(application, host="127.0.0.1", port=0, name="test") as server, connected(server) as connection:
        connection.sendall(b"GET /a%20b/%C3%A4?x=%20#f HTTP/1.1\r\nAccept: a\r\nAccept: b\r\nX-Y: z\r\n")
        connection.sendall(b"Connection: close\r\n\r\n")
        assert answer(connection).startswith(b"HTTP/1.1 200 OK")
    assert (seen["REQUEST_METHOD"], seen["QUERY_STRING"]) == ("GET", "x=%20")
    assert seen["PATH_INFO"].encode("latin-1").decode() == "/a b/ä"
    assert (seen["HTTP_ACCEPT"], seen["HTTP_X_Y"]) == ("a,b", "z")


def test_closing_closes_who_is_silent_and_leaves_no_thread():
    before = set(threading.enumerate())
    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server:
        connections = [connected(server) for _ in range(20)]
        wait_until(lambda: len(server._open) == 20, "they are not seen")
    for connection in connections:
        assert answer(connection) == b""
        connection.close()
    wait_until(lambda: set(threading.enumerate()) <= before, "threads are left")
    with pytest.raises(ConnectionRefusedError):
        connected(server)


def test_threads_of_a_burst_end_again():
    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server:
        connections = [connected(server) for _ in range(40)]
        wait_until(lambda: len(server._open) == 40, "they are not seen")
        for connection in connections:
            connection.close()
        wait_until(lambda: len(server._threads) <= 9, "they wait for nothing")


def test_without_more_threads_connections_wait_for_each_other(monkeypatch, caplog):
    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server:
        with monkeypatch.context() as patched:

            def refuse(_):
                raise RuntimeError("can't start new thread")

            patched.setattr(threading.Thread, "start", refuse)
            for path in (b"/a", b"/b"):
                with connected(server) as connection:
                    connection.sendall(b"GET " + path + b" HTTP/1.0\r\n\r\n")
                    assert answer(connection).endswith(path)
        with connected(server), connected(server) as connection:
            connection.sendall(b"GET /c HTTP/1.0\r\n\r\n")
            assert answer(connection).endswith(b"/c")
    assert "can't start new thread" in caplog.text


def test_an_offer_of_another_protocol_is_left_alone():
    """Java's HTTP client offers HTTP/2 with its first request."""
    offer = (
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAA\r\n"
    )
    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server, connected(server) as connection:
        connection.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n" + offer + b"\r\n")
        found = answer(connection)
        assert found.startswith(b"HTTP/1.1 200 OK\r\n")
        assert found.endswith(b"Connection: close\r\n\r\n/a")


def raising(environ, start_response):
    raise RuntimeError("oops")


@pytest.mark.parametrize("request_", [b"\x00\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])
def test_who_takes_no_answer_is_not_waited_for_to_say_what_is_wrong(request_, monkeypatch):
    monkeypatch.setattr(http_server, "_LONGEST_WAIT_S", 0.3)
    monkeypatch.setattr(http_server, "_LONGEST_REQUEST_S", 0.3)
    with HttpServer(raising, host="127.0.0.1", port=0, name="test") as server:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            client = socket.create_connection(listening.getsockname())
            connection, _ = listening.accept()
        with client, connection:
            connection.setblocking(False)
            taken = 1
            while taken:
                # What the kernel passes on meanwhile leaves room again.
                time.sleep(0.05)
                taken = 0
                with contextlib.suppress(BlockingIOError):
                    while True:
                        taken += connection.send(b"x" * 4096)
            connection.setblocking(True)
            client.sendall(request_)

            def serve():
                with contextlib.suppress(TimeoutError):
                    server._serve(connection, http_server._Visit("127.0.0.1"))

            serving = threading.Thread(target=serve, daemon=True)
            serving.start()
            serving.join(LONG)
            assert not serving.is_alive()

"""The server's bounds: how many connections, how long, and that nothing of it is left."""

import socket
import threading

import pytest
from tests.waiting import wait_until

from sparkrelay.observe import http_server
from sparkrelay.observe.http_server import HttpServer


def hello(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]


def connected(server):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
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


def test_more_connections_than_allowed_are_closed_at_once():
    with HttpServer(hello, host="127.0.0.1", port=0, name="test", most_connections=2) as server:
        first, second = connected(server), connected(server)
        wait_until(lambda: len(server._server._open) == 2, "they are not seen")
        with connected(server) as third:
            assert answer(third) == b""
        for connection in (first, second):
            connection.sendall(b"GET /x HTTP/1.0\r\n\r\n")
            assert answer(connection).endswith(b"/x")
            connection.close()
        wait_until(lambda: not server._server._open, "they are not forgotten")
        with connected(server) as fourth:
            fourth.sendall(b"GET /y HTTP/1.0\r\n\r\n")
            assert answer(fourth).endswith(b"/y")


def test_who_drips_bytes_is_closed_in_the_end(monkeypatch):
    monkeypatch.setattr(http_server, "_LONGEST_OPEN_S", 0.5)
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


@pytest.mark.parametrize("request_line", [b"GET /" + b"x" * 70_000, b"\x00\xff", b"GET"])
def test_nonsense_is_answered_or_closed(request_line):
    with HttpServer(hello, host="127.0.0.1", port=0, name="test") as server:
        with connected(server) as connection:
            connection.sendall(request_line + b"\r\n\r\n")
            assert b"200" not in answer(connection)
        with connected(server) as connection:
            connection.sendall(b"GET /z HTTP/1.0\r\n\r\n")
            assert answer(connection).endswith(b"/z")

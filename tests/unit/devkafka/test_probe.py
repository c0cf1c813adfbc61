import socket
import struct
import threading
from contextlib import contextmanager

import pytest
from tests.ports import own_port
from tests.waiting import LONG

from sparkrelay.devkafka.probe import answers

GOOD = struct.pack(">ii", 0x5EA7, 1) + struct.pack(">ih", 1, 9) + b"127.0.0.1" + struct.pack(">ihii", 9092, -1, 1, 0)


def framed(body):
    return struct.pack(">i", len(body)) + body


@contextmanager
def server(reply, *, read=True):
    """Serve one connection: read a request, send the reply, close; with None stay silent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve():
            connection, _ = listener.accept()
            with connection:
                if read:
                    (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                    requests.append(connection.recv(length, socket.MSG_WAITALL))
                if reply is None:
                    done.wait(LONG)
                else:
                    connection.sendall(reply)

        requests = []
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], requests
        done.set()
        thread.join()


def test_a_broker_that_lists_itself_answers():
    with server(framed(GOOD)) as (port, requests):
        assert answers("127.0.0.1", port, timeout_s=LONG)
    key, version, _, client_length = struct.unpack(">hhih", requests[0][:10])
    assert (key, version) == (3, 1)
    assert len(requests[0]) == 10 + client_length + 4


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(b"", id="closes"),
        pytest.param(framed(GOOD)[:7], id="closes in the middle"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
        pytest.param(struct.pack(">i", -1), id="negative length"),
        pytest.param(framed(struct.pack(">ii", 1, 1) + bytes(20)), id="another correlation id"),
        pytest.param(framed(struct.pack(">iii", 0x5EA7, 0, -1)), id="no broker yet"),
    ],
)
def test_anything_else_does_not(reply):
    with server(reply) as (port, _):
        assert not answers("127.0.0.1", port, timeout_s=LONG)


def test_silence_does_not():
    with server(None) as (port, _):
        assert not answers("127.0.0.1", port, timeout_s=0.1)


def test_nobody_there_does_not():
    assert not answers("127.0.0.1", own_port(), timeout_s=1)

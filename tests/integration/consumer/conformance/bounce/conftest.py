"""A broker of these tests' own, which they kill, and a proxy in front of it, which loses what they want lost.

Here `kafka` is that broker, so `make_topic`, `produce`, `make_consumer` and `members` use it too.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

import pytest

#: Members that a group may have, under either protocol.
MOST_MEMBERS = 3


class Proxy:
    """Forwards Kafka's requests to a broker, up to one whose API key is in `lost`.

    From then on that connection is a black hole: what comes is read and forgotten, and nobody ever answers. `seen` has
    the API keys of all requests, `frames` the requests themselves.
    """

    def __init__(self):
        self.target = None
        self.lost = frozenset()
        self.frames = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def seen(self):
        return [_api_key(frame) for frame in list(self.frames)]

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    host, port = self.target.split(":")
                    broker = socket.create_connection((host, int(port)), 5)
                except OSError:
                    client.close()
                    continue
                threading.Thread(target=self._requests, args=(client, broker), daemon=True).start()
                threading.Thread(target=self._answers, args=(broker, client), daemon=True).start()

    def _requests(self, client, broker):
        with contextlib.suppress(OSError), contextlib.closing(client), contextlib.closing(broker):
            stream, hole = client.makefile("rb"), False
            while len(size := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", size)[0])
                self.frames.append(frame)
                hole = hole or _api_key(frame) in self.lost
                if not hole:
                    broker.sendall(size + frame)
        _hang_up(broker)

    def _answers(self, broker, client):
        with contextlib.suppress(OSError):
            while chunk := broker.recv(65536):
                client.sendall(chunk)
        _hang_up(client)

    def close(self):
        self._listener.close()


def _api_key(frame):
    return struct.unpack_from(">h", frame)[0]


def _hang_up(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class ProxiedKafka:
    """`kill()`, `start()` and `proxy` of the broker; `bootstrap_servers` is the proxy's address."""

    def __init__(self, broker, proxy):
        self.broker, self.proxy = broker, proxy
        self.bootstrap_servers = proxy.address

    def start(self):
        self.broker.start()
        self.proxy.target = self.broker.bootstrap_servers

    def kill(self):
        self.broker.kill()

    def bounce(self):
        """Kill the broker and start it again, in a thread that is returned."""

        def run():
            self.kill()
            self.start()

        thread = threading.Thread(target=run)
        thread.start()
        return thread


@pytest.fixture(scope="session")
def proxied_kafka():
    from sparkrelay.devkafka import DevKafka

    proxy = Proxy()
    settings = {
        "advertised.listeners": f"PLAINTEXT://{proxy.address}",
        "group.max.size": str(MOST_MEMBERS),
        "group.consumer.max.size": str(MOST_MEMBERS),
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": "200",
        # Longer than a restart of the broker takes.
        "group.consumer.session.timeout.ms": "45000",
    }
    with DevKafka(server_properties=settings) as broker:
        own = ProxiedKafka(broker, proxy)
        own.start()
        yield own
        proxy.close()


@pytest.fixture
def kafka(proxied_kafka):
    """The broker of these tests, running and with nothing lost on the way."""
    proxied_kafka.proxy.lost = frozenset()
    proxied_kafka.proxy.frames.clear()
    proxied_kafka.start()
    return proxied_kafka

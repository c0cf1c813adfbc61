"""A proxy in front of a real broker that can do everything a bad network does, and readers that keep accounts."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
import struct
import threading
import time
from collections import Counter

import pytest
from tests.ports import own_port
from tests.waiting import AVOIDED, LONG, wait_until

from sparkrelay.consumer import Consumer
from sparkrelay.devkafka import DevKafka, Listener
from sparkrelay.types import TopicPartition

_numbers = itertools.count(1)

FETCH, METADATA, COMMIT, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, MODERN_HEARTBEAT = 1, 3, 8, 10, 11, 12, 13, 14, 68
RESET = object()
#: The broker decides it for the `consumer` protocol; longer than any fault but the one that wants to outlast it.
MODERN_SESSION_S = 15


class Link:
    """One connection through the proxy: two threads that hand on frame by frame."""

    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.asked = {}
        self.dead = False
        self.threads = [
            threading.Thread(target=self._pump, args=(client, server, self._request), daemon=True),
            threading.Thread(target=self._pump, args=(server, client, self._response), daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    def _pump(self, source, sink, handle):
        try:
            stream = source.makefile("rb")
            while len(head := stream.read(4)) == 4:
                (size,) = struct.unpack(">i", head)
                body = stream.read(size)
                if len(body) < size or not handle(head + body, sink):
                    break
        except (OSError, ValueError):
            pass
        finally:
            self.close()

    def _request(self, frame, sink):
        api, version, correlation = struct.unpack_from(">hhi", frame, 4)
        with self.proxy.lock:
            self.proxy.requests[api] += 1
        self.asked[correlation] = api, version
        if self.dead or self.proxy.swallows(api):
            return True
        sink.sendall(frame)
        return True

    def _response(self, frame, sink):
        (correlation,) = struct.unpack_from(">i", frame, 4)
        api, version = self.asked.pop(correlation)
        self.proxy.wait_for(api)
        if self.dead or self.proxy.mute:
            return True
        answer = self.proxy.on_response(api, version, frame)
        if answer is RESET:
            self.reset()
            return False
        for piece in answer if isinstance(answer, list) else [answer]:
            if piece is RESET:
                self.reset()
                return False
            sink.sendall(piece)
        return True

    def mute(self):
        """Swallow everything from now on."""
        self.dead = True

    def reset(self):
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # A thread that reads keeps the file open, so that only shutdown ends it; the reset is for the client.
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.client.close()
        self.server.close()

    def close(self):
        for sock in (self.client, self.server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


class Proxy:
    """Stands between clients and the broker's proxied listener. `calm()` makes it an ordinary one again."""

    def __init__(self, target):
        self.target = target
        self.lock = threading.Lock()
        self.links = []
        self.requests = Counter()
        self.calm()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    #: What `on_response` returns, or has in a list, to break the connection there.
    RESET = RESET

    def calm(self):
        """Hand everything on."""
        self.refusing = False  # new connections are closed at once
        self.mute = False  # answers are dropped
        self.deaf = frozenset()  # requests of these kinds are dropped; True for all
        self.delays = {}  # seconds by kind of answer
        self.on_response = lambda api, version, frame: frame

    def swallows(self, api):
        return self.deaf is True or api in (self.deaf or ())

    def wait_for(self, api):
        if delay := self.delays.get(api, 0):
            time.sleep(delay)

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                if self.refusing:
                    raise ConnectionRefusedError
                server = socket.create_connection(("127.0.0.1", self.target), timeout=LONG)
                server.settimeout(None)
            except OSError:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
                continue
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.links.append(Link(self, client, server))

    def cut(self):
        """Reset every connection."""
        with self.lock:
            links, self.links = self.links, []
        for link in links:
            link.reset()

    def close(self):
        self.calm()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()
        self.thread.join(LONG)


class Bench:
    """The broker of these tests, and the proxy before it."""

    def __init__(self):
        inner = own_port()
        self.proxy = Proxy(inner)
        self.broker = DevKafka(
            server_properties={
                "group.consumer.min.session.timeout.ms": "3000",
                "group.consumer.session.timeout.ms": f"{MODERN_SESSION_S * 1000}",
                "group.consumer.min.heartbeat.interval.ms": "200",
                "group.consumer.heartbeat.interval.ms": "300",
            },
            listeners=[Listener("PROXIED", inner, host="kafka.localhost", advertised_port=self.proxy.port)],
        )
        self.bootstrap_servers = f"kafka.localhost:{self.proxy.port}"


@pytest.fixture(scope="session")
def bench():
    bench = Bench()
    with bench.broker:
        yield bench
    bench.proxy.close()


@pytest.fixture(scope="session")
def kafka(bench):
    """What the common fixtures write and administer through: the plain door, past the proxy."""
    return bench.broker


@pytest.fixture
def broker(bench):
    yield bench.broker
    if bench.broker.running:
        bench.broker.resume()
    bench.broker.start()


class Names:
    """Host names: `kafka.localhost` is this machine, unless it is `lost`, or the name server is `slow`."""

    def __init__(self):
        self.lost, self.slow = False, threading.Event()
        self.slow.set()
        self.real = socket.getaddrinfo

    def look_up(self, host, *args, **kwargs):
        if host != "kafka.localhost":
            return self.real(host, *args, **kwargs)
        assert not threading.current_thread().name.startswith("consumer-network"), "the network thread must not block"
        self.slow.wait(AVOIDED)
        if self.lost:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.real("127.0.0.1", *args, **kwargs)


@pytest.fixture(autouse=True)
def names(monkeypatch):
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
    yield names
    names.slow.set()


@pytest.fixture
def proxy(bench):
    bench.proxy.calm()
    bench.proxy.requests.clear()
    yield bench.proxy
    bench.proxy.calm()


def ours():
    prefixes = ("consumer-network", "oauth-token", "look-up")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(prefixes)]


@pytest.fixture
def make_consumer(bench):
    """`make_consumer(topic, kind, **config)`: one that reads a whole topic: `assigned`, `classic` or `consumer`.

    Sessions last longer than any fault: who is expelled goes on from what it has committed, and mostly that is nothing.
    When all are closed, none of their threads is left.
    """
    made = []

    def make(topic, kind="assigned", *, partitions=1, callbacks=None, **config):
        settings = {
            "bootstrap.servers": bench.bootstrap_servers,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "request.timeout.ms": 1500,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.max.ms": 200,
            "fetch.max.wait.ms": 200,
            "default.api.timeout.ms": 30_000,
            "group.id": f"group-{topic}-{kind}",
        }
        if kind == "classic":
            settings |= {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 300}
        if kind == "consumer":
            settings |= {"group.protocol": "consumer"}
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        made.append(Consumer(settings))
        if kind == "assigned":
            made[-1].assign([TopicPartition(topic, number) for number in range(partitions)])
        else:
            made[-1].subscribe([topic], **callbacks or {})
        return made[-1]

    yield make
    for consumer in made:
        consumer.close(2)
    wait_until(lambda: not ours(), lambda: f"threads are left: {ours()}")


class Reader:
    """Polls in a thread of its own; keeps every record, and every error that `poll` raises."""

    def __init__(self, consumer, *, commit=False):
        self.consumer, self.commit = consumer, commit
        self.values, self.errors, self.polls = [], [], 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            try:
                table = self.consumer.poll(0.2)
                self.values += table["value"].to_pylist()
                self.polls += 1
                if self.commit and table.num_rows:
                    self.consumer.commit()
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.errors.append(error)

    def stop(self):
        self._stop.set()
        self._thread.join(LONG)
        assert not self._thread.is_alive(), "poll does not return"


@pytest.fixture
def reader():
    readers = []

    def start(consumer, **kwargs):
        readers.append(Reader(consumer, **kwargs))
        return readers[-1]

    yield start
    for one in readers:
        one.stop()


@pytest.fixture
def ledger(make_topic, produce, wait_until):
    """`ledger()`: a topic, what was written to it, and whether a reader has it all, once."""

    class Ledger:
        def __init__(self, partitions=1, **config):
            self.partitions = partitions
            self.topic = make_topic("faults", partitions, config or None)
            self.written = []

        def write(self, count, size=20):
            rows = [f"{len(self.written) + n:08d}".ljust(size, "x") for n in range(count)]
            # A broker in trouble may take a batch and lose the answer: a producer that only repeats writes it twice.
            numbered = [{"value": row, "partition": n % self.partitions} for n, row in enumerate(rows)]
            produce(self.topic, numbered, enable_idempotence=True)
            self.written += [row.encode() for row in rows]

        def wait_until_read(self, reader, timeout_s=LONG):
            wait_until(
                lambda: len(reader.values) >= len(self.written),
                lambda: f"not all is read: {reader.errors[-1:]}",
                timeout_s,
            )
            assert Counter(reader.values) == Counter(self.written), "lost or doubled"

    return Ledger


@pytest.fixture
def dice():
    seed = int(os.environ.get("FAULTS_SEED", "7"))
    return random.Random(seed)

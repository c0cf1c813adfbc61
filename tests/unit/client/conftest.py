"""A scripted client, and a broker made of a socket and a thread: enough to play every failure on purpose."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

import pytest
from tests.waiting import LONG

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient, Response
from sparkrelay.client.metadata import Metadata


class ScriptedClient:
    """Answers each request by `script(request, node)` at the next poll: a message, an error to fail with, or None.

    None leaves the request unanswered. Time stands still except in `poll`, which jumps over every wait.
    """

    def __init__(self, script, config=None, leaders=None):
        self.script = script
        self.config = config or ClientConfig(bootstrap_servers="scripted:1")
        self.metadata = Metadata()
        self.leaders = dict(leaders or {})
        self.metadata.leader = self.leaders.get
        self.sent = []
        self.metadata_requests = []
        self._queue = []

    def send(self, request, *, node=None, lane="", timeout=None):
        response = Response(node)
        self.sent.append(request)
        self._queue.append((request, response))
        return response

    def request_metadata(self, topics):
        self.metadata_requests.append(topics)
        response = Response(None)
        self._queue.append((None, response))
        return response

    def poll(self, timeout):
        queue, self._queue = self._queue, []
        if not queue:
            time.sleep(min(timeout, 0.002))
        for request, response in queue:
            outcome = self.script(request, response.node) if request is not None else "metadata"
            if outcome is None:
                self._queue.append((request, response))
            elif isinstance(outcome, Exception):
                response.finish(None, outcome)
            else:
                response.finish(outcome, None)


@pytest.fixture
def scripted():
    return ScriptedClient


class TinyBroker:
    """Listens on a port and hands each request frame to `answer(api, version, correlation, body)`.

    That returns response bytes after the correlation id, or None to say nothing, or "close" to hang up, or
    ("raw", bytes) for bytes as they are, or ("last", bytes) for an answer and the end of the connection.
    ApiVersions and Metadata are answered by itself.
    """

    def __init__(self, answer=None, versions=None, tls=None):
        self.answer = answer or (lambda *_: None)
        self.versions = versions or {0: (3, 12), 3: (0, 12), 18: (0, 3), 1: (4, 12)}
        self.tls = tls
        self.requests = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock):
        if self.tls is not None:
            try:
                sock = self.tls.wrap_socket(sock, server_side=True)
            except OSError:
                return
            self._sockets.append(sock)
        stream = sock.makefile("rb")
        try:
            while head := stream.read(4):
                (size,) = struct.unpack(">i", head)
                frame = stream.read(size)
                api, version, correlation = struct.unpack_from(">hhi", frame)
                self.requests.append((api, version))
                outcome = self._respond(api, version, correlation, frame)
                if outcome == "close":
                    break
                last = isinstance(outcome, tuple) and outcome[0] == "last"
                if last:
                    outcome = outcome[1]
                if isinstance(outcome, tuple):
                    sock.sendall(outcome[1])
                elif outcome is not None:
                    body = struct.pack(">i", correlation) + outcome
                    sock.sendall(struct.pack(">i", len(body)) + body)
                if last:
                    break
        except OSError:
            pass
        finally:
            stream.close()
            sock.close()

    def _respond(self, api, version, correlation, frame):
        from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

        custom = self.answer(api, version, correlation, frame)
        if custom is not None:
            return custom
        if api == 18:
            message = ApiVersionsResponse(
                error_code=0,
                api_keys=[ApiVersionsResponse.ApiVersion(key, low, high) for key, (low, high) in self.versions.items()],
                throttle_time_ms=0,
                supported_features=[],
                finalized_features=[],
                version=version,
            )
            return bytes(message.encode(version=version))
        if api == 3:
            message = MetadataResponse(
                throttle_time_ms=0,
                brokers=[MetadataResponse.MetadataResponseBroker(1, "127.0.0.1", self.port, None)],
                cluster_id="tiny",
                controller_id=1,
                topics=[],
                version=version,
            )
            return b"\0" + bytes(message.encode(version=version))
        return None

    def drop_connections(self):
        for sock in self._sockets:
            with_shutdown(sock)
        self._sockets.clear()

    def close(self):
        with_shutdown(self._listener)
        # A connection that is just being accepted must not be missed below: its thread would wait for it for ever.
        self._threads[0].join(LONG)
        self._listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join(LONG)


def with_shutdown(sock):
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def tiny_broker():
    brokers = []

    def start(*args, **kwargs):
        brokers.append(TinyBroker(*args, **kwargs))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def make_client():
    clients = []

    def make(*ports, **settings):
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        clients.append(KafkaClient(ClientConfig(bootstrap_servers=servers, **settings)))
        return clients[-1]

    yield make
    for client in clients:
        client.close()

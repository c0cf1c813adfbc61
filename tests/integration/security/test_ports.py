"""The whole way of a consumer, an admin and a producer through every kind of secured port of a real broker."""

import json
import threading
import time
from base64 import urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def unsecured_token(user="alice", seconds=3600, **claims):
    """A token that nobody signed: Kafka's validator for development takes it."""

    def part(content):
        return urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': user, 'iat': now, 'exp': now + seconds} | claims)}."


def oauth(secured, callback=None, **settings):
    callback = callback or (lambda _: (unsecured_token(), time.time() + 3600))
    return secured.tls("LOGIN", security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", **settings) | {
        "oauth_cb": callback
    }


@pytest.fixture
def ways(secured):
    certificates = secured.certificates
    return {
        "client certificate": secured.tls(
            "MTLS", ssl_certificate_location=certificates.client, ssl_key_location=certificates.client_key
        ),
        "certificates as text": {
            "bootstrap.servers": f"localhost:{secured.ports['MTLS']}",
            "security.protocol": "ssl",
            "ssl.ca.pem": Path(certificates.ca).read_text(),
            "ssl.certificate.pem": Path(certificates.client).read_text(),
            "ssl.key.pem": Path(certificates.client_key).read_text(),
        },
        "PLAIN": secured.login("PLAIN"),
        "SCRAM-SHA-256": secured.login("SCRAM-SHA-256"),
        "SCRAM-SHA-512": secured.login("SCRAM-SHA-512"),
        "SCRAM, a name with comma and equals sign": secured.login("SCRAM-SHA-512", "bob,=x"),
        "SCRAM in the clear": secured.login("SCRAM-SHA-512", listener="CLEAR"),
        "OAUTHBEARER": oauth(secured),
        "name not checked": secured.tls("MISNAMED", ssl_endpoint_identification_algorithm="none"),
        "nothing checked": {
            "bootstrap.servers": f"localhost:{secured.ports['EXPIRED']}",
            "security.protocol": "SSL",
            "enable.ssl.certificate.verification": "false",
        },
    }


WAYS = [
    "client certificate",
    "certificates as text",
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "SCRAM, a name with comma and equals sign",
    "SCRAM in the clear",
    "OAUTHBEARER",
    "name not checked",
    "nothing checked",
]


@pytest.mark.parametrize("way", WAYS)
def test_write_join_read_commit_and_leave(ways, way, topic, write, consumer, read):
    settings = ways[way]
    partition = TopicPartition(topic(settings), 0)
    values = [f"{way} {n}".encode() for n in range(100)]
    write(settings, partition, values)

    member = consumer(settings, group_id=f"group-{partition.topic}", enable_auto_commit=False)
    member.subscribe([partition.topic])
    assert read(member, 100) == values
    member.commit()
    member.close(10)

    write(settings, partition, [b"later"])
    again = consumer(settings, group_id=f"group-{partition.topic}")
    again.subscribe([partition.topic])
    assert read(again, 1) == [b"later"]


def test_fifty_megabytes_come_through_tls_unharmed(secured, topic, write, consumer):
    settings = secured.login("PLAIN")
    partition = TopicPartition(topic(settings, max_message_bytes="1100000"), 0)
    values = [bytes([n % 251]) * 999_000 for n in range(53)]
    for value in values:
        write(settings, partition, [value])
    one = consumer(settings, max_partition_fetch_bytes=60 << 20, fetch_max_bytes=60 << 20)
    one.assign([partition])
    seen, deadline = [], time.monotonic() + 120
    while len(seen) < len(values):
        assert time.monotonic() < deadline
        seen += one.poll(1.0)["value"].to_pylist()
    assert seen == values


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_sessions_are_renewed_while_records_flow(secured, ways, way, topic, write, consumer, caplog):
    # The broker ends sessions of 4 s: three of them are survived by every connection, none is lost.
    settings = ways[way]
    partition = TopicPartition(topic(settings), 0)
    member = consumer(settings, group_id=f"group-{partition.topic}", heartbeat_interval_ms=300)
    member.subscribe([partition.topic])
    deadline, count, seen = time.monotonic() + 13, 0, []
    while time.monotonic() < deadline:
        write(settings, partition, [str(count)])
        count += 1
        until = time.monotonic() + 30
        while len(seen) < count:
            assert time.monotonic() < until
            seen += member.poll(0.5)["value"].to_pylist()
    assert seen == [str(n).encode() for n in range(count)]
    assert not [record for record in caplog.records if "failed" in record.getMessage()]


def test_a_token_serves_many_connections_and_is_renewed_in_time(secured, topic, consumer, read, write):
    asked, threads = [], set()

    def token(config):
        asked.append(config)
        threads.add(threading.current_thread().name)
        # As confluent-kafka has it: principal and extensions may follow.
        return unsecured_token(seconds=6), time.time() + 6, "alice", {"traceId": "abc"}

    settings = oauth(secured, token, sasl_oauthbearer_config="who=alice")
    partition = TopicPartition(topic(oauth(secured)), 0)
    one = consumer(settings, group_id=f"group-{partition.topic}")
    one.subscribe([partition.topic])
    deadline = time.monotonic() + 14
    count = 0
    while time.monotonic() < deadline:
        write(oauth(secured), partition, [str(count)])
        assert read(one, 1) == [str(count).encode()]
        count += 1
    assert 2 <= len(asked) <= 6, "kept for most of its life, then asked for anew"
    assert set(asked) == {"who=alice"}
    assert not any(name.startswith("consumer-network") for name in threads)


class TokenEndpoint(BaseHTTPRequestHandler):
    """Hands out tokens to the client `me:secret`."""

    asked: ClassVar[list] = []

    def do_POST(self):
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], form))
        right = self.headers["Authorization"] == "Basic bWU6c2VjcmV0"
        body = {"access_token": unsecured_token(), "expires_in": 3600} if right else {"error": "invalid_client"}
        data = json.dumps(body).encode()
        self.send_response(200 if right else 401)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def endpoint():
    server = HTTPServer(("127.0.0.1", 0), TokenEndpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    thread.join(10)
    server.server_close()


def oidc(secured, url, secret="secret"):
    return secured.tls(
        "LOGIN",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_method="oidc",
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_client_id="me",
        sasl_oauthbearer_client_secret=secret,
        sasl_oauthbearer_scope="kafka",
    )


def test_tokens_come_from_an_endpoint(secured, endpoint, connect):
    client = connect(oidc(secured, endpoint))
    assert client.metadata.brokers
    assert TokenEndpoint.asked[-1][1] == "grant_type=client_credentials&scope=kafka"

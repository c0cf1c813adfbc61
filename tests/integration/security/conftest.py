"""A broker with every kind of security, under certificates made for this run, and words to reach each of its ports."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import random
import threading
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer

import pyarrow as pa
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from tests.waiting import LONG, collect

from sparkrelay.client.admin import Admin, TopicSpec
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.produce import Producer
from sparkrelay.consumer import Consumer
from sparkrelay.devkafka import DevKafka, Listener
from sparkrelay.devkafka.ports import is_free
from sparkrelay.records.batches.encode import encode

_numbers = itertools.count(1)

#: Sessions end soon, so that logging in again (KIP-368) is seen.
REAUTH_MS = 3000
USERS = {"alice": "wonder land", "bob,=x": "s3cret=, "}


@dataclass
class Certificates:
    """Paths of PEM files."""

    ca: str
    other_ca: str
    client: str
    client_key: str
    stranger: str
    stranger_key: str


def pem_store(path, authority, *names, **options):
    """Write what Kafka takes for a keystore of type PEM: the key and the chain in one file."""
    issued = authority.issue_cert(*names, **options)
    chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    # Java reads private keys of one form only.
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain)
    return issued


@pytest.fixture(scope="session")
def authority():
    return trustme.CA()


@pytest.fixture(scope="session")
def certificates(authority, tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    other = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    other.cert_pem.write_to_path(str(folder / "other-ca.pem"))
    for name, issuer in (("client", authority), ("stranger", other)):
        issued = issuer.issue_cert(f"{name}@example.org", common_name=name)
        issued.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        (folder / f"{name}.pem").write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    return Certificates(
        ca=str(folder / "ca.pem"),
        other_ca=str(folder / "other-ca.pem"),
        client=str(folder / "client.pem"),
        client_key=str(folder / "client.key"),
        stranger=str(folder / "stranger.pem"),
        stranger_key=str(folder / "stranger.key"),
    )


class SecuredKafka:
    """A broker and its listeners: SSL (wants a client certificate), SASL_SSL, SASL_PLAINTEXT, and three with faults."""

    LISTENERS = ("MTLS", "LOGIN", "CLEAR", "EXPIRED", "MISNAMED", "SCRAM")

    def __init__(self, folder, authority, certificates):
        # Not of those that brokers choose from themselves, and each another one.
        free = filter(is_free, random.SystemRandom().sample(range(10_000, 20_000), 100))
        self.ports = dict(zip(self.LISTENERS, free, strict=False))
        past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
        stores = {
            "good": ("localhost", "127.0.0.1"),
            "misnamed": ("elsewhere.example.org",),
            "expired": ("localhost", "127.0.0.1"),
        }
        for name, hosts in stores.items():
            pem_store(folder / f"{name}.pem", authority, *hosts, **({"not_after": past} if name == "expired" else {}))
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required "
        plain += " ".join(f'user_{name}="{password}"' for name, password in USERS.items() if "," not in name) + ";"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        oauth = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        internals = "org.apache.kafka.common.security.oauthbearer.internals"
        validator = f"{internals}.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
        protocols = {
            "MTLS": "SSL",
            "LOGIN": "SASL_SSL",
            "CLEAR": "SASL_PLAINTEXT",
            "EXPIRED": "SSL",
            "MISNAMED": "SSL",
            "SCRAM": "SASL_SSL",
        }
        properties = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "connections.max.reauth.ms": str(REAUTH_MS),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": certificates.ca,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "good.pem"),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.expired.ssl.keystore.location": str(folder / "expired.pem"),
            "listener.name.expired.ssl.keystore.type": "PEM",
            "listener.name.misnamed.ssl.keystore.location": str(folder / "misnamed.pem"),
            "listener.name.misnamed.ssl.keystore.type": "PEM",
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        }
        for name in ("login", "clear", "scram"):
            at = f"listener.name.{name}"
            properties |= {
                f"{at}.plain.sasl.jaas.config": plain,
                f"{at}.scram-sha-256.sasl.jaas.config": scram,
                f"{at}.scram-sha-512.sasl.jaas.config": scram,
                f"{at}.oauthbearer.sasl.jaas.config": oauth,
                f"{at}.oauthbearer.sasl.server.callback.handler.class": validator,
            }
        doors = [Listener(name, port, protocols[name], "localhost") for name, port in self.ports.items()]
        self.broker = DevKafka(server_properties=properties, listeners=doors)
        self.certificates = certificates

    def tls(self, listener, **settings):
        """Settings that reach a TLS listener with the right authority."""
        return {
            "bootstrap.servers": f"localhost:{self.ports[listener]}",
            "security.protocol": "SSL",
            "ssl.ca.location": self.certificates.ca,
        } | {key.replace("_", "."): value for key, value in settings.items()}

    def token(self, user="alice", seconds=3600, **claims):
        """A token that nobody signed: Kafka's validator for development takes it."""
        now = int(time.time())
        claims = {"sub": user, "iat": now, "exp": now + seconds} | claims
        parts = [
            urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)
        ]
        return ".".join([*parts, ""])

    def oauth(self, callback=None, **settings):
        """Settings that log in with tokens of a function."""
        settings = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"} | settings
        callback = callback or (lambda _: (self.token(), time.time() + 3600))
        return self.tls("LOGIN", **settings) | {"oauth_cb": callback}

    def oidc(self, url, secret="secret"):
        """Settings that log in with tokens of an endpoint."""
        return self.tls(
            "LOGIN",
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_method="oidc",
            sasl_oauthbearer_token_endpoint_url=url,
            sasl_oauthbearer_client_id="me",
            sasl_oauthbearer_client_secret=secret,
            sasl_oauthbearer_scope="kafka",
        )

    def login(self, mechanism="PLAIN", user="alice", listener="LOGIN", **settings):
        """Settings that log in over TLS, or in the clear."""
        return self.tls(
            listener,
            security_protocol="SASL_PLAINTEXT" if listener == "CLEAR" else "SASL_SSL",
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=USERS.get(user, "nonsense"),
            **settings,
        )


@pytest.fixture(scope="session")
def secured(tmp_path_factory, authority, certificates):
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    kafka = SecuredKafka(tmp_path_factory.mktemp("stores"), authority, certificates)
    with kafka.broker:
        admin = AdminClient({"bootstrap.servers": kafka.broker.bootstrap_servers})
        for name, password in USERS.items():
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                wanted = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())
                admin.alter_user_scram_credentials([wanted])[name].result(LONG)
        yield kafka


@pytest.fixture
def connect(secured):
    """`connect(settings)` returns a client that has found its cluster."""
    clients = []

    def make(settings, *, timeout=LONG):
        clients.append(KafkaClient(ClientConfig.from_dict(settings)))
        clients[-1].bootstrap(timeout)
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def consumer(secured):
    """`consumer(settings, group=None)` returns a consumer from the beginning."""
    made = []

    def make(settings, **more):
        made.append(
            Consumer(
                {"auto.offset.reset": "earliest"}
                | settings
                | {key.replace("_", "."): value for key, value in more.items()}
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.close(5)


@pytest.fixture
def topic(connect):
    """`topic(settings, partitions=1)` makes a topic through a secured port and returns its name."""

    def make(settings, partitions=1, **configs):
        name = f"secured-{os.getpid()}-{next(_numbers)}"
        named = {key.replace("_", "."): value for key, value in configs.items()}
        Admin(connect(settings), timeout=LONG).create_topics({name: TopicSpec(partitions, configs=named)})
        return name

    return make


@pytest.fixture
def write(connect):
    """`write(settings, partition, values)` writes through a secured port."""

    def produce(settings, partition, values):
        producer = Producer(connect(settings))
        rows = pa.array([value if isinstance(value, bytes) else value.encode() for value in values], pa.binary())
        for batch in encode(None, rows, timestamps=int(time.time() * 1000)):
            producer.send(partition, batch.data, transactional_id=None)
        return producer.flush(LONG)

    return produce


@pytest.fixture
def read():
    """`read(consumer, count)` polls until `count` values are there."""

    def read(consumer, count):
        return collect(
            lambda: consumer.poll(0.5).column("value").to_pylist(),
            lambda values: len(values) >= count,
            f"not {count} records",
        )

    return read


class TokenEndpoint(HTTPServer):
    """Hands out tokens to the client `me` with the password `secret`; `broken` makes it fail."""

    def __init__(self, token):
        super().__init__(("127.0.0.1", 0), _TokenRequest)
        self.token, self.asked, self.broken = token, [], False
        self.url = f"http://127.0.0.1:{self.server_port}/token"


class _TokenRequest(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        right = self.headers["Authorization"] == "Basic bWU6c2VjcmV0"
        status = 503 if self.server.broken else 200 if right else 401
        body = (
            {"access_token": self.server.token(), "expires_in": 3600} if status == 200 else {"error": "invalid_client"}
        )
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def endpoint(secured):
    server = TokenEndpoint(secured.token)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join(LONG)
    server.server_close()

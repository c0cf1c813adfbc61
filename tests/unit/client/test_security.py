"""TLS and SASL: our settings reach kafka.net, our receive path works under TLS, and refusals are named."""

import socket
import ssl
import struct
import threading
from pathlib import Path

import pytest
from tests.waiting import LONG

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.messages import FetchRequest, MetadataRequest
from sparkrelay.errors import AuthenticationException, TimeoutException

PEM = str(Path(__file__).with_name("localhost.pem"))
SASL_VERSIONS = {3: (0, 12), 18: (0, 3), 17: (0, 1), 36: (0, 1)}
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "wonder",
}


@pytest.fixture
def connect():
    clients = []

    def make(port, settings):
        clients.append(KafkaClient(ClientConfig.from_dict({"bootstrap.servers": f"127.0.0.1:{port}", **settings})))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def server_tls():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return context


def fetch_answer(records):
    from kafka.protocol.consumer import FetchResponse

    topic = FetchResponse.FetchableTopicResponse
    part = topic.PartitionData(partition_index=0, error_code=0, high_watermark=1, records=records)
    message = FetchResponse(error_code=0, session_id=0, responses=[topic(topic="t", partitions=[part])], version=12)
    return b"\0" + bytes(message.encode(version=12))


@pytest.mark.parametrize("size", [10, 20_000, 5_000_000])
def test_responses_of_any_size_come_through_tls(tiny_broker, connect, server_tls, size):
    records = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    broker = tiny_broker(lambda api, *_: fetch_answer(records) if api == 1 else None, tls=server_tls)
    client = connect(broker.port, {"security.protocol": "SSL", "ssl.ca.location": PEM})
    client.bootstrap(LONG)
    requests = [FetchRequest(topics=[], forgotten_topics_data=[], max_version=12) for _ in range(3)]
    responses = [client.send(request, node=1) for request in requests]
    client.wait(responses, LONG)
    for response in responses:
        assert response.result().responses[0].partitions[0].records == records


def test_large_requests_go_out_through_tls(tiny_broker, connect, server_tls):
    seen = []

    def answer(api, version, correlation, frame):
        if api == 3 and len(frame) > 100_000:
            seen.append(len(frame))

    broker = tiny_broker(answer, tls=server_tls)
    client = connect(broker.port, {"security.protocol": "SSL", "ssl.ca.location": PEM})
    client.bootstrap(LONG)
    names = [MetadataRequest.MetadataRequestTopic(name=f"{n:0240}") for n in range(5000)]
    response = client.send(MetadataRequest(topics=names), node=1)
    client.wait([response], LONG)
    assert response.error is None
    assert seen[0] > 1_000_000


def test_a_certificate_that_is_not_trusted_is_an_authentication_error(tiny_broker, connect, server_tls):
    client = connect(tiny_broker(tls=server_tls).port, {"security.protocol": "SSL"})
    with pytest.raises(AuthenticationException, match=r"security.protocol=SSL.*CERTIFICATE_VERIFY_FAILED"):
        client.bootstrap(LONG)


def test_a_broker_that_goes_away_during_the_handshake_has_refused_nobody(connect):
    listener = socket.create_server(("127.0.0.1", 0))

    def hang_up():
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.recv(10)
            sock.close()

    thread = threading.Thread(target=hang_up, daemon=True)
    thread.start()
    client = connect(listener.getsockname()[1], {"security.protocol": "SSL"})
    with pytest.raises(TimeoutException, match="last error"):
        client.bootstrap(3)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(LONG)


def test_plain_text_towards_tls_does_not_hang(tiny_broker, connect, server_tls):
    client = connect(tiny_broker(tls=server_tls).port, {})
    with pytest.raises(TimeoutException, match="last error"):
        client.bootstrap(3)


def sasl(password_is_right):
    def answer(api, version, correlation, frame):
        if api == 17:
            return struct.pack(">hih", 0, 1, 5) + b"PLAIN"
        if api == 36:
            if b"\0alice\0wonder" in frame and password_is_right:
                return struct.pack(">hhiq", 0, -1, 0, 0)
            return struct.pack(">hh", 58, 3) + b"no!" + struct.pack(">iq", 0, 0)
        return None

    return answer


def test_sasl_logs_in(tiny_broker, connect):
    broker = tiny_broker(sasl(password_is_right=True), SASL_VERSIONS)
    client = connect(broker.port, SASL)
    client.bootstrap(LONG)
    assert (36, 1) in broker.requests


def test_refused_credentials_are_an_authentication_error_and_may_be_tried_again(tiny_broker, connect):
    broker = tiny_broker(sasl(password_is_right=False), SASL_VERSIONS)
    client = connect(broker.port, SASL)
    with pytest.raises(AuthenticationException, match=r"refused our credentials .*sasl.mechanism=PLAIN.*no!"):
        client.bootstrap(LONG)
    broker.answer = sasl(password_is_right=True)
    client.sleep(0.1)  # longer than the backoff
    client.bootstrap(LONG)
    assert client.metadata.brokers


@pytest.mark.parametrize(("protocol", "meant"), [("SASL_PLAINTEXT", "PLAINTEXT"), ("SASL_SSL", "SSL")])
def test_a_port_without_login_is_said_to_be_one(tiny_broker, connect, server_tls, protocol, meant):
    def refuse(api, *_):
        return struct.pack(">hi", 34, 0) if api == 17 else None

    broker = tiny_broker(refuse, SASL_VERSIONS, tls=server_tls if protocol == "SASL_SSL" else None)
    client = connect(broker.port, SASL | {"security.protocol": protocol, "ssl.ca.location": PEM})
    with pytest.raises(AuthenticationException) as caught:
        client.bootstrap(LONG)
    assert str(caught.value) == (
        f"bootstrap server 127.0.0.1:{broker.port} takes no login on this port, but security.protocol={protocol}: set "
        f"it to {meant}, or give the port of a listener with SASL"
    )


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_refusal_is_read_although_the_broker_hangs_up_at_once(tiny_broker, connect, server_tls, protocol):
    asked, go = threading.Event(), threading.Event()

    def answer(api, version, correlation, frame):
        if api != 36:
            return sasl(password_is_right=False)(api, version, correlation, frame)
        asked.set()
        assert go.wait(LONG)
        return "last", struct.pack(">hh", 58, 3) + b"no!" + struct.pack(">iq", 0, 0)

    broker = tiny_broker(answer, SASL_VERSIONS, tls=server_tls if protocol == "SASL_SSL" else None)
    client = connect(broker.port, SASL | {"security.protocol": protocol, "ssl.ca.location": PEM})
    response = client.request_metadata(())
    while not asked.is_set():
        client.poll(0.01)
    go.set()
    for thread in broker._threads[1:]:
        thread.join(LONG)  # answer and end are both on their way before we look
    client.wait([response], LONG)
    assert isinstance(response.error, AuthenticationException), response.error
    assert "no!" in str(response.error)

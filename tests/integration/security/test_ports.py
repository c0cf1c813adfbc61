"""The whole way of a consumer, an admin and a producer through every kind of secured port of a real broker."""

import threading
import time
from pathlib import Path

import pytest
from tests.waiting import wait_until

from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


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
        "OAUTHBEARER": secured.oauth(),
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


@pytest.mark.long
def test_fifty_megabytes_come_through_tls_unharmed(secured, topic, write, read, consumer):
    settings = secured.login("PLAIN")
    partition = TopicPartition(topic(settings, max_message_bytes="1100000"), 0)
    values = [bytes([n % 251]) * 999_000 for n in range(53)]
    for value in values:
        write(settings, partition, [value])
    one = consumer(settings, max_partition_fetch_bytes=60 << 20, fetch_max_bytes=60 << 20)
    one.assign([partition])
    assert read(one, len(values)) == values


#: For so long connections live whose sessions end again and again.
LIFE_S = 11


@pytest.mark.long
def test_sessions_are_renewed_while_records_flow(secured, ways, topic, write, consumer, caplog):
    # The broker ends sessions of 3 s (KIP-368): several are outlived by every connection, and no record is lost.
    asked, threads = [], set()

    def token(config):
        asked.append(config)
        threads.add(threading.current_thread().name)
        # As confluent-kafka has it: principal and extensions may follow.
        return secured.token(seconds=6), time.time() + 6, "alice", {"traceId": "abc"}

    partition = TopicPartition(topic(ways["PLAIN"]), 0)
    members = {}
    for way in ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"):
        settings = ways[way] | {"heartbeat.interval.ms": 300}
        if way == "OAUTHBEARER":
            settings |= {"oauth_cb": token, "sasl.oauthbearer.config": "who=alice"}
        members[way] = consumer(settings, group_id=f"group-{way}-{partition.topic}")
        members[way].subscribe([partition.topic])
    count, seen = 0, {way: [] for way in members}

    def poll():
        for way, member in members.items():
            seen[way] += member.poll(0.1)["value"].to_pylist()

    def seen_by_all():
        return all(len(values) >= count for values in seen.values())

    began = time.monotonic()
    while (took := time.monotonic() - began) < LIFE_S:
        write(ways["SCRAM-SHA-256"], partition, [str(count)])
        count += 1
        wait_until(seen_by_all, "a record does not come", between=poll)
    assert all(values == [str(n).encode() for n in range(count)] for values in seen.values())
    lost = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    # On a machine that stalls, it took longer, and so much more may happen.
    most = 12 * took / LIFE_S
    assert len(lost) <= most, "unrenewed, each of nine connections is lost three times; a stall costs some at once"
    assert 2 <= len(asked) <= most, "a token is kept for most of its life, then asked for anew"
    assert set(asked) == {"who=alice"}
    assert not any(name.startswith("consumer-network") for name in threads)


def test_tokens_come_from_an_endpoint(secured, endpoint, connect):
    client = connect(secured.oidc(endpoint.url))
    assert client.metadata.brokers
    assert endpoint.asked[-1] == "grant_type=client_credentials&scope=kafka"

"""What is refused, by a real broker or by us: an error that names the setting, soon, and never a hang."""

import socket
import threading
import time

import pytest
from tests.waiting import AVOIDED, LONG, wait_until, within

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.errors import AuthenticationException, TimeoutException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration
#: Of a consumer that is to be closed soon, whatever it waits for.
PATIENT = {"request_timeout_ms": AVOIDED * 1000, "default_api_timeout_ms": AVOIDED * 1000}


@pytest.fixture
def cases(secured):
    certificates = secured.certificates
    return {
        "wrong password": (
            secured.login("PLAIN") | {"sasl.password": "wonderland"},
            r"sasl.mechanism=PLAIN, sasl.username=alice\).*[Ii]nvalid username or password",
        ),
        "wrong password, SCRAM": (
            secured.login("SCRAM-SHA-512") | {"sasl.password": "wonderland"},
            r"sasl.mechanism=SCRAM-SHA-512, sasl.username=alice\).*invalid credentials",
        ),
        "no such user": (secured.login("SCRAM-SHA-256", "mallory"), r"sasl.username=mallory\).*invalid credentials"),
        "mechanism not offered": (
            secured.login("PLAIN", listener="SCRAM"),
            r"sasl.mechanism=PLAIN.*does not offer that mechanism",
        ),
        "authority not trusted": (
            secured.login("PLAIN", ssl_ca_location=certificates.other_ca),
            r"no authority of ssl.ca.location=.*other-ca.pem signed",
        ),
        "system's authorities do not know it": (
            {k: v for k, v in secured.login("PLAIN").items() if k != "ssl.ca.location"},
            "no authority of ssl.ca.location=the system's signed",
        ),
        "wrong host name": (secured.tls("MISNAMED"), "is not for localhost.*ssl.endpoint.identification.algorithm"),
        "expired": (secured.tls("EXPIRED"), "certificate.*is expired"),
        "no client certificate": (secured.tls("MTLS"), "give ssl.certificate.location and ssl.key.location"),
        "a stranger's client certificate": (
            secured.tls(
                "MTLS", ssl_certificate_location=certificates.stranger, ssl_key_location=certificates.stranger_key
            ),
            "refuses our certificate, ssl.certificate.location=.*stranger.pem",
        ),
        "plain text to a TLS port": (
            {"bootstrap.servers": f"localhost:{secured.ports['LOGIN']}"},
            "port speaks TLS: set security.protocol",
        ),
        "token refused": (secured.oauth(lambda _: ("nonsense", time.time() + 60)), "sasl.mechanism=OAUTHBEARER"),
        "token function fails": (secured.oauth(lambda _: 1 / 0), r"oauth_cb raised ZeroDivisionError"),
        "token is no token": (secured.oauth(lambda _: "nonsense"), r"oauth_cb must return \(token, expiry"),
        "token expired": (secured.oauth(lambda _: ("nonsense", 60)), "expired .* the expiry is in seconds since 1970"),
    }


CASES = [
    "wrong password",
    "wrong password, SCRAM",
    "no such user",
    "mechanism not offered",
    "authority not trusted",
    "system's authorities do not know it",
    "wrong host name",
    "expired",
    "no client certificate",
    "a stranger's client certificate",
    "plain text to a TLS port",
    "token refused",
    "token function fails",
    "token is no token",
    "token expired",
]


@pytest.mark.parametrize("case", CASES)
def test_refusals_name_their_setting(cases, case, consumer):
    settings, message = cases[case]
    with (
        KafkaClient(ClientConfig.from_dict(settings)) as client,
        pytest.raises(AuthenticationException, match=message),
    ):
        client.bootstrap(LONG)
    assigned = consumer(settings)
    assigned.assign([TopicPartition("any", 0)])
    with pytest.raises(AuthenticationException, match=message):
        poll_until_it_fails(assigned)
    member = consumer(settings, group_id="refused", **PATIENT)
    member.subscribe(["any"])
    with pytest.raises(AuthenticationException, match=message):
        poll_until_it_fails(member)
    with within():
        member.close(10)


def poll_until_it_fails(consumer):
    wait_until(lambda: False, "no error", between=lambda: consumer.poll(0.5))


@pytest.fixture
def silent_port():
    """A port that accepts connections and never says a word."""
    listener = socket.create_server(("127.0.0.1", 0))
    sockets = []

    def accept():
        while True:
            try:
                sockets.append(listener.accept()[0])
            except OSError:
                return

    thread = threading.Thread(target=accept)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(LONG)
    for sock in sockets:
        sock.close()


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_SSL"])
def test_a_port_that_says_nothing_is_given_up(silent_port, protocol, consumer):
    settings = {
        "bootstrap.servers": f"localhost:{silent_port}",
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "wonder",
        "socket.connection.setup.timeout.ms": 300,
    }
    one = consumer(settings, **PATIENT)
    with pytest.raises(
        TimeoutException, match=rf"socket.connection.setup.timeout.ms=300.*security.protocol={protocol}"
    ):
        one.end_offsets([TopicPartition("any", 0)], timeout=3)
    with within():
        one.close(2)


def test_tls_to_a_plain_port_names_the_protocol(secured, consumer):
    settings = secured.tls("MTLS", default_api_timeout_ms=3000) | {
        "bootstrap.servers": secured.broker.bootstrap_servers,
    }
    one = consumer(settings)
    with pytest.raises(TimeoutException, match=r"TLS handshake.*security.protocol=SSL what the port speaks"):
        one.end_offsets([TopicPartition("any", 0)])


def test_no_login_at_a_port_that_wants_one_is_named(secured, consumer):
    one = consumer(secured.tls("LOGIN", default_api_timeout_ms=3000))
    with pytest.raises(TimeoutException, match=r"port may require a login, which security.protocol=SSL does not have"):
        one.end_offsets([TopicPartition("any", 0)])


@pytest.mark.long
def test_a_token_endpoint_that_refuses_us_is_an_error_and_one_in_trouble_is_asked_again(secured, endpoint, connect):
    with pytest.raises(AuthenticationException, match=r"answers 401.*sasl.oauthbearer.client.id=me"):
        connect(secured.oidc(endpoint.url, secret="wrong"))
    endpoint.broken = True
    with pytest.raises(TimeoutException, match=r"token.endpoint.url=.* answers 503"):
        connect(secured.oidc(endpoint.url), timeout=8)
    endpoint.broken = False
    assert connect(secured.oidc(endpoint.url)).metadata.brokers


@pytest.mark.long
def test_a_hanging_token_function_stops_nothing_but_the_login(secured):
    hold = threading.Event()
    settings = secured.oauth(lambda _: hold.wait(AVOIDED)) | {"socket.connection.setup.timeout.ms": 3000}
    client = KafkaClient(ClientConfig.from_dict(settings))
    turns = []
    started = time.monotonic()
    with within():  # the loop goes on
        while len(turns) < 6 or time.monotonic() - started < 1:
            client.request_metadata(())
            client.poll(0.05)
            turns.append(time.monotonic())
    with pytest.raises(TimeoutException, match=r"logging in took longer than socket.connection.setup.timeout.ms=3000"):
        client.bootstrap(8)
    client.close()
    hold.set()
    wait_until(
        lambda: not any(thread.name.startswith("oauth-token") for thread in threading.enumerate()), "a thread is left"
    )


def test_a_password_that_changes_under_a_running_consumer_raises(secured, topic, consumer, write, read):
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    admin = AdminClient({"bootstrap.servers": secured.broker.bootstrap_servers})

    def set_password(password):
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        wanted = UserScramCredentialUpsertion("carol", info, password)
        admin.alter_user_scram_credentials([wanted])["carol"].result(LONG)

    set_password(b"first")
    settings = secured.login("SCRAM-SHA-256", "carol") | {"sasl.password": "first"}
    partition = TopicPartition(topic(secured.login()), 0)
    member = consumer(settings, group_id=f"group-{partition.topic}", **PATIENT)
    member.subscribe([partition.topic])
    write(secured.login(), partition, ["1"])
    assert read(member, 1) == [b"1"]
    set_password(b"second")
    with pytest.raises(AuthenticationException, match=r"sasl.username=carol"):
        poll_until_it_fails(member)
    with within():
        member.close(5)

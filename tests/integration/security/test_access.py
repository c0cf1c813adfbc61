"""An instance on a broker with Kafka's authorizer: with exactly the permissions that the documentation lists."""

import json
import time
import uuid

import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest
from pyspark.sql import functions as F
from tests.ports import own_port
from tests.topics import following, read_to_end, topic_maker, write
from tests.waiting import LONG, wait_until

from sparkrelay import Json, KafkaStreams, StreamsBuilder, String
from sparkrelay.cli import app as command_line
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.devkafka import DevKafka, Listener
from sparkrelay.doctor.access import needed_access
from sparkrelay.errors import AuthorizationException
from sparkrelay.runtime.thread import stream_thread

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

USER, PASSWORD = "delays", "sun shine"
LOGIN = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password")


@pytest.fixture(scope="module")
def authorizing():
    """A broker that lets everybody do anything at its plain port, and users what they were granted at the other."""
    port = own_port()
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required "
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}";',
        "log.retention.ms": "-1",
    }
    doors = [Listener("USERS", port, "SASL_PLAINTEXT", "localhost")]
    with DevKafka(server_properties=properties, listeners=doors) as broker:
        broker.users_port = port
        yield broker


class Application:
    """Topics of an application of its own, and what its user was granted."""

    def __init__(self, broker, folder):
        from confluent_kafka.admin import AdminClient

        self.id = f"app{uuid.uuid4().hex[:8]}"
        self.servers = broker.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self.servers})
        make = topic_maker(self._admin)
        self.source, self.sink, self.letters = make("in", 1), make("out", 1), make("letters", 1)
        self.needed = needed_access(self.id, sources=[self.source], sinks=[self.sink], dead_letters=self.letters)
        self.config = {
            "application.id": self.id,
            "bootstrap.servers": f"localhost:{broker.users_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "state.dir": str(folder / "state"),
            "session.timeout.ms": 6000,
            "poll.ms": 20,
            "errors.dead.letter.queue.topic.name": self.letters,
            "deserialization.exception.handler": "log-and-continue",
            "max.batch.retries": 0,
            "default.api.timeout.ms": 15_000,
        }

    def grant(self, without=None):
        """Grant all that is needed but for ``without``: kind, name and operation."""
        for access in self.needed:
            for operation in access.operations:
                if (access.kind, access.name, operation) != without:
                    self.grant_one(access.kind, access.name, operation, prefixed=access.prefixed)

    def grant_one(self, kind, name, operation, *, prefixed=False):
        from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

        kinds = {
            "topic": ResourceType.TOPIC,
            "group": ResourceType.GROUP,
            "transactional-id": ResourceType.TRANSACTIONAL_ID,
        }
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        who = f"User:{USER}", "*", AclOperation[operation], AclPermissionType.ALLOW
        for future in self._admin.create_acls([AclBinding(kinds[kind], name, pattern, *who)]).values():
            future.result(LONG)

    def login(self, folder):
        """Return a file of client settings."""
        file = folder / "client.properties"
        file.write_text("".join(f"{key}={self.config[key]}\n" for key in LOGIN))
        return file

    def revoke(self):
        """Take all back, and wait until that is so."""
        from confluent_kafka.admin import (
            AclBindingFilter,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{USER}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in self._admin.delete_acls([every]).values():
            future.result(LONG)

    def pipeline(self):
        builder = StreamsBuilder()
        rows = builder.stream(self.source, key=String("user"), value=Json("place string, n int"))
        rows.groupBy("place").agg(F.sum("n").alias("s"), name="sums").to(self.sink, value=Json())
        return builder.build()

    def feed(self):
        good = [("u", json.dumps({"place": "p", "n": 1})) for _ in range(5)]
        write(self.servers, self.source, [*good, ("u", "no json")])

    def streams(self, spark):
        streams = KafkaStreams(self.pipeline(), self.config, spark=spark)
        streams._context.prewarm = False
        return streams


@pytest.fixture
def application(authorizing, tmp_path):
    return Application(authorizing, tmp_path)


@pytest.mark.long
def test_these_permissions_are_enough(application, spark, tmp_path, capsys):
    application.grant()
    application.feed()
    streams = application.streams(spark)
    streams.start()
    servers = application.servers
    wait_until(
        lambda: any(read_to_end(servers, application.sink)) and any(read_to_end(servers, application.letters)),
        lambda: f"{streams.status}, {streams.exception()}",
    )
    at = ["--application-id", application.id, "--bootstrap-servers", application.config["bootstrap.servers"]]
    at += ["--command-config", str(application.login(tmp_path))]
    assert command_line.run(["plan", *at, "--add", "1"]) == 0
    assert streams.stop(60)
    assert command_line.run(["state", "count", "sums", *at]) == 0
    reset = ["reset", *at, "--execute", "--state-dir", application.config["state.dir"]]
    assert command_line.run(reset) == 1
    shown = capsys.readouterr()
    assert "GROUP_AUTHORIZATION_FAILED" in shown.err
    assert "(ACL) DELETE on that group" in shown.err
    assert "made topic" not in shown.out, "it has begun all the same"
    application.grant_one("group", application.id, "DELETE")
    assert command_line.run(reset) == 0, capsys.readouterr().err


def doctor(application, tmp_path, capsys, *more):
    """Return the exit code, and check -> (verdict, found, remedy)."""
    at = ["--bootstrap-servers", application.config["bootstrap.servers"], "--application-id", application.id]
    named = ["--sources", application.source, "--sinks", application.sink, "--dead-letters", application.letters]
    state = ["--state-dir", str(tmp_path / "state"), "--command-config", str(application.login(tmp_path))]
    capsys.readouterr()
    code = command_line.run(["doctor", *at, *named, *state, *more, "--json"])
    shown = json.loads(capsys.readouterr().out)
    found = {one["check"]: (one["verdict"], one["found"], one["remedy"]) for one in shown["findings"]}
    assert shown["ok"] is (code == 0)
    return code, found


def test_the_doctor_finds_that_nothing_is_missing(application, tmp_path, capsys):
    application.grant()
    wait_until(lambda: doctor(application, tmp_path, capsys)[0] == 0, "the permissions are not known")
    code, found = doctor(application, tmp_path, capsys)
    assert code == 0, found
    group = "not there yet, 0 members; READ is permitted, DELETE is not (only sparkrelay reset needs it)"
    assert found[f"group {application.id}"] == ("ok", group, "")
    assert found[f"transactional ids {application.id}-*"][0] == "ok"
    assert found[f"topics {application.id}-*"] == ("ok", "CREATE, READ, WRITE, DELETE are permitted", "")
    for name in (f"source {application.source}", f"sink {application.sink}", f"dead letters {application.letters}"):
        assert found[name][0] == "ok"
        assert found[name][1].startswith("1 partitions, 1 replicas; its settings are unknown")


def test_the_doctor_finds_each_that_is_missing(application, tmp_path, capsys):
    everything = list(application.needed)
    checks = {"group": "group", "transactional-id": "transactional ids", "topic": "topics"}
    named = {application.source: "source", application.sink: "sink", application.letters: "dead letters"}
    for access in everything:
        for operation in access.operations:
            application.revoke()
            application.grant(without=(access.kind, access.name, operation))
            kind = named.get(access.name, checks[access.kind])
            check = f"{kind} {access.name}{'*' if access.prefixed else ''}"
            wait_until(
                lambda check=check: doctor(application, tmp_path, capsys)[1][check][0] == "fail",
                f"without {operation}, {check} is fine",
            )
            code, found = doctor(application, tmp_path, capsys)
            assert code == 1
            assert [name for name, one in found.items() if one[0] == "fail"] == [check]
            _, said, remedy = found[check]
            assert operation in said
            assert f"--operation {operation}" in remedy
            assert f"--{access.kind} {access.name}" in remedy


@pytest.mark.parametrize(
    ("kind", "name", "operation", "words"),
    [
        ("group", "{id}", "READ", r"group '?{id}'?: GROUP_AUTHORIZATION_FAILED.*\(ACL\) READ on that group"),
        (
            "transactional-id",
            "{id}-",
            "WRITE",
            r"coordinator of transaction {id}-[0-9a-f-]+: .*\(ACL\) WRITE on that transactional id",
        ),
        ("topic", "{id}-", "CREATE", r"creating topic {id}-sums-.*\(ACL\) CREATE on that topic"),
        ("topic", "{id}-", "READ", r"topic '{id}-sums-repartition': setting .*\(ACL\) READ on that topic"),
        ("topic", "{id}-", "WRITE", r"{id}-sums-repartition-0.*\(ACL\) WRITE on that topic"),
        ("topic", "{id}-", "DELETE", r"deleting the records of {id}-sums-.*\(ACL\) DELETE on that topic"),
        ("topic", "{source}", "READ", r"looking for topic '{source}'.*\(ACL\) DESCRIBE \(READ and WRITE imply it\)"),
        ("topic", "{sink}", "WRITE", r"looking for topic '{sink}'.*\(ACL\) DESCRIBE"),
        ("topic", "{letters}", "WRITE", r"looking for topic '{letters}'.*\(ACL\) DESCRIBE"),
    ],
)
def test_without_one_of_them_it_says_which(application, spark, monkeypatch, kind, name, operation, words):
    monkeypatch.setattr(stream_thread, "_PURGE_SECONDS", 0.5)
    names = {"id": application.id, "source": application.source, "sink": application.sink}
    names["letters"] = application.letters
    application.grant(without=(kind, name.format(**names), operation))
    application.feed()
    streams = application.streams(spark)

    def run():
        streams.start()
        wait_until(lambda: streams.exception() is not None, lambda: streams.status)
        streams.awaitTermination(LONG)

    with pytest.raises(AuthorizationException, match=words.format(**names)):
        run()
    assert streams.stop(60)


@pytest.fixture
def quotas(authorizing):
    """Set quotas of the user; None takes one away, as does the end of the test."""

    def ask(**values):
        data = AlterClientQuotasRequest.EntryData
        entry = data(
            entity=[data.EntityData(entity_type="user", entity_name=USER)],
            ops=[data.OpData(key=key, value=float(value or 0), remove=value is None) for key, value in values.items()],
        )
        with KafkaClient(ClientConfig(bootstrap_servers=authorizing.bootstrap_servers)) as client:
            client.bootstrap(LONG)
            response = client.send(AlterClientQuotasRequest(entries=[entry], validate_only=False))
            client.wait([response], LONG)
            assert not response.result().entries[0].error_code, response.result()

    yield ask
    ask(producer_byte_rate=None, consumer_byte_rate=None, request_percentage=None)


@pytest.mark.long
def test_under_quotas_it_goes_on_and_writes_each_row_once(application, spark, quotas):
    application.grant()
    quotas(producer_byte_rate=200_000, consumer_byte_rate=400_000, request_percentage=20)
    padding = "x" * 900
    write(
        application.servers,
        application.source,
        [("u", json.dumps({"place": f"{padding}{n % 3}", "n": n})) for n in range(1000)],
    )
    builder = StreamsBuilder()
    rows = builder.stream(application.source, key=String("user"), value=Json("place string, n int"))
    rows.select("n", "place").to(application.sink, value=Json())
    rows.groupBy("place").agg(F.sum("n").alias("s"), name="sums").to(application.letters, value=Json())
    settings = application.config | {"max.batch.records": 500, "deserialization.exception.handler": "fail"}
    del settings["errors.dead.letter.queue.topic.name"]
    streams = KafkaStreams(builder.build(), settings, spark=spark)
    streams._context.prewarm = False
    began = time.monotonic()
    streams.start()
    seen, sums = [], {}
    with (
        following(application.servers, application.sink) as more,
        following(application.servers, application.letters) as of,
    ):

        def all_there():
            seen.extend(json.loads(message.value())["n"] for message in more())
            sums.update({message.key(): json.loads(message.value())["s"] for message in of()})
            return streams.exception() is not None or (len(seen) >= 1000 and sum(sums.values()) == sum(range(1000)))

        wait_until(all_there, lambda: f"{len(seen)} rows, {sums.values()}, {streams.status}", 240)
    assert streams.exception() is None
    assert sorted(seen) == list(range(1000))
    assert time.monotonic() - began > 3, "it was throttled"
    assert not any(streams.snapshot().totals.errors.values())
    assert streams.stop(120)

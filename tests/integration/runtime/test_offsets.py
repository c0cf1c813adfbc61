"""Setting where a stopped application goes on: shown first, refused where it makes no sense, and kept by its state."""

import json

import pytest
from confluent_kafka import TopicPartition as Theirs
from confluent_kafka.admin import AdminClient
from tests.waiting import LONG

from sparkrelay.cli.app import run
from sparkrelay.client.admin import Admin
from sparkrelay.client.application_admin import ApplicationAdmin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.devkafka.topics import create_topic, delete_topic
from sparkrelay.errors import OffsetOutOfRangeException
from sparkrelay.runtime.contract.commit_notes import SOURCE_CHANGELOG, note_parts, noted_changelogs, set_by_hand
from sparkrelay.runtime.instance.group_offsets import GroupOffsets, PartitionOffsets
from sparkrelay.types import TopicPartition

from .conftest import new_application_id
from .user_counts import counting, counts

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def topics(make_topic):
    return make_topic("in", 1), make_topic("out", 1)


@pytest.fixture
def command(kafka, application_id, capsys):
    """`command("show", *options)`: exit code, output and errors of `sparkrelay offsets`."""

    def offsets(*options, application=application_id):
        capsys.readouterr()
        code = run(
            ["offsets", *options, "--application-id", application, "--bootstrap-servers", kafka.bootstrap_servers]
        )
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return offsets


@pytest.fixture
def ran_before(instance, topics, produce, wait_for_table):
    """The instance has counted ten records and was stopped."""
    produce(topics[0], [{"key": "a", "value": '{"n": 1}', "timestamp": 1000 * n} for n in range(1, 11)])
    with instance(counting(*topics)) as streams:
        streams.start()
        wait_for_table(topics[1], counts(a=10), streams)


def test_records_that_expired_are_passed_over(
    ran_before, topics, kafka, produce, command, instance, wait_for_table, wait_until
):
    """One test on a real broker, from the error to the command that it asks for."""
    produce(topics[0], [("b", {"n": n}) for n in range(10)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (purged,) = admin.delete_records([Theirs(topics[0], 0, 15)]).values()
    purged.result(LONG)
    streams = instance(counting(*topics))
    streams.start()
    wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
    streams.stop()
    code, shown, _ = command("show")
    assert code == 0
    assert "records 10 to 14 are gone" in shown
    where = ("set", "--topic", topics[0], "--to", "earliest")
    assert command(*where)[:2] == (
        0,
        f"{topics[0]}-0: offset 10 -> 15 (earliest)\nnothing was changed; add --execute to do it\n",
    )
    code, shown, _ = command(*where, "--execute")
    assert (code, "The next start continues from there" in shown) == (0, True)
    assert "15     15   20     5" in command("show")[1]
    streams = instance(counting(*topics))
    streams.start()
    wait_for_table(topics[1], counts(a=10, b=5), streams)


@pytest.mark.long
def test_records_of_several_partitions_that_expired_are_reported_together(
    make_topic, kafka, produce, instance, wait_for_table, fails_with
):
    source, out = make_topic("in", 3), make_topic("out", 1)
    records = [{"key": f"k{number}", "value": '{"n": 1}', "partition": number} for number in range(3)]
    produce(source, records)
    with instance(counting(source, out)) as streams:
        streams.start()
        wait_for_table(out, counts(k0=1, k1=1, k2=1), streams)
    produce(source, records)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for purged in admin.delete_records([Theirs(source, 0, 2), Theirs(source, 1, 2)]).values():
        purged.result(LONG)
    streams = instance(counting(source, out))
    streams.start()
    words = rf"{source}-0 \(offsets 1 to 1\), {source}-1 \(offsets 1 to 1\)\. .* --partitions 0,1 --to earliest"
    fails_with(streams, OffsetOutOfRangeException, words)


@pytest.mark.long
def test_records_that_expired_are_passed_over_by_the_application_itself(
    ran_before, topics, kafka, produce, instance, wait_for_table, wait_until, caplog
):
    """With `on.data.loss=continue`, after a stop and while it runs."""

    def purge(before):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        (purged,) = admin.delete_records([Theirs(topics[0], 0, before)]).values()
        purged.result(LONG)

    produce(topics[0], [("b", {"n": n}) for n in range(10)])
    purge(15)
    streams = instance(counting(*topics), {"on.data.loss": "continue"})
    streams.start()
    wait_for_table(topics[1], counts(a=10, b=5), streams)
    assert f"{topics[0]}-0: the records 10 to 14 were deleted before task 0_0 read them" in caplog.text
    # Nothing is read while it is paused.
    streams.pause()
    produce(topics[0], [("b", {"n": n}) for n in range(10)])
    purge(23)
    streams.resume()
    wait_for_table(topics[1], counts(a=10, b=12), streams)
    assert streams.exception() is None
    assert dict(streams._context.progress.counters.totals().lost) == {topics[0]: 5 + 3}
    assert streams.stop(LONG)
    produce(topics[0], [("b", {"n": n}) for n in range(10)])
    with instance(counting(*topics)) as streams:
        streams.start()
        wait_for_table(topics[1], counts(a=10, b=22), streams)


def test_an_offset_carries_the_id_of_its_topic(ran_before, topics, kafka, command, application_id):
    for to, wanted in [("latest", 10), ("3", 3), ("1970-01-01T00:00:04.5Z", 4), ("2000-01-01T00:00:00Z", 10)]:
        assert command("set", "--topic", topics[0], "--partitions", "0", "--to", to, "--execute")[0] == 0
        with KafkaClient(ClientConfig(bootstrap_servers=kafka.bootstrap_servers)) as client:
            client.bootstrap(LONG)
            admin, at = Admin(client), TopicPartition(topics[0], 0)
            commit = admin.commits(application_id, [at])[at]
            assert (commit.offset, set_by_hand(commit.metadata)) == (wanted, admin.topic_ids([topics[0]])[topics[0]])


def test_setting_an_offset_keeps_what_else_is_noted(ran_before, topics, kafka, command, application_id):
    """Else nothing would say that a table's topic was its changelog, or which micro-batch was the last."""
    with KafkaClient(ClientConfig(bootstrap_servers=kafka.bootstrap_servers)) as client:
        client.bootstrap(LONG)
        admin, at = Admin(client), TopicPartition(topics[0], 0)
        noted = {**SOURCE_CHANGELOG, "batch": {"task": "0_0", "number": 7}}
        ApplicationAdmin(client, application_id).set_offsets({at: 10}, {at: json.dumps(noted)})
        assert command("set", "--topic", topics[0], "--to", "3", "--execute")[0] == 0
        commit = admin.commits(application_id, [at])[at]
    parts = note_parts(commit.metadata)
    assert (commit.offset, parts.pop("set_by_hand") is not None, parts) == (3, True, noted)


def test_an_operator_accepts_the_state_where_the_group_is(ran_before, topics, kafka, command, application_id):
    """The ids of changelogs are dropped: a state that was lost with one is refused otherwise."""
    with KafkaClient(ClientConfig(bootstrap_servers=kafka.bootstrap_servers)) as client:
        client.bootstrap(LONG)
        admin, at = Admin(client), TopicPartition(topics[0], 0)
        changelog = f"{application_id}-users-changelog"
        ids = {"users": admin.topic_ids([changelog])[changelog]}
        assert noted_changelogs(admin.commits(application_id, [at])[at].metadata) == ids
        shown = command("set", "--topic", topics[0], "--to", "current", "--execute")[1]
        assert f"{topics[0]}-0: offset 10 -> 10 (current)" in shown
        commit = admin.commits(application_id, [at])[at]
    assert (commit.offset, noted_changelogs(commit.metadata)) == (10, {})


def test_what_a_running_instance_purges_is_not_shown_as_gone(topics, kafka, produce, application_id):
    """An instance deletes records of a repartition topic once it has committed past them."""

    class Purging(GroupOffsets):
        """An instance commits, and purges, after each look at the group's offsets."""

        steps = iter((3, 6, 9))

        def _committed(self):
            found = super()._committed()
            offset = next(self.steps)
            self._application.set_offsets({at: offset})
            self._admin.delete_records({at: offset})
            return found

    at = TopicPartition(topics[0], 0)
    produce(topics[0], [("a", {"n": n}) for n in range(10)])
    with KafkaClient(ClientConfig(bootstrap_servers=kafka.bootstrap_servers)) as client:
        client.bootstrap(LONG)
        ApplicationAdmin(client, application_id).set_offsets({at: 0})
        shown = Purging(client, application_id).show()
    assert shown == {at: PartitionOffsets(group=3, first=3, end=10)}


# Topics of other tests, whose groups Kafka forgets after some minutes, must not begin with the shorter name.
@pytest.mark.parametrize("application_id", [f"{new_application_id()}-eu"], ids=["a longer name"])
def test_topics_of_another_application_are_no_sign_of_one(ran_before, topics, command, application_id):
    """Application `orders-eu` has topics whose names begin with `orders-`, too."""
    shorter = application_id.rpartition("-")[0]
    code, _, error = command("set", "--topic", topics[0], "--to", "earliest", application=shorter)
    assert (code, f"application {shorter!r} has no offsets and no internal topics" in error) == (1, True)


@pytest.mark.long
def test_an_earlier_offset_counts_nothing_twice(ran_before, topics, produce, command, instance, wait_for_table, caplog):
    assert command("set", "--topic", topics[0], "--to", "3", "--execute")[0] == 0
    produce(topics[0], [("b", {"n": 1})])
    streams = instance(counting(*topics))
    streams.start()
    wait_for_table(topics[1], counts(a=10, b=1), streams)
    assert "the group's offset is 3, the state has seen 10; the state decides" in caplog.text


def test_a_topic_that_was_created_again_is_read_with_the_state_that_is_there(
    ran_before, topics, kafka, produce, command, instance, wait_for_table
):
    """Kafka has forgotten the group with its only topic."""
    delete_topic(kafka.bootstrap_servers, topics[0])
    create_topic(kafka.bootstrap_servers, topics[0], partitions=1)
    produce(topics[0], [("b", {"n": n}) for n in range(30)])
    code, shown, _ = command("set", "--topic", topics[0], "--to", "earliest", "--execute")
    assert (code, f"{topics[0]}-0: offset none -> 0 (earliest)" in shown) == (0, True)
    streams = instance(counting(*topics))
    streams.start()
    wait_for_table(topics[1], counts(a=10, b=30), streams)


def test_what_makes_no_sense_is_refused(ran_before, topics, command, application_id, instance, wait_until):
    def refused(*options, **more):
        code, _, error = command("set", *options, "--execute", **more)
        assert code == 1
        return error

    here = ("--topic", topics[0])
    assert f"{topics[0]}-0 has the offsets 0 to 10" in refused(*here, "--to", "11")
    assert f"--to current: the group has no offset of {topics[1]}-0" in refused("--topic", topics[1], "--to", "current")
    assert "--to 2130-01-01T00:00:00Z is in the future; write latest" in refused(*here, "--to", "2130-01-01T00:00:00Z")
    assert "topic 'nowhere' does not exist" in refused("--topic", "nowhere", "--to", "earliest")
    assert "has no partition 7; it has 0 to 0" in refused(*here, "--to", "earliest", "--partitions", "0,7")
    changelog = f"{application_id}-users-changelog"
    assert "is a changelog" in refused("--topic", changelog, "--to", "earliest")
    assert "'__consumer_offsets' is Kafka's own" in refused("--topic", "__consumer_offsets", "--to", "earliest")
    misspelled = refused(*here, "--to", "earliest", application="misspelled")
    assert "application 'misspelled' has no offsets and no internal topics on this Kafka" in misspelled
    assert command("show", application="misspelled")[:2] == (0, "application misspelled has committed no offsets\n")
    streams = instance(counting(*topics))
    streams.start()
    wait_until(lambda: streams.state == "RUNNING", f"{streams.status}, not RUNNING")
    assert "its group has members:" in refused(*here, "--to", "earliest")

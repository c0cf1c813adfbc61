"""Topics that are not what they were when the state was made: said aloud, never skipped in silence."""

import json
import re

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition as Theirs
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.waiting import LONG, remove_folder

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.cli.app import run
from sparkrelay.client.admin import Admin
from sparkrelay.client.application_admin import ApplicationAdmin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.devkafka.topics import create_topic, delete_topic
from sparkrelay.errors import (
    RecordRefusedException,
    SparkRelayError,
    StateStoreException,
    StreamsException,
    UnknownTopicException,
)
from sparkrelay.runtime.contract.commit_notes import set_by_hand_note
from sparkrelay.types import TopicPartition

from .user_counts import counting, counts

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MADE_ANEW = r"task 0_0: .*users-changelog' of id .*, but that topic was deleted and created again since"


@pytest.fixture
def topics(make_topic):
    return make_topic("in", 1), make_topic("out", 1)


@pytest.fixture
def counted(instance, topics, produce, wait_for_table):
    """`counted(config)`: a running instance that has counted ten records."""

    def start(config=None, **pipeline):
        produce(topics[0], [("a", {"n": n}) for n in range(10)])
        streams = instance(counting(*topics, **pipeline), config or {})
        streams.start()
        wait_for_table(topics[1], counts(a=10), streams)
        return streams

    return start


@pytest.fixture
def ran_before(counted):
    """The instance has counted ten records and was stopped."""
    with counted():
        pass


@pytest.fixture
def ends_with(instance, topics, wait_until):
    """`ends_with(words)`: a new instance goes to ERROR, saying so."""

    def check(words, error=StreamsException, pipeline=lambda: counting(*topics)):
        streams = instance(pipeline())
        streams.start()
        wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
        with pytest.raises(error, match=words):
            streams.awaitTermination(LONG)

    return check


def created_again(kafka, topic, produce, records):
    delete_topic(kafka.bootstrap_servers, topic)
    create_topic(kafka.bootstrap_servers, topic, partitions=1)
    produce(topic, records)


@pytest.fixture
def set_by_hand(kafka, application_id):
    """`set_by_hand(topic, offset)`: as `sparkrelay offsets set` does."""

    def set_(topic, offset):
        with KafkaClient(ClientConfig.from_dict({"bootstrap.servers": kafka.bootstrap_servers})) as client:
            client.bootstrap(LONG)
            partition, note = TopicPartition(topic, 0), set_by_hand_note(Admin(client).topic_ids([topic])[topic])
            ApplicationAdmin(client, application_id).set_offsets({partition: offset}, {partition: note})

    return set_


@pytest.mark.parametrize(
    ("count", "keeps_disk"),
    [(1, True), pytest.param(30, True, marks=pytest.mark.long), pytest.param(30, False, marks=pytest.mark.long)],
    ids=["shorter", "longer", "longer, without local state"],
)
def test_a_source_topic_was_created_again(
    ran_before, topics, kafka, produce, ends_with, set_by_hand, instance, wait_for_table, count, keeps_disk
):
    """By its offsets alone nobody could distinguish a longer one from the old one."""
    created_again(kafka, topics[0], produce, [("b", {"n": n}) for n in range(count)])
    wanted = rf"task 0_0: source topic '{topics[0]}' was deleted and created again. The state of the task has"
    if not keeps_disk:
        instance(counting(*topics)).clean_up()
    ends_with(wanted)
    ends_with(wanted)
    set_by_hand(topics[0], 0)
    for more in range(2):
        if not keeps_disk:
            instance(counting(*topics)).clean_up()
        with instance(counting(*topics)) as streams:
            streams.start()
            wait_for_table(topics[1], counts(a=10, b=count + more), streams)
        produce(topics[0], [("b", {"n": 0})])


@pytest.mark.long
@pytest.mark.parametrize("stateful", [True, False])
def test_a_source_topic_is_created_again_while_it_is_read(
    instance, topics, kafka, produce, wait_for_table, wait_until, stateful
):
    builder = counting(*topics) if stateful else StreamsBuilder()
    if not stateful:
        builder.stream(topics[0], key=String("user"), value=Json("n int")).to(topics[1], key=String("user"))
    produce(topics[0], [("a", {"n": n}) for n in range(10)])
    streams = instance(builder)
    streams.start()
    wanted = counts(a=10) if stateful else {b"a": {"user": "a", "n": 9}}
    wait_for_table(topics[1], wanted, streams)
    created_again(kafka, topics[0], produce, [("b", {"n": n}) for n in range(30)])
    wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
    with pytest.raises(StreamsException, match=f"source topic '{topics[0]}' was deleted and created again"):
        streams.awaitTermination(LONG)


@pytest.mark.long
def test_the_topic_of_a_table_was_created_again(
    instance, topics, make_topic, kafka, produce, wait_for_table, ends_with
):
    table = make_topic("users", 1)

    def joined():
        builder = StreamsBuilder()
        users = builder.table(table, key=String("user"), value=Json("name string"))
        orders = builder.stream(topics[0], key=String("user"), value=Json("n int"))
        orders.join(users, "user", "left").select("user", "n", "name").to(topics[1], key=String("user"))
        return builder

    produce(table, [("x", {"name": "old"}), ("y", {"name": "old"})])
    with instance(joined()) as streams:
        streams.start()
        produce(topics[0], [("x", {"n": 1})])
        wait_for_table(topics[1], {b"x": {"user": "x", "n": 1, "name": "old"}}, streams)
    created_again(kafka, table, produce, [("x", {"name": "new"}), ("z", {"name": "new"}), ("w", {"name": "new"})])
    ends_with(rf"task 0_0: source topic '{table}' was deleted and created again", pipeline=joined)


@pytest.mark.long
def test_a_changelog_was_deleted(ran_before, kafka, application_id, ends_with):
    delete_topic(kafka.bootstrap_servers, f"{application_id}-users-changelog")
    ends_with(MADE_ANEW, StateStoreException)


@pytest.mark.long
def test_where_local_state_is_left_it_is_removed_before_an_empty_store_is_accepted(
    ran_before, kafka, application_id, topics, produce, instance, wait_for_table, wait_until, set_by_hand
):
    """The error names the directory. The offsets alone change nothing."""
    delete_topic(kafka.bootstrap_servers, f"{application_id}-users-changelog")
    set_by_hand(topics[0], 10)
    streams = instance(counting(*topics))
    streams.start()
    wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
    with pytest.raises(StateStoreException, match=MADE_ANEW) as refused:
        streams.awaitTermination(LONG)
    (directory,) = re.findall(r"empty store: first remove (\S+),", str(refused.value))
    remove_folder(directory)
    produce(topics[0], [("a", {"n": n}) for n in range(3)])
    with instance(counting(*topics)) as streams:
        streams.start()
        wait_for_table(topics[1], counts(a=3), streams)


@pytest.mark.parametrize("behind", [lambda table: table, lambda table: table.to_stream().where("count > 0")])
def test_a_changelog_is_created_again_while_the_instance_runs(
    counted, instance, topics, kafka, produce, application_id, fails_with, consumed, tmp_path, behind
):
    """The new changelog would have the later changes alone, and an instance without state would believe it."""
    name = f"{application_id}-users-changelog"
    streams = counted(behind=behind)
    delete_topic(kafka.bootstrap_servers, name)
    create_topic(kafka.bootstrap_servers, name, partitions=1)
    produce(topics[0], [("a", {"n": 0})])
    fails_with(streams, StreamsException, f"task 0_0: changelog '{name}' was deleted and created again while")
    assert {json.loads(value)["count"] for *_, value in consumed(topics[1])} <= set(range(1, 11)), "it was committed"
    lost = rf"task 0_0: the changelog of store 'users' \('{name}'\) was deleted and created again, and has no state"
    streams = instance(counting(*topics), {"state.dir": str(tmp_path / "other")})
    streams.start()
    fails_with(streams, StreamsException, lost)


@pytest.mark.long
def test_a_changelog_is_created_again_by_a_rebalance_while_the_instance_runs(
    counted, instance, topics, kafka, produce, application_id, fails_with, tmp_path
):
    """The group's leader creates internal topics that are missing. The task stays, or it moves and comes back."""
    name = f"{application_id}-users-changelog"
    streams = counted()
    delete_topic(kafka.bootstrap_servers, name)
    other = instance(counting(*topics), {"state.dir": str(tmp_path / "other")})
    other.start()
    produce(topics[0], [("a", {"n": 0})])
    fails_with(
        streams, SparkRelayError, f"task 0_0: .*changelog '{name}' .*was deleted and created again (while|since)"
    )
    fails_with(other, StreamsException, rf"task 0_0: the changelog of store 'users' \('{name}'\) was deleted and")


@pytest.mark.long
def test_a_changelog_is_deleted_while_the_instance_runs(counted, topics, kafka, produce, application_id, fails_with):
    name = f"{application_id}-users-changelog"
    streams = counted({"default.api.timeout.ms": 5000})
    delete_topic(kafka.bootstrap_servers, name)
    produce(topics[0], [("a", {"n": 0})])
    words = f"{name}-0 did not exist .* '{name}' is the changelog of store 'users', .* sparkrelay reset"
    fails_with(streams, UnknownTopicException, words)


@pytest.mark.long
def test_a_changelog_was_deleted_and_is_longer_by_now(ran_before, kafka, application_id, topics, ends_with, produce):
    """By its offsets alone nobody could distinguish the new changelog from the old one."""
    name = f"{application_id}-users-changelog"
    delete_topic(kafka.bootstrap_servers, name)
    create_topic(kafka.bootstrap_servers, name, partitions=1)
    produce(name, [("x", "y")] * 100)
    ends_with(MADE_ANEW, StateStoreException)


@pytest.mark.long
@pytest.mark.parametrize("whose", ["somebody else's", pytest.param("our own", marks=pytest.mark.long)])
def test_a_state_that_was_lost_with_its_changelog_is_refused_until_an_operator_accepts_it(
    ran_before, kafka, application_id, topics, ends_with, produce, instance, wait_for_table, whose
):
    """No local state is left that would name the old changelog."""
    instance(counting(*topics)).clean_up()
    name = f"{application_id}-users-changelog"
    delete_topic(kafka.bootstrap_servers, name)
    if whose == "somebody else's":
        create_topic(kafka.bootstrap_servers, name, partitions=1)
    wanted = rf"task 0_0: the changelog of store 'users' \('{name}'\) was deleted and created again, and has no state"
    for _ in range(2):
        ends_with(wanted)
    where = ["--application-id", application_id, "--bootstrap-servers", kafka.bootstrap_servers, "--topic", topics[0]]
    assert run(["offsets", "set", *where, "--to", "current", "--execute"]) == 0
    produce(topics[0], [("a", {"n": n}) for n in range(3)])
    for count in (3, 4):
        with instance(counting(*topics)) as streams:
            streams.start()
            wait_for_table(topics[1], counts(a=count), streams)
        instance(counting(*topics)).clean_up()
        produce(topics[0], [("a", {"n": 0})])


@pytest.mark.long
def test_the_groups_offset_is_the_way_out_where_records_are_gone(
    ran_before, topics, kafka, produce, application_id, instance, wait_for_table
):
    produce(topics[0], [("b", {"n": n}) for n in range(10)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (purged,) = admin.delete_records([Theirs(topics[0], 0, 15)]).values()
    purged.result(LONG)
    moved = ConsumerGroupTopicPartitions(application_id, [Theirs(topics[0], 0, 17)])
    (done,) = admin.alter_consumer_group_offsets([moved]).values()
    done.result(LONG)
    streams = instance(counting(*topics))
    streams.start()
    wait_for_table(topics[1], counts(a=10, b=3), streams)


@pytest.fixture
def widened(kafka):
    """`widened(topic, partitions)`: a topic gets more partitions, and the broker shows them."""

    def widen(topic, partitions):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(LONG)

    return widen


def test_partitions_that_a_source_gets_are_refused_where_there_is_state(
    instance, topics, produce, wait_for_table, widened, caplog, fails_with
):
    produce(topics[0], [("a", {"n": 1})])
    streams = instance(counting(*topics))
    streams.start()
    wait_for_table(topics[1], counts(a=1), streams)
    widened(topics[0], 2)
    fails_with(streams, StreamsException, rf"source topic '{topics[0]}' has 2 partitions now, not 1\. Producers")
    assert f"source topic {topics[0]!r} has 2 partitions by now, 1 of them are read; asking for" in caplog.text


def test_a_key_that_moves_to_another_partition_is_not_counted_anew(
    instance, make_topic, produce, consumed, wait_for_table, widened, fails_with
):
    """With three partitions `a` may belong to the other old one, whose task knows nothing of it."""
    source, out = make_topic("in", 2), make_topic("out", 1)
    produce(source, [{"key": "a", "value": '{"n": 1}', "partition": 0}] * 5)
    streams = instance(counting(source, out))
    streams.start()
    wait_for_table(out, counts(a=5), streams)
    widened(source, 3)
    produce(source, [{"key": "a", "value": '{"n": 1}', "partition": 1}])
    fails_with(streams, StreamsException, rf"source topic '{source}' has .* partitions now, not 2\. Producers")
    written = [json.loads(value)["count"] for *_, value in consumed(out)]
    assert written == sorted(written)


@pytest.mark.long
def test_a_source_may_get_partitions_before_a_repartition_of_fixed_width(
    instance, make_topic, produce, wait_for_table, widened
):
    source, out = make_topic("in", 2), make_topic("out", 1)

    def pipeline():
        builder = StreamsBuilder()
        stream = builder.stream(source, key=String("user"), value=Json("n int")).repartition("user", partitions=2)
        stream.groupBy("user").count(name="users").to(out)
        return builder

    produce(source, [{"key": "a", "value": '{"n": 1}', "partition": 0}] * 5)
    streams = instance(pipeline())
    streams.start()
    wait_for_table(out, counts(a=5), streams)
    widened(source, 3)
    produce(source, [{"key": "a", "value": '{"n": 1}', "partition": number} for number in (1, 2)])
    wait_for_table(out, counts(a=7), streams)
    assert streams.exception() is None


@pytest.mark.long
def test_partitions_that_a_source_gets_are_taken_up_by_a_stateless_pipeline(
    instance, topics, produce, consumed, wait_until, widened
):
    builder = StreamsBuilder()
    builder.stream(topics[0]).to(topics[1])
    streams = instance(builder, {"auto.offset.reset": "latest"})
    streams.start()
    wait_until(lambda: streams.state == "RUNNING", f"{streams.status}, not RUNNING")
    widened(topics[0], 2)
    produce(topics[0], [{"key": "a", "value": "old", "partition": 0}, {"key": "a", "value": "new", "partition": 1}])
    wait_until(lambda: len(consumed(topics[1])) == 2 or streams.exception(), f"not both: {streams.status}")
    assert sorted(value for *_, value in consumed(topics[1])) == [b"new", b"old"]
    assert streams.exception() is None


@pytest.mark.long
def test_partitions_of_a_source_that_go_to_a_task_which_is_there_already_are_taken_up(
    instance, topics, make_topic, produce, consumed, wait_until, widened
):
    """The other topic has that many: no task is new, and those that run know nothing of the partition."""
    wide = make_topic("wide", 2)
    builder = StreamsBuilder()
    builder.stream([topics[0], wide]).to(topics[1])
    streams = instance(builder)
    streams.start()
    produce(wide, [{"key": "a", "value": "first", "partition": 1}])
    wait_until(lambda: len(consumed(topics[1])) == 1, f"{streams.status}, and nothing is written")
    widened(topics[0], 2)
    produce(topics[0], [{"key": "a", "value": "second", "partition": 1}])
    wait_until(lambda: len(consumed(topics[1])) == 2 or streams.exception(), f"not both: {streams.status}")
    assert streams.exception() is None


@pytest.mark.long
def test_an_event_time_that_the_broker_refuses(instance, topics, produce, wait_until):
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], value=Json("t timestamp"), timestamp="t")
    stream.to(topics[1], value=Json())
    produce(topics[0], [("a", {"t": "2199-01-01T00:00:00Z"})])
    streams = instance(builder)
    streams.start()
    wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
    with pytest.raises(RecordRefusedException, match=r"event time.*message\.timestamp\.after\.max\.ms"):
        streams.awaitTermination(LONG)

"""Tables whose source topic is their changelog, on a broker: no copy, restores and standbys up to the group's offsets.

Kafka's OptimizedKTableIntegrationTest and KTableSourceTopicRestartIntegrationTest, among others.
"""

import json
import logging

import pytest
from confluent_kafka import Producer
from tests.integration.runtime.conftest import active
from tests.waiting import LONG, remove_folder

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.devkafka.topics import delete_topic
from sparkrelay.errors import IncompatibleTopologyException, StreamsException
from sparkrelay.runtime.tasks.state_updater import StateUpdater

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

REUSED = {"topology.optimization": "reuse.ktable.source.topics"}
COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def topics(make_topic):
    """The table's topic, a stream's, what orders find, and the table as it is written."""
    return make_topic("people", 2, COMPACTED), make_topic("orders", 2), make_topic("found", 2), make_topic("copies", 2)


@pytest.fixture
def start(instance, topics, tmp_path):
    """`start(state="state", **settings)` starts an instance with that state."""

    def run(state="state", **settings):
        builder = StreamsBuilder()
        people = builder.table(topics[0], key=String("user"), value=Json("name string"), name="people")
        orders = builder.stream(topics[1], key=String("user"), value=Json("n int"))
        orders.join(people, "user", "left").select("user", "name", "n").to(topics[2], value=Json())
        people.to(topics[3], value=Json())
        given = {name.replace("_", "."): value for name, value in settings.items()}
        streams = instance(builder, {"state.dir": str(tmp_path / state), **REUSED, **given})
        streams.start()
        return streams

    return run


@pytest.fixture
def name_people(topics, produce, wait_for_table):
    """`name_people(streams, {user: name})` changes the table, and waits until that was taken in."""
    known = {}

    def run(streams, names):
        produce(topics[0], [(user, None if name is None else {"name": name}) for user, name in names.items()])
        for user, name in names.items():
            known[user.encode()] = None if name is None else {"user": user, "name": name}
        wait_for_table(topics[3], known, *streams)

    return run


@pytest.fixture
def find(topics, produce, consumed, wait_until):
    """`find({user: name})` orders for those users, and waits until the table has given those names."""
    numbers = iter(range(1, 10_000))

    def run(names, *streams):
        number = next(numbers)
        produce(topics[1], [(user, {"n": number}) for user in names])

        def found():
            assert [one.exception() for one in streams if one.exception()] == []
            rows = [json.loads(value) for *_, value in consumed(topics[2])]
            return {row["user"]: row.get("name") for row in rows if row["n"] == number}

        wait_until(lambda: len(found()) == len(names), f"not all of {names} were answered")
        assert found() == names

    return run


def own_topics(kafka_admin, application_id):
    return [name for name in kafka_admin.list_topics(timeout=LONG).topics if name.startswith(application_id)]


@pytest.mark.long
def test_a_table_is_restored_where_its_state_is_gone_and_nothing_is_emitted_twice(
    start, topics, name_people, find, consumed, tmp_path, kafka_admin, application_id
):
    """The proof on a real broker; tests/integration/testing/test_source_changelogs.py has which rows are restored."""
    everybody = {f"u{number}": f"name {number}" for number in range(40)}
    with start() as streams:
        name_people([streams], everybody)
        name_people([streams], {"u1": "other", "u2": None})
        now = {**everybody, "u1": "other", "u2": None}
        find(now, streams)
    assert own_topics(kafka_admin, application_id) == []
    with start() as streams:
        find(now, streams)
    remove_folder(tmp_path / "state")
    with start() as streams:
        find(now, streams)
        name_people([streams], {"u3": "third"})
        find({**now, "u3": "third"}, streams)
    assert len(consumed(topics[3])) == 40 + 2 + 1, "each change went out once"
    assert own_topics(kafka_admin, application_id) == []


@pytest.mark.long
def test_what_is_written_during_a_restore_is_no_part_of_it(
    start, topics, name_people, find, produce, consumed, wait_for_table, tmp_path, monkeypatch
):
    """It is taken in as any other change, and goes out: beyond the group's offset there is input, no state."""
    everybody = {f"u{number}": f"name {number}" for number in range(40)}
    with start() as streams:
        name_people([streams], everybody)
    remove_folder(tmp_path / "state")
    produce(topics[0], [("u1", {"name": "while it was down"})])
    assign = StateUpdater.assign

    def meanwhile(updater, works):
        produce(topics[0], [("u2", {"name": "meanwhile"}), ("u3", None)])
        monkeypatch.setattr(StateUpdater, "assign", assign)
        assign(updater, works)

    monkeypatch.setattr(StateUpdater, "assign", meanwhile)
    changed = {"u1": "while it was down", "u2": "meanwhile", "u3": None}
    with start() as streams:
        rows = {
            user: None if name is None else {"user": user, "name": name}
            for user, name in {**everybody, **changed}.items()
        }
        wait_for_table(topics[3], {user.encode(): row for user, row in rows.items()}, streams)
        find({**everybody, **changed}, streams)
    assert len(consumed(topics[3])) == 40 + 3, "each change went out once"


@pytest.mark.long
def test_a_standby_follows_the_topic_and_takes_over(start, topics, name_people, find, consumed, wait_until):
    everybody = {f"u{number}": f"name {number}" for number in range(40)}
    more = {"num.standby.replicas": 1, "acceptable.recovery.lag": 10}
    with start("one", **more) as one, start("other", **more) as other:
        wait_until(lambda: len(active(one)) == len(active(other)) == 1, "the two do not share the tasks")
        name_people([one, other], everybody)

        def copies():
            return {
                task.task_id: dict(task.changelog_offsets)
                for thread in other.metadata_for_local_threads()
                for task in thread.standby_tasks
            }

        (standby,) = active(one)
        partition = int(standby.partition("_")[2])
        taken = sum(message[1] == partition for message in ((p, p) for p, *_ in consumed(topics[0])))
        wait_until(lambda: sum(copies().get(standby, {}).values()) >= taken, "the standby does not follow")
        assert one.stop(LONG)
        wait_until(lambda: len(active(other)) == 2, "the other does not take over")
        find(everybody, other)
        name_people([other], {"u5": "fifth", "u6": None})
        find({**everybody, "u5": "fifth", "u6": None}, other)
    assert len(consumed(topics[3])) == 42, "each change went out once"


@pytest.mark.long
def test_what_was_aborted_is_not_restored(start, topics, name_people, find, kafka, tmp_path):
    with start() as streams:
        name_people([streams], {"ada": "Ada"})
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"t-{topics[0]}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topics[0], json.dumps({"name": "nobody"}), "ada")
        assert producer.flush(30) == 0
        producer.abort_transaction(30)
        name_people([streams], {"bob": "Bob"})
    remove_folder(tmp_path / "state")
    with start() as streams:
        find({"ada": "Ada", "bob": "Bob"}, streams)


@pytest.mark.long
def test_a_group_that_was_set_back_reads_the_table_again_from_there(
    start, topics, name_people, find, kafka_admin, application_id, consumed, wait_until
):
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    with start() as streams:
        name_people([streams], {"ada": "Ada"})
        name_people([streams], {"ada": "Ada L."})
    back = [TopicPartition(topics[0], number, 0) for number in range(2)]
    wait_until(
        lambda: not kafka_admin.describe_consumer_groups([application_id])[application_id].result(LONG).members,
        "the group is not empty",
    )
    kafka_admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(application_id, back)])[
        application_id
    ].result(LONG)
    # The copy that is there has more than the group, and is no word on what was read.
    with start() as streams:
        find({"ada": "Ada L."}, streams)
        wait_until(lambda: len(consumed(topics[3])) in {3, 4}, "the changes did not go out again")


@pytest.mark.long
def test_going_over_to_it_and_back_is_refused_with_what_to_do(
    start, topics, name_people, find, kafka, kafka_admin, application_id, fails_with, tmp_path
):
    plain = {"topology.optimization": "none"}
    with start(**plain) as streams:
        name_people([streams], {"ada": "Ada"})
    changelog = f"{application_id}-people-changelog"
    assert own_topics(kafka_admin, application_id) == [changelog]
    with pytest.raises(IncompatibleTopologyException, match=f"--delete --topic {changelog}"):
        start()
    delete_topic(kafka.bootstrap_servers, changelog)
    with start() as streams:
        find({"ada": "Ada"}, streams)
        name_people([streams], {"bob": "Bob"})
    remove_folder(tmp_path / "state")
    fails_with(start(**plain), StreamsException, "its own would lack all rows.* sparkrelay reset")
    with start() as streams:
        find({"ada": "Ada", "bob": "Bob"}, streams)


@pytest.fixture
def alter(kafka_admin, topics):
    """`alter(**settings)` changes settings of the table's topic."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    def run(**settings):
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topics[0], incremental_configs=entries)
        kafka_admin.incremental_alter_configs([resource])[resource].result(LONG)

    return run


@pytest.mark.long
def test_a_topic_that_deletes_rows_is_refused(start, alter):
    alter(cleanup_policy="delete", retention_ms="86400000")
    with pytest.raises(StreamsException, match=r"deletes records \(retention.ms=86400000.*cleanup.policy=compact"):
        start()


@pytest.mark.long
def test_a_topic_whose_beginning_is_gone_is_warned_of(
    start, topics, name_people, find, alter, kafka_admin, tmp_path, caplog, wait_until
):
    from confluent_kafka import KafkaException, TopicPartition

    with start() as streams:
        name_people([streams], {"ada": "Ada", "bob": "Bob", "cid": "Cid"})
        name_people([streams], {"ada": "Ada L."})
    ends = {p: kafka_admin.list_offsets({p: _latest()})[p].result(LONG).offset for p in _both(topics[0])}
    (ada,) = [p for p in ends if _of(p, "ada")]
    # A topic that is only compacted refuses it, and the broker has its settings a little later.
    alter(cleanup_policy="compact,delete")
    cut = TopicPartition(topics[0], ada.partition, ends[ada] - 1)

    def is_cut():
        try:
            kafka_admin.delete_records([cut])[cut].result(LONG)
        except KafkaException:
            return False
        return True

    wait_until(is_cut, "the topic is not cut")
    remove_folder(tmp_path / "state")
    with caplog.at_level(logging.WARNING), start() as streams:
        find({"ada": "Ada L."}, streams)
    assert f"{topics[0]}-{ada.partition} begins at offset {ends[ada] - 1}" in caplog.text


def _latest():
    from confluent_kafka.admin import OffsetSpec

    return OffsetSpec.latest()


def _both(topic):
    from confluent_kafka import TopicPartition

    return [TopicPartition(topic, number) for number in range(2)]


def _of(partition, key):
    import pyarrow as pa

    from sparkrelay.records.partition import murmur2_partitions

    return murmur2_partitions(pa.array([key.encode()], pa.binary()), 2)[0] == partition.partition

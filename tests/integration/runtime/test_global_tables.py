"""Global tables of real instances: complete before the first row, followed from then on, kept over a restart."""

import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from tests.waiting import LONG, remove_folder

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.devkafka.topics import create_topic, delete_topic
from sparkrelay.errors import MissingSourceTopicException, SerializationException, StreamsException

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

CONTINENTS = {"fr": "Europe", "jp": "Asia", "ke": "Africa", "pe": "America", "nz": "Oceania", "de": "Europe"}


@pytest.fixture
def topics(make_topic):
    """The table's topic, which is not divided as the stream's is, that one, and the sink."""
    return make_topic("countries", 3), make_topic("orders", 2), make_topic("located", 1)


@pytest.fixture
def start(instance, topics, tmp_path):
    """`start(state="state")` starts an instance with that state."""

    def run(state="state"):
        builder = StreamsBuilder()
        table = builder.global_table(topics[0], key=String("country"), value=Json("continent string"), name="geo")
        orders = builder.stream(topics[1], key=String("id"), value=Json("country string"))
        orders.join(table, "country", "left").select("id", "continent").to(topics[2], value=Json())
        streams = instance(builder, {"state.dir": str(tmp_path / state)})
        streams.start()
        return streams

    return run


@pytest.fixture
def locate(topics, produce, wait_for_table):
    """`locate(streams, expected)` orders from countries, and waits for what was found for them; ids are used once."""
    seen = {}

    def run(streams, expected):
        ids = {country: f"{len(seen)}-{country}" for country in expected}
        produce(topics[1], [(ids[country], {"country": country}) for country in expected])
        for country, value in expected.items():
            found = {"id": ids[country]} | ({} if value is None else {"continent": value})
            seen[ids[country].encode()] = found
        wait_for_table(topics[2], seen, streams)

    return run


def fill(produce, topic, rows=CONTINENTS):
    produce(topic, [(country, None if value is None else {"continent": value}) for country, value in rows.items()])


def test_it_is_complete_before_the_first_row_and_kept_over_a_restart(start, topics, produce, locate, tmp_path):
    """The proof on a real broker; tests/integration/testing/test_global_tables.py has what rows find."""
    fill(produce, topics[0])
    with start() as streams:
        locate(streams, {**CONTINENTS, "xx": None})
    assert len(list((tmp_path / "state").rglob("global/geo"))) == 1
    fill(produce, topics[0], {"fr": None, "xx": "Nowhere", "jp": "East"})
    with start() as streams:
        locate(streams, {"fr": None, "xx": "Nowhere", "jp": "East", "ke": "Africa"})
    # On another host there is none of it.
    with start("elsewhere") as streams:
        locate(streams, {"fr": None, "xx": "Nowhere", "nz": "Oceania"})


@pytest.mark.long
def test_two_instances_have_each_the_whole(start, topics, produce, locate):
    fill(produce, topics[0])
    with start("one") as one, start("other") as other:
        locate(one, CONTINENTS)
        assert other.exception() is None
        locate(other, {"xx": None, **CONTINENTS})


@pytest.mark.long
def test_changes_are_followed_while_it_runs(start, topics, produce, locate, consumed, wait_until):
    fill(produce, topics[0], {"fr": "Europe"})
    with start() as streams:
        locate(streams, {"fr": "Europe", "tr": None})
        fill(produce, topics[0], {"tr": "Asia"})
        number = 0

        def found():
            nonlocal number
            number += 1
            produce(topics[1], [(f"try {number}", {"country": "tr"})])
            assert streams.exception() is None
            return any(b"Asia" in value for *_, value in consumed(topics[2]))

        wait_until(found, "the change was not followed")


@pytest.mark.long
def test_what_was_aborted_is_not_found(start, topics, produce, locate, kafka):
    fill(produce, topics[0], {"fr": "Europe"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"fill-{topics[0]}"})
    producer.init_transactions(30)
    for keeps, rows in (
        (False, {"fr": "Nowhere", "jp": "Nowhere"}),
        (True, {"jp": "Asia"}),
        (False, {"jp": "Nowhere"}),
    ):
        producer.begin_transaction()
        for country, continent in rows.items():
            producer.produce(topics[0], json.dumps({"continent": continent}), country)
        assert producer.flush(30) == 0
        (producer.commit_transaction if keeps else producer.abort_transaction)(30)
    with start() as streams:
        locate(streams, {"fr": "Europe", "jp": "Asia"})


@pytest.mark.long
def test_a_topic_that_was_made_anew_is_read_anew(start, topics, produce, locate, kafka):
    fill(produce, topics[0])
    with start() as streams:
        locate(streams, {"fr": "Europe"})
    delete_topic(kafka.bootstrap_servers, topics[0])
    create_topic(kafka.bootstrap_servers, topics[0], partitions=1)
    fill(produce, topics[0], dict.fromkeys([*CONTINENTS, *map(str, range(50))], "New"))
    with start() as streams:
        locate(streams, {"fr": "New", "49": "New", "50": None})


@pytest.mark.long
@pytest.mark.parametrize("rows", [1, 30], ids=["shorter", "longer"])
def test_a_topic_that_is_made_anew_while_it_is_read_is_refused(start, topics, produce, locate, kafka, fails_with, rows):
    """Its positions mean nothing in the new topic, and those who look into the copy have it open."""
    fill(produce, topics[0])
    streams = start()
    locate(streams, {"fr": "Europe"})
    delete_topic(kafka.bootstrap_servers, topics[0])
    create_topic(kafka.bootstrap_servers, topics[0], partitions=3)
    fill(produce, topics[0], {f"new{n}": "Pangaea" for n in range(rows)})
    fails_with(
        streams, StreamsException, rf"topic '{topics[0]}' of the global table 'geo' was deleted and created again"
    )
    streams.stop()
    with start() as streams:
        locate(streams, {"new0": "Pangaea", "fr": None})


@pytest.mark.long
def test_a_damaged_copy_is_read_anew(start, topics, produce, locate, tmp_path):
    fill(produce, topics[0])
    with start() as streams:
        locate(streams, {"fr": "Europe"})
    (copy,) = (tmp_path / "state").rglob("global/geo")
    (copy / "data.mdb").write_bytes(b"\0" * 65536)
    with start() as streams:
        locate(streams, {"jp": "Asia"})


@pytest.mark.long
def test_partitions_that_it_gets_are_read(
    start, topics, produce, locate, kafka_admin, monkeypatch, consumed, wait_until
):
    monkeypatch.setattr("sparkrelay.runtime.thread.global_stream_thread._TOPICS_SECONDS", 0.5)
    fill(produce, topics[0])
    with start() as streams:
        locate(streams, {"fr": "Europe"})
        kafka_admin.create_partitions([NewPartitions(topics[0], 6)])[topics[0]].result(LONG)
        more = dict.fromkeys(map(str, range(40)), "New")
        fill(produce, topics[0], more)
        number = 0

        def found():
            nonlocal number
            number += 1
            produce(topics[1], [(f"try {number} {country}", {"country": country}) for country in more])
            assert streams.exception() is None
            keys = {key.split()[2] for _, _, key, value in consumed(topics[2]) if b"New" in value}
            return len(keys) == len(more)

        wait_until(found, "the new partitions were not read")


def test_a_topic_that_is_not_there_is_named(instance, make_topic):
    builder = StreamsBuilder()
    table = builder.global_table("no-such-countries", key=String("country"), value=Json("continent string"))
    builder.stream(make_topic("orders", 1), value=Json("country string")).join(table, "country").to(
        make_topic("out", 1)
    )
    with pytest.raises(MissingSourceTopicException, match="'no-such-countries' of a global table does not exist"):
        instance(builder).start()


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "while it runs"])
def test_a_record_that_does_not_decode_ends_the_instance(start, topics, produce, locate, fails_with, when):
    fill(produce, topics[0])
    if when == "before":
        produce(topics[0], [("zz", "not an object")])
    streams = start()
    if when != "before":
        locate(streams, {"fr": "Europe"})
        produce(topics[0], [("zz", "not an object")])
    fails_with(streams, SerializationException, f"record {topics[0]}-. at offset .* does not decode")


@pytest.mark.long
def test_without_its_directory_it_is_read_anew(start, topics, produce, locate, tmp_path):
    fill(produce, topics[0])
    with start() as streams:
        locate(streams, {"fr": "Europe"})
    (copy,) = (tmp_path / "state").rglob("global")
    remove_folder(copy)
    with start() as streams:
        locate(streams, {"jp": "Asia"})

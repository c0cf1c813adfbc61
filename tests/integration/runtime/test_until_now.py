"""An instance that runs until all that was there is processed, and goes on in its next run."""

import threading

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import StreamsException, UnknownTopicException

pytestmark = pytest.mark.integration


def pipeline(orders, users, counts):
    builder = StreamsBuilder()
    stream = builder.stream(orders, key=String("id"), value=Json("user string"))
    by_user = stream.groupBy("user").agg(F.count("*").alias("n"))
    by_user.to(users, value=Json())
    by_user.groupBy("n").agg(F.count("*").alias("users")).to(counts, value=Json())
    return builder


@pytest.fixture
def topics(make_topic):
    return make_topic("orders", 2), make_topic("users", 2), make_topic("counts", 2)


def orders_of(users, times):
    return [(f"{user}{number}", {"user": user}) for number in range(times) for user in users]


def newest(consumed, topic):
    return {key: value for *_, key, value in consumed(topic) if value is not None}


def test_each_run_processes_what_is_there_and_goes_on_with_its_state(instance, topics, produce, consumed):
    orders, users, counts = topics
    builder = pipeline(*topics)
    # Nothing is there at all.
    instance(builder, {"auto.offset.reset": "earliest"}).run(until="now")
    assert consumed(users) == []
    for run in (1, 2):
        produce(orders, orders_of("abcde", 40))
        streams = instance(builder, {"auto.offset.reset": "earliest"})
        streams.run(until="now")
        assert streams.state == "NOT_RUNNING"
        assert sorted(newest(consumed, users).values()) == [
            f'{{"user":"{user}","n":{40 * run}}}'.encode() for user in "abcde"
        ]
        # Behind a second topic, too.
        assert f'{{"n":{40 * run},"users":5}}'.encode() in newest(consumed, counts).values()
    with pytest.raises(StreamsException, match="Make another KafkaStreams"):
        streams.run(until="now")


@pytest.mark.long
def test_several_instances_end_together_while_more_comes(instance, topics, produce, consumed, tmp_path):
    orders, users, _ = topics
    builder = pipeline(*topics)
    produce(orders, orders_of("abcde", 200))
    settings = {"auto.offset.reset": "earliest", "max.batch.records": 100}
    both = [instance(builder, {**settings, "state.dir": str(tmp_path / f"state{n}")}) for n in range(2)]
    threads = [threading.Thread(target=one.run, kwargs={"until": "now"}) for one in both]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        produce(orders, orders_of("z", 1))
        threads[0].join(0.2)
        threads[1].join(0.2)
    assert [one.exception() for one in both] == [None, None]
    found = newest(consumed, users)
    assert [found[user.encode()] for user in "abcde"] == [f'{{"user":"{user}","n":200}}'.encode() for user in "abcde"]


def test_what_cannot_run_ends_the_run(instance, topics, make_topic):
    orders, users, counts = topics
    with pytest.raises(UnknownTopicException, match="no-such-topic"):
        instance(pipeline("no-such-topic", users, counts)).run(until="now")
    with pytest.raises(ValueError, match='takes until="now"'):
        instance(pipeline(orders, users, counts)).run(until="2026-01-01")

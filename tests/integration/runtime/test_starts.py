"""Sources that say where their topics are read first, on a broker."""

import datetime as dt

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import StreamsException

pytestmark = pytest.mark.integration


def numbers(consumed, topic):
    return sorted(int(value) for *_, value in consumed(topic))


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_each_source_begins_where_it_says(instance, make_topic, produce, consumed, reset):
    """By offsets, by time and at both ends, beside a setting that says something else; later runs go on."""
    topics = {name: make_topic(name) for name in ("offsets", "times", "earliest", "latest")}
    sink = make_topic("out")
    first = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(hours=1)
    for topic in topics.values():
        for number in range(8):
            at = first + dt.timedelta(minutes=number)
            produce(topic, [{"key": "a", "value": str(number), "timestamp": int(at.timestamp() * 1000)}])
    starts = {"offsets": {0: 6}, "times": first + dt.timedelta(minutes=5), "earliest": "earliest", "latest": "latest"}

    def run():
        builder = StreamsBuilder()
        for name, topic in topics.items():
            builder.stream(topic, starting=starts[name]).to(sink)
        instance(builder, {"auto.offset.reset": reset}).run(until="now")

    run()
    assert numbers(consumed, sink) == sorted([6, 7, 5, 6, 7, *range(8)])
    for topic in topics.values():
        produce(topic, [("a", "9")])
    run()
    assert numbers(consumed, sink) == sorted([6, 7, 5, 6, 7, *range(8), 9, 9, 9, 9])


def test_a_table_is_read_whole_beside_streams_that_begin_at_the_end(
    instance, make_topic, produce, consumed, wait_until
):
    users, orders, sink = make_topic("users"), make_topic("orders"), make_topic("out")
    produce(users, [("u", {"name": "Ada"})])
    produce(orders, [("u", {"n": 1})])
    builder = StreamsBuilder()
    names = builder.table(users, key=String("user"), value=Json("name string"), starting="earliest")
    stream = builder.stream(orders, key=String("user"), value=Json("n int"))
    stream.join(names, "user").to(sink, value=Json())
    streams = instance(builder, {"auto.offset.reset": "latest"})
    streams.start()
    wait_until(lambda: streams.state == "RUNNING" or streams.exception(), "it does not run")
    produce(orders, [("u", {"n": 2})])
    wait_until(lambda: consumed(sink) or streams.exception(), "no row")
    assert [value for *_, value in consumed(sink)] == [b'{"user":"u","n":2,"name":"Ada"}']


def test_an_offset_that_the_topic_does_not_have_ends_the_instance(instance, make_topic, produce, wait_until):
    source, sink = make_topic("orders"), make_topic("out")
    produce(source, [("a", "1")])
    builder = StreamsBuilder()
    builder.stream(source, starting={0: 5}).to(sink)
    streams = instance(builder)
    with pytest.raises(StreamsException, match=r"starting= says offset 5 of .*, which has the offsets 0 to 1"):
        streams.run(until="now")

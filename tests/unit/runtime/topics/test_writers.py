import pytest

from sparkrelay.records.formats import Json, String
from sparkrelay.runtime.topics.layout import lay_out
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.topology import StreamsBuilder
from sparkrelay.types import TaskId, TopicPartition

pytestmark = pytest.mark.usefixtures("spark")


def layout(*, chained=False, timed=True, sinks=1):
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("user"), value=Json("at timestamp, place string, way string"))
    rows = rows.withWatermark("at", "1 minute") if timed else rows
    for number in range(sinks):
        way = rows.repartition("way", name=f"way-{number:0>150}") if chained else rows
        way.groupBy("place").count(name=f"counts-{number}")
    return lay_out(builder.build(), TopicNames("app"), {"in": 2})


def inputs(topic):
    return tuple((TopicPartition(topic, number),) for number in range(2))


def test_those_that_write_a_topic_by_whose_event_times_is_gone():
    found = layout()
    [(topic, writers)] = found.writers.items()
    assert (writers.tasks, writers.upstream) == (inputs("in"), frozenset())
    assert found.tasks[TaskId(0, 1)].timed_sinks == {topic}
    assert found.tasks[TaskId(1, 1)].timed_sinks == frozenset()


def test_behind_two_topics_the_first_writers_are_upstream():
    found = layout(chained=True)
    first, second = sorted(found.writers, key=lambda topic: len(found.writers[topic].upstream))
    assert found.writers[second].tasks == inputs(first)
    assert found.writers[second].upstream == {partition for some in inputs("in") for partition in some}


def test_without_a_watermark_nobody_is_asked():
    assert layout(timed=False).writers == {}


@pytest.mark.parametrize(("sinks", "known"), [(2, True), (40, False)])
def test_what_a_commit_cannot_say_is_not_asked_for(sinks, known):
    found = layout(chained=True, sinks=sinks)
    of_first = [topic for topic, writers in found.writers.items() if not writers.upstream]
    assert bool(of_first) == known


@pytest.mark.parametrize("also_at_once", [False, True])
def test_a_topic_that_its_own_readers_write_is_waited_for_by_nobody(also_at_once):
    builder = StreamsBuilder()
    rates = builder.table("rates", key=String("user"), value=Json("rate int"), history="1 hour")
    orders = builder.stream("in", key=String("user"), value=Json("n int"))
    orders.join(rates, "user", grace="1 minute").to("waited")
    if also_at_once:
        orders.join(rates, "user").to("at-once")
    found = lay_out(builder.build(), TopicNames("app"), {"in": 2, "rates": 2, "waited": 2, "at-once": 2})
    assert len(found.writers) == (0 if also_at_once else 1)
    assert {task.subtopology for task in found.tasks} == ({0} if also_at_once else {0, 1})

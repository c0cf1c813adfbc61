"""What a pipeline's change means for what is there already, in words."""

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.runtime.topics.changes import changed_topics, new_stores, other_inputs
from sparkrelay.runtime.topics.layout import lay_out
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.types import TaskId, TopicPartition

pytestmark = pytest.mark.usefixtures("spark")

NAMES = TopicNames("app")


def layout():
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("user"), value=Json("n int"))
    stream.groupBy("user").count(name="users").to("out")
    return lay_out(builder.build(), NAMES, {"in": 2, "out": 1})


def test_topics_without_a_use():
    topics = {"app-users-changelog", "app-old-changelog", "app-old-repartition", "other-x-changelog", "in", "app-notes"}
    changelog, repartition = changed_topics(layout(), NAMES, topics)
    assert changelog.startswith(
        "topic 'app-old-changelog' is the changelog of store 'old', which this pipeline does not"
    )
    assert repartition.startswith("repartition topic 'app-old-repartition' is not read by this pipeline")


def test_a_store_that_begins_in_the_middle():
    read = {TopicPartition("in", 0): 0, TopicPartition("in", 1): 12}
    (sentence,) = new_stores(layout(), {"app-users-changelog"}, read)
    assert sentence.startswith(
        "store 'users' is new, or its changelog 'app-users-changelog' was deleted: it starts empty"
    )
    assert "(task 0_1: in-1 at 12)" in sentence
    assert not list(new_stores(layout(), {"app-users-changelog"}, {}))
    assert not list(new_stores(layout(), set(), read))


def test_a_source_that_was_renamed():
    task, old, new = TaskId(0, 0), TopicPartition("old", 0), TopicPartition("new", 0)
    sentence = other_inputs(task, {old}, (new,), {"new"})
    assert sentence is not None
    assert sentence.startswith("task 0_0: its state includes records of old-0, which this pipeline does not read")
    assert other_inputs(task, {old, new}, (new,), {"new"}) is None, "said once, when it changes"
    assert other_inputs(task, {new}, (new,), {"new"}) is None
    assert other_inputs(task, set(), (new,), {"new"}) is None
    assert other_inputs(task, {old}, (new,), set()) is None, "only stateless legs read it"

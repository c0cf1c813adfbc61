"""Pipelines that differ from the one that made the state, on a broker: directories, topics, and what the log says."""

import shutil

import pytest
from pyspark.sql import functions as F
from tests.waiting import LONG, remove_folder

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import IncompatibleTopologyException

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def aggregating(topics, *aggregates, **options):
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], key=String("user"), value=Json("n int, m int"))
    stream.groupBy("user").agg(*aggregates, **options).to(topics[1], value=Json())
    return builder


@pytest.fixture
def topics(make_topic):
    return make_topic("in", 1), make_topic("out", 1)


@pytest.fixture
def ran_before(instance, topics, produce, wait_for_table):
    """Sums of n and m were kept, and the instance was stopped."""
    produce(topics[0], [("a", {"n": 1, "m": 10}), ("a", {"n": 2, "m": 20})])
    builder = aggregating(topics, F.sum("n").alias("n"), F.sum("m").alias("m"))
    with instance(builder) as streams:
        streams.start()
        wait_for_table(topics[1], {b"a": {"user": "a", "n": 3, "m": 30}}, streams)


def test_another_aggregate_over_the_same_store_is_refused(ran_before, topics, instance, produce, fails_with, tmp_path):
    """The proof on a real broker; tests/integration/testing/test_changed_pipeline.py has the others."""
    remove_folder(tmp_path / "state")
    streams = instance(aggregating(topics, F.sum("m").alias("n"), F.sum("n").alias("m")))
    streams.start()
    produce(topics[0], [("a", {"n": 5, "m": 50})])
    words = r"holds sum\(n\) of int, sum\(m\) of int by user string, spread by the message key, but .* by user"
    fails_with(streams, IncompatibleTopologyException, words)


@pytest.mark.long
def test_state_of_another_application_is_set_aside(
    ran_before, topics, instance, wait_for_table, make_topic, tmp_path, application_id
):
    """A directory that was copied from another application: the input counts from its beginning."""
    shutil.copytree(tmp_path / "state" / application_id, tmp_path / "state" / f"{application_id}-other")
    sink = make_topic("out", 1)
    builder = aggregating((topics[0], sink), F.sum("n").alias("n"), F.sum("m").alias("m"))
    streams = instance(builder, {"application.id": f"{application_id}-other"})
    streams.start()
    wait_for_table(sink, {b"a": {"user": "a", "n": 3, "m": 30}}, streams)


def warnings(caplog, words):
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and words in r.getMessage()]


@pytest.mark.long
def test_a_renamed_store_is_a_new_one_and_that_is_said(
    ran_before, topics, instance, produce, wait_for_table, caplog, application_id, kafka_admin
):
    (before,) = (name for name in kafka_admin.list_topics(timeout=LONG).topics if name.startswith(application_id))
    builder = aggregating(topics, F.sum("n").alias("n"), F.sum("m").alias("m"), name="renamed")
    streams = instance(builder)
    streams.start()
    produce(topics[0], [("a", {"n": 5, "m": 50})])
    wait_for_table(topics[1], {b"a": {"user": "a", "n": 5, "m": 50}}, streams)
    (renamed,) = warnings(caplog, "which this pipeline does not have")
    assert renamed.startswith(f"topic {before!r} is the changelog of store ")
    (new,) = warnings(caplog, "it starts empty")
    assert new.startswith("store 'renamed' is new, or its changelog")


@pytest.mark.long
def test_nothing_is_said_where_nothing_changed(ran_before, topics, instance, produce, wait_for_table, caplog):
    streams = instance(aggregating(topics, F.sum("n").alias("n"), F.sum("m").alias("m")))
    streams.start()
    produce(topics[0], [("a", {"n": 5, "m": 50})])
    wait_for_table(topics[1], {b"a": {"user": "a", "n": 8, "m": 80}}, streams)
    assert not warnings(caplog, "pipeline")


@pytest.fixture
def two(make_topic):
    """`two(names)` gives a pipeline with the sources that are named, in that order."""
    inputs = {name: make_topic(name, 1) for name in ("orders", "clicks")}
    sink = make_topic("out", 1)

    def build(*names):
        builder = StreamsBuilder()
        for name in names:
            stream = builder.stream(inputs[name], key=String("user"), value=Json("n int"))
            stream.groupBy("user").agg(F.sum("n").alias(name), name=name).to(sink)
        return builder

    build.inputs, build.sink = inputs, sink
    return build


def sums(orders, clicks):
    return {b"o": {"user": "o", "orders": orders}, b"c": {"user": "c", "clicks": clicks}}


@pytest.mark.long
def test_sub_topologies_that_change_their_numbers(two, instance, produce, wait_for_table, tmp_path, application_id):
    """Task 0_0 becomes another one: the state that stands in its directory is not taken for its own."""
    expected = [0, 0]
    for names in (("orders", "clicks"), ("clicks", "orders"), ("orders", "clicks")):
        expected = [expected[0] + 1, expected[1] + 10]
        produce(two.inputs["orders"], [("o", {"n": 1})])
        produce(two.inputs["clicks"], [("c", {"n": 10})])
        with instance(two(*names)) as streams:
            streams.start()
            wait_for_table(two.sink, sums(*expected), streams)
    home = tmp_path / "state" / application_id / "0"
    aside = sorted(path.name for path in home.glob("*.corrupt-*"))
    assert aside == [f"{task}.corrupt-{n}" for task in ("0_0", "1_0") for n in (1, 2)]


@pytest.mark.long
def test_a_source_that_goes_and_comes_back(two, instance, produce, wait_for_table, caplog):
    for round_, names in enumerate([("orders", "clicks"), ("clicks",), ("orders", "clicks")]):
        produce(two.inputs["orders"], [("o", {"n": 1})])
        produce(two.inputs["clicks"], [("c", {"n": 10})])
        with instance(two(*names)) as streams:
            streams.start()
            # What came while nobody read it is read when it is read again.
            wait_for_table(two.sink, sums((1, 1, 3)[round_], 10 * (round_ + 1)), streams)
    (gone,) = warnings(caplog, "which this pipeline does not have")
    assert "is the changelog of store 'orders'" in gone


@pytest.mark.long
def test_a_source_of_another_name_under_the_same_store(instance, topics, produce, wait_for_table, make_topic, caplog):
    other = make_topic("in", 1)
    for source, n in ((topics[0], 1), (other, 2), (other, 3)):
        produce(source, [("a", {"n": 1, "m": 1})])
        with instance(aggregating((source, topics[1]), F.sum("n").alias("n"), name="users")) as streams:
            streams.start()
            wait_for_table(topics[1], {b"a": {"user": "a", "n": n}}, streams)
    (renamed,) = warnings(caplog, "was a source topic renamed?")
    assert f"its state includes records of {topics[0]}-0" in renamed
    assert f"continues with {other}-0" in renamed

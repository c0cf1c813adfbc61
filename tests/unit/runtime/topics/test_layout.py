import pytest

from sparkrelay.errors import MissingSourceTopicException, StreamsException, UnknownTopicException
from sparkrelay.records.formats import Json, String
from sparkrelay.runtime.topics.layout import lay_out, require_same_width
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.topology import StreamsBuilder
from sparkrelay.types import TaskId, TopicPartition

pytestmark = pytest.mark.usefixtures("spark")

NAMES = TopicNames("app")


def pipeline():
    """Count by the message key, and by a column that needs a repartition topic."""
    builder = StreamsBuilder()
    flights = builder.stream("flights", key=String("carrier"), value=Json("carrier string, origin string"))
    flights.groupBy("carrier").count(name="by-carrier").to("carriers", value=Json())
    flights.groupBy("origin").count(name="by-origin").to("origins", value=Json())
    return builder.build()


def test_tasks_and_topics_follow_the_source_topic():
    layout = lay_out(pipeline(), NAMES, {"flights": 2, "carriers": 3, "origins": 1})
    first, second = TaskId(0, 1), TaskId(1, 1)
    assert set(layout.tasks) == {TaskId(s, p) for s in (0, 1) for p in (0, 1)}
    assert layout.tasks[first].inputs == (TopicPartition("flights", 1),)
    assert layout.tasks[first].changelogs == {"by-carrier": TopicPartition("app-by-carrier-changelog", 1)}
    (repartition,) = {t for t in layout.internal_topics if "changelog" not in t}
    assert layout.tasks[second].inputs == (TopicPartition(repartition, 1),)
    assert {topic.partitions for topic in layout.internal_topics.values()} == {2}
    assert layout.internal_topics["app-by-carrier-changelog"].configs["cleanup.policy"] == "compact"
    # What one process plans to create counts as written already, whether or not the broker shows it yet.
    assert layout.sink_partitions == {"carriers": 3, "origins": 1, repartition: 2}
    assert layout.source_partitions == {"flights": 2}


def test_a_store_without_changelog_has_no_topic():
    builder = StreamsBuilder()
    flights = builder.stream("flights", key=String("carrier"), value=Json("carrier string"))
    flights.groupBy("carrier").count(name="by-carrier", logged=False)
    layout = lay_out(builder.build(), NAMES, {"flights": 1})
    assert layout.internal_topics == {}
    [shape] = layout.tasks.values()
    assert (shape.stores, shape.changelogs, shape.state_topics) == (("by-carrier",), {}, {"flights"})


@pytest.mark.parametrize(
    ("partitions", "error", "message"),
    [
        ({"carriers": 1, "origins": 1}, MissingSourceTopicException, "topic 'flights' does not exist; create it"),
        (
            {"origins": 1},
            MissingSourceTopicException,
            "topic 'flights' does not exist, nor does 'carriers'; create them",
        ),
        (
            {"flights": 2, "carriers": 1},
            UnknownTopicException,
            r"test_layout\.py:\d+: topic 'origins' of to\(\) does not exist",
        ),
    ],
)
def test_a_missing_topic_is_named(partitions, error, message):
    with pytest.raises(error, match=message) as raised:
        lay_out(pipeline(), NAMES, partitions)
    assert type(raised.value) is error


def test_a_changed_partition_count_is_refused():
    known = {"flights": 4, "carriers": 1, "origins": 1, "app-by-carrier-changelog": 2}
    with pytest.raises(StreamsException, match=r"topic 'flights' has 4 partitions now, not 2\..*sparkrelay reset"):
        lay_out(pipeline(), NAMES, known)


def test_partitions_of_a_repartition_that_were_changed_are_refused():
    builder = StreamsBuilder()
    flights = builder.stream("flights", key=String("carrier"), value=Json("origin string"))
    flights.repartition("origin", partitions=3, name="r").groupBy("origin").count(name="by-origin")
    known = {"flights": 4, "app-r-repartition": 2}
    with pytest.raises(StreamsException, match=r"'app-r-repartition' has 2 partitions.* needs 3: .*sparkrelay reset"):
        lay_out(builder.build(), NAMES, known)


def test_groupings_of_several_topics_are_those_that_wait_for_one():
    builder = StreamsBuilder()
    value = Json("time timestamp")
    both = builder.stream(["web", "app"], key=String("page"), value=value)
    both.groupBy("page").count(name="without")
    both.withWatermark("time", "1 minute").groupBy("page").count(name="both")
    builder.stream("web", key=String("page"), value=value).withWatermark("time", "1 minute").groupBy("page").count(
        name="one"
    )
    [shape] = lay_out(builder.build(), NAMES, {"web": 1, "app": 1}).tasks.values()
    assert shape.merged == {"both": {"web", "app"}}


def two_topics(*, repartitioned):
    builder = StreamsBuilder()
    stream = builder.stream(["flights", "charter"], key=String("carrier"))
    stream.where("carrier != 'x'").to("copies", value=Json())
    grouped = stream.repartition("carrier") if repartitioned else stream
    grouped.groupBy("carrier").count().to("carriers", value=Json())
    return builder.build()


def test_topics_of_different_widths_are_not_grouped_as_one_stream():
    known = {"flights": 4, "charter": 8, "carriers": 1, "copies": 1}
    words = (
        r"test_layout\.py:\d+: groupBy\(carrier\)\.agg\(count\(1\) AS count\) is of the stream of "
        r".*test_layout\.py:\d+.*"
        r"'flights' has 4, 'charter' has 8\. .*repartition\(\.\.\.\).* the same number"
    )
    with pytest.raises(StreamsException, match=words):
        lay_out(two_topics(repartitioned=False), NAMES, known)
    assert len(lay_out(two_topics(repartitioned=False), NAMES, known | {"charter": 4}).tasks) == 4
    layout = lay_out(two_topics(repartitioned=True), NAMES, known)
    assert len([task for task in layout.tasks if task.subtopology == 0]) == 8, "without a store each row is for itself"
    assert {topic.partitions for topic in layout.internal_topics.values()} == {8}


def test_rows_keep_their_timestamps_in_internal_topics():
    topics = lay_out(pipeline(), NAMES, {"flights": 2, "carriers": 3, "origins": 1}).internal_topics.values()
    assert {topic.configs["message.timestamp.type"] for topic in topics} == {"CreateTime"}
    far = {topic.configs["message.timestamp.after.max.ms"] for topic in topics}
    assert far == {str(2**63 - 1)}, "a row of the year 2999 is the user's, not ours to refuse"


def test_stores_without_changelog_stay_spread_over_as_many_tasks():
    builder = StreamsBuilder()
    flights = builder.stream("flights", key=String("carrier"), value=Json("carrier string"))
    flights.groupBy("carrier").count(name="by-carrier", logged=False)
    narrow, wide = (lay_out(builder.build(), NAMES, {"flights": count}) for count in (1, 3))
    require_same_width("app", narrow, narrow)
    with pytest.raises(StreamsException, match="source topic 'flights' has 3 partitions now, not 1"):
        require_same_width("app", narrow, wide)
    without = StreamsBuilder()
    without.stream("flights", key=String("carrier")).to("out")
    require_same_width("app", *(lay_out(without.build(), NAMES, {"flights": count, "out": 1}) for count in (1, 3)))


class Processor:
    """As much of a stateful processor as a topology looks at."""

    init = handleInputRows = handleExpiredTimer = close = print  # noqa: N815 - PySpark's names


@pytest.mark.parametrize("mode", ["ProcessingTime", "EventTime", "None"])
def test_tasks_go_by_the_clock_where_their_steps_do(mode):
    builder = StreamsBuilder()
    rows = builder.stream(["a", "b"], key=String("user"), value=Json("at timestamp")).withWatermark("at", "1 minute")
    rows.groupBy("user").transformWithState(Processor(), "n long", "Append", mode, name="timers").to("out")
    builder.stream("c", key=String("user"), value=Json("n long")).groupBy("user").count(name="counts")
    layout = lay_out(builder.build(), NAMES, {"a": 2, "b": 2, "c": 2, "out": 1})
    found = {id_: shape.clocked for id_, shape in layout.tasks.items()}
    timers = {"timers": {"a", "b"}} if mode == "ProcessingTime" else {}
    assert found == {TaskId(0, n): timers for n in (0, 1)} | {TaskId(1, n): {} for n in (0, 1)}
    changelog = layout.internal_topics["app-timers-changelog"]
    assert changelog.cut == (mode == "EventTime")


def test_the_dead_letter_topic_is_one_of_those_that_are_written():
    known = {"flights": 2, "carriers": 3, "origins": 1, "letters": 4}
    assert lay_out(pipeline(), NAMES, known, dead_letters="letters").sink_partitions["letters"] == 4
    with pytest.raises(UnknownTopicException, match="topic 'lost' does not exist"):
        lay_out(pipeline(), NAMES, known, dead_letters="lost")
    for own in ("flights", "carriers", "app-by-carrier-changelog"):
        with pytest.raises(StreamsException, match="use a separate topic"):
            lay_out(pipeline(), NAMES, known, dead_letters=own)

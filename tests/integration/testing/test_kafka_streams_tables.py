"""What Kafka Streams' own tests of tables and sessions say, where no answer of theirs can be recorded.

Each test says why: ours differs from Kafka Streams on purpose, or there is no input. All others are recorded cases
(``test_topologies.py``); INVENTORY.md has which is which.
"""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Integer, Json, Long, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_a_stream_that_two_joins_need_elsewhere(spark):
    """KStreamKTableJoinTest.shouldReuseRepartitionTopicWithGeneratedName and ...TopicsWithUserProvidedName

    Ours makes a topic for each join; to share one, repartition once.
    """

    def built(repartition, **names):
        builder = StreamsBuilder()
        tables = [builder.table(name, key=String("k"), value=String(name[-1])) for name in ("table-b", "table-c")]
        stream = repartition(builder.stream("in", key=String("a"), value=Json("k string")))
        for table, out in zip(tables, ("one", "two"), strict=True):
            stream.join(table, "k", name=names.get(out)).to(f"out-{out}")
        return builder.build()

    apart = built(lambda stream: stream, one="first-join", two="second-join")
    assert [sorted(part.source_topics) for part in apart.subtopologies] == [["table-b"], ["table-c"], ["in"]]
    topics = {topic for topic in apart.internal_topics if "repartition" in topic}
    assert topics == {"first-join-repartition", "second-join-repartition"}
    shared = built(lambda stream: stream.repartition("k"))
    assert [sorted(part.source_topics) for part in shared.subtopologies] == [["table-b", "table-c"], ["in"]]


LEFT, RIGHT = "left", "right"
#: Of one key: values and times, tombstones among them (AbstractJoinIntegrationTest). The last two have no key.
INPUT = [
    *((LEFT, None, 1), (RIGHT, None, 2), (LEFT, "A", 3), (RIGHT, "a", 4), (LEFT, "B", 5), (RIGHT, "b", 6)),
    *((LEFT, None, 7), (RIGHT, None, 8), (LEFT, "C", 9), (RIGHT, "c", 10), (RIGHT, None, 11), (LEFT, None, 12)),
    *((RIGHT, None, 13), (RIGHT, "d", 14), (LEFT, "D", 15), (LEFT, "E", 16), (RIGHT, "e", 17)),
]
#: How first -> index of an input -> what comes of it: the values, as Java writes them, and the time; None: it is
#: deleted. Marked is where Java writes nothing.
_PAIRED = {3: ("A-a-a", 4), 4: ("B-a-a", 5), 5: ("B-b-b", 6), 9: ("C-c-c", 10), 14: ("D-d-d", 15)}
THEN_INNER = {
    "inner": _PAIRED | {6: (None, 7), 10: (None, 11)},  # 10
    "outer": _PAIRED | {6: ("null-b-b", 7), 7: (None, 8), 10: (None, 11), 13: ("null-d-d", 14)},  # 7
}


@pytest.mark.parametrize("how", THEN_INNER)
def test_a_table_meets_another_one_twice(spark, how):
    """TableTableJoinIntegrationTest.testInnerInner, testOuterInner

    The right table is in both joins, so Java's second join finds the old row already gone and deletes nothing, as its
    test says. Ours deletes it.
    """
    builder = StreamsBuilder()
    left, right = (builder.table(name, key=Long("k"), value=String(name[0])) for name in (LEFT, RIGHT))
    left.join(right, "k", how).join(right.withColumnRenamed("r", "again"), "k").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topics = {name: driver.create_input_topic(name) for name in (LEFT, RIGHT)}
        out = driver.create_output_topic("out", key=Long())
        for index, (name, value, at) in enumerate(INPUT):
            topics[name].pipe_input(None if value in {"E", "e"} else 0, value, at)
            found = [
                (r.key, r.value and "-".join(r.value.get(name) or "null" for name in ("l", "r", "again")), r.timestamp)
                for r in out.read_records()
            ]
            wanted = THEN_INNER[how]
            assert found == ([(0, *wanted[index])] if index in wanted else []), f"after input {index}"


def test_a_grace_longer_than_the_history_is_refused(spark):
    """KStreamKTableJoinTest.shouldFailIfGracePeriodIsLongerThanHistoryRetention, ...AndInheritedStore"""
    for filtered in (False, True):
        builder = StreamsBuilder()
        table = builder.table("table", key=Integer("k"), value=String("r"), history="5 minutes")
        table = table.where("k > 0") if filtered else table
        stream = builder.stream("stream", key=Integer("k"), value=String("l"))
        stream.join(table, "k", grace="6 minutes").to("out")
        with pytest.raises(TopologyException, match="rows are delayed by 360000 ms, but the table's"):
            TopologyTestDriver(builder.build(), spark=spark)


def test_a_grace_without_a_history_is_refused(spark):
    """KStreamKTableJoinTest.shouldFailIfTableIsNotVersioned, ...ButMaterializationIsInherited"""
    for filtered in (False, True):
        builder = StreamsBuilder()
        table = builder.table("table", key=Integer("k"), value=String("r"))
        table = table.where("k > 0") if filtered else table
        stream = builder.stream("stream", key=Integer("k"), value=String("l"))
        with pytest.raises(
            TopologyException, match=r"test_kafka_streams_tables.py:\d+: .* needs a table with a history"
        ):
            stream.join(table, "k", grace="6 milliseconds")


def test_a_session_that_is_over_takes_no_record(spark):
    """KStreamSessionWindowAggregateProcessorTest.shouldMergeSessions

    There the late record brings three records together in one session, after the first one has been written as final.
    """
    gap = 300_000
    builder = StreamsBuilder()
    timed = builder.stream("in", key=String("user"), value=String("v")).select(
        "user", F.col("kafka.timestamp").alias("at")
    )
    # Kafka Streams' grace of 0: there a session is over a millisecond later.
    session = F.session_window("at", f"{gap} milliseconds").alias("session")
    counts = timed.withWatermark("at", "1 millisecond").groupBy("user", session).agg(F.count("*").alias("n"), name="n")
    ends = (F.unix_millis(f"session.{end}").alias(end) for end in ("start", "end"))
    counts.outputMode("append").select("user", "n", *ends).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("in"), driver.create_output_topic("out")

        def pipe(at):
            topic.pipe_input("mel", "value", at)
            return [(record.value, record.timestamp) for record in out.read_records()]

        assert pipe(0) == []
        assert pipe(gap + 1) == [({"user": "mel", "n": 1, "start": 0, "end": gap}, 0)]
        assert pipe(gap // 2) == []
        [kept] = driver.store("n")
        assert (kept["user"], kept["n"]) == ("mel", 2)
        start, end = (kept["session"][name].timestamp() for name in ("start", "end"))
        assert (start, end) == (gap // 2 / 1000, (gap + 1 + gap) / 1000)

"""Tables of inputs and outputs of Kafka Streams' own tests; docs/internals/pipeline-inventory.md has which is which."""

import pytest

from sparkrelay import Integer, Json, Long, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = [pytest.mark.integration, pytest.mark.long]

LEFT, RIGHT = "left", "right"
#: Of one key: values and times, tombstones and rows that come late among them (AbstractJoinIntegrationTest).
INPUT = [
    *((LEFT, None, 1), (RIGHT, None, 2), (LEFT, "A", 3), (RIGHT, "a", 4), (LEFT, "B", 5), (RIGHT, "b", 6)),
    *((LEFT, None, 7), (RIGHT, None, 8), (LEFT, "C", 9), (RIGHT, "c", 10), (RIGHT, None, 11), (LEFT, None, 12)),
    *((RIGHT, None, 13), (RIGHT, "d", 7), (LEFT, "D", 6), (LEFT, None, 2), (RIGHT, None, 3), (RIGHT, "e", 14)),
    *((LEFT, "E", 15), (LEFT, None, 10), (RIGHT, None, 9), (LEFT, "F", 4), (RIGHT, "f", 3)),
]
#: Index of an input -> what comes of it: both values, and the time.
MATCHED = {4: ("B", "a", 5), 14: ("D", "d", 6), 18: ("E", "e", 15)}
UNMATCHED = {2: ("A", None, 3), 8: ("C", None, 9), 21: ("F", None, 4)}


@pytest.mark.parametrize(("how", "expected"), [("inner", MATCHED), ("left", MATCHED | UNMATCHED)])
def test_a_stream_meets_a_table(spark, how, expected):
    """StreamTableJoinIntegrationTest.testInner, testLeft"""
    builder = StreamsBuilder()
    table = builder.table(RIGHT, key=Long("k"), value=String("r"))
    joined = builder.stream(LEFT, key=Long("k"), value=String("l")).join(table, "k", how)
    joined.select("l", "r").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topics = {name: driver.create_input_topic(name) for name in (LEFT, RIGHT)}
        out = driver.create_output_topic("out", key=Long())
        for index, (name, value, at) in enumerate(INPUT):
            topics[name].pipe_input(0, value, at)
            found = [(r.key, r.value["l"], r.value.get("r"), r.timestamp) for r in out.read_records()]
            assert found == ([(0, *expected[index])] if index in expected else []), f"after input {index}"


KEYS = range(4)


class Joined:
    """A stream that is joined with a table by numbers (KStreamKTableJoinTest)."""

    def __init__(self, spark):
        builder = StreamsBuilder()
        table = builder.table("table", key=Integer("k"), value=String("r"))
        stream = builder.stream("stream", key=Integer("k"), value=String("l"))
        stream.join(table, "k").selectExpr("concat(l, '+', r) AS both").to("out", value=String("both"))
        self.driver = TopologyTestDriver(builder.build(), spark=spark, batch="all")
        self._stream, self._table = (self.driver.create_input_topic(name) for name in ("stream", "table"))
        self._out = self.driver.create_output_topic("out", key=Integer(), value=String())

    def push_to_stream(self, count, prefix):
        """Push, and return what comes of it."""
        for key in KEYS[:count]:
            self._stream.pipe_input(key, f"{prefix}{key}", key)
        return self.taken()

    def push_to_table(self, count, prefix):
        for key in KEYS[:count]:
            self._table.pipe_input(key, None if prefix is None else f"{prefix}{key}", 1000 - key)
        return self.taken()

    def taken(self):
        return [(record.value, record.timestamp) for record in self._out.read_records()]


@pytest.fixture
def joined(spark):
    both = Joined(spark)
    yield both
    both.driver.close()


def found(count, left, right):
    return [(f"{left}{key}+{right}{key}", key) for key in KEYS[:count]]


def test_updates_of_the_table_alone_make_nothing(joined):
    """KStreamKTableJoinTest.shouldNotJoinOnTableUpdates, shouldNotJoinWithEmptyTableOnStreamUpdates"""
    assert joined.push_to_stream(2, "X") == []
    assert joined.push_to_table(2, "Y") == []
    assert joined.push_to_stream(4, "X") == found(2, "X", "Y")
    assert joined.push_to_table(4, "YY") == []
    assert joined.push_to_stream(4, "X") == found(4, "X", "YY")
    assert joined.push_to_table(4, "YYY") == []


def test_a_row_without_a_value_clears_the_tables(joined):
    """KStreamKTableJoinTest.shouldClearTableEntryOnNullValueUpdates, shouldJoinOnlyIfMatchFoundOnStreamUpdates"""
    assert joined.push_to_table(4, "Y") == []
    assert joined.push_to_stream(4, "X") == found(4, "X", "Y")
    assert joined.push_to_table(2, None) == []
    assert joined.push_to_stream(4, "XX") == found(4, "XX", "Y")[2:]


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


def test_a_filtered_table_forwards_deletions_of_what_had_passed(spark):
    """KTableFilterTest.shouldPassThroughWithoutMaterialization; ours deletes nothing that was never there."""
    builder = StreamsBuilder()
    table = builder.table("topic1", key=String("k"), value=Integer("v"))
    for name, condition in (("even", "v % 2 = 0"), ("odd", "v % 2 <> 0")):
        table.where(condition).to(name, value=Integer("v"))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("topic1")
        outs = {name: driver.create_output_topic(name, key=String(), value=Integer()) for name in ("even", "odd")}
        for key, value, at in (("A", 1, 10), ("B", 2, 5), ("C", 3, 8), ("D", 4, 14), ("A", None, 18), ("B", None, 15)):
            topic.pipe_input(key, value, at)
        seen = {name: [(r.key, r.value, r.timestamp) for r in out.read_records()] for name, out in outs.items()}
        assert seen == {
            "even": [("B", 2, 5), ("D", 4, 14), ("B", None, 15)],
            "odd": [("A", 1, 10), ("C", 3, 8), ("A", None, 18)],
        }


def test_a_filtered_table_follows_its_source(spark):
    """KTableFilterTest.doTestValueGetter, doTestSendingOldValue: what the filtered table holds after each update"""
    builder = StreamsBuilder()
    builder.table("topic1", key=String("k"), value=Integer("v")).where("v % 2 = 0").to("even", value=Integer("v"))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("topic1")
        out = driver.create_output_topic("even", key=String(), value=Integer())
        steps = [
            ([("A", 1, 5), ("B", 1, 10), ("C", 1, 15)], []),
            ([("A", 2, 10), ("B", 2, 5)], [("A", 2, 10), ("B", 2, 5)]),
            ([("A", 3, 15)], [("A", None, 15)]),
            ([("A", None, 10), ("B", None, 20)], [("B", None, 20)]),
        ]
        for rows, expected in steps:
            for row in rows:
                topic.pipe_input(*row)
            assert [(r.key, r.value, r.timestamp) for r in out.read_records()] == expected


def test_a_table_emits_on_change(spark):
    """KTableSourceTest.testKTable, testKTableSourceEmitOnChange, testValueGetter, kTableShouldLog..."""
    builder = StreamsBuilder()
    builder.table("topic1", key=String("k"), value=Integer("v"), name="store").to("output", value=Integer("v"))
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("topic1")
        out = driver.create_output_topic("output", key=String(), value=Integer())
        for key, value, at in (("A", 1, 10), ("B", 2, 11), ("A", 1, 12), ("B", 3, 13), ("A", 1, 9), (None, 7, 14)):
            topic.pipe_input(key, value, at)
        records = [(r.key, r.value, r.timestamp) for r in out.read_records()]
        assert records == [("A", 1, 10), ("B", 2, 11), ("B", 3, 13), ("A", 1, 9)]
        topic.pipe_input("C", 4, 20)
        topic.pipe_input("A", None, 14)
        topic.pipe_input("B", None, 15)
        assert driver.store("store") == [{"k": "C", "v": 4}]
        assert [(r.key, r.value, r.timestamp) for r in out.read_records()] == [
            *(("C", 4, 20), ("A", None, 14), ("B", None, 15)),
        ]

"""What Kafka Streams' own tests of versioned tables put in and expect; pipeline-inventory.md has which is which."""

import pytest

from sparkrelay import Integer, Json, Long, StreamsBuilder, String
from sparkrelay.errors import TopologyException
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
HISTORY = "5 minutes"
#: Index of an input -> what comes of it: both values, and the time.
MATCHED = {4: ("B", "a", 5), 14: ("D", "b", 6), 18: ("E", "e", 15), 21: ("F", "a", 4)}
UNMATCHED = {2: ("A", None, 3), 8: ("C", None, 9)}


#: The same with a grace of 2 ms.
MATCHED_LATER = {8: ("B", "a", 5), 14: ("D", "b", 6), 21: ("F", "a", 4)}
UNMATCHED_LATER = {4: ("A", None, 3), 18: ("C", None, 9)}


@pytest.mark.parametrize(
    ("how", "grace", "expected"),
    [
        ("inner", None, MATCHED),
        ("left", None, MATCHED | UNMATCHED),
        ("inner", "2 milliseconds", MATCHED_LATER),
        ("left", "2 milliseconds", MATCHED_LATER | UNMATCHED_LATER),
    ],
)
def test_a_stream_meets_a_table_with_a_history(spark, how, grace, expected):
    """StreamTableJoin(WithGrace)IntegrationTest.testInnerWithVersionedStore, testLeftWithVersionedStore"""
    builder = StreamsBuilder()
    table = builder.table(RIGHT, key=Long("k"), value=String("r"), history=HISTORY)
    joined = builder.stream(LEFT, key=Long("k"), value=String("l")).join(table, "k", how, grace=grace)
    joined.select("l", "r").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topics = {name: driver.create_input_topic(name) for name in (LEFT, RIGHT)}
        out = driver.create_output_topic("out", key=Long())
        for index, (name, value, at) in enumerate(INPUT):
            topics[name].pipe_input(0, value, at)
            found = [(r.key, r.value["l"], r.value.get("r"), r.timestamp) for r in out.read_records()]
            assert found == ([(0, *expected[index])] if index in expected else []), f"after input {index}"


#: How -> index of an input -> what comes of it: both values, as Java writes them, and the time; None: it is deleted.
#: Of the rows that come in the order of their times:
IN_ORDER = {
    "inner": {3: ("A-a", 4), 4: ("B-a", 5), 5: ("B-b", 6), 6: (None, 7), 9: ("C-c", 10), 10: (None, 11)},
    "left": {
        index: (f"{left}-{right}" if left else None, index + 1)
        for index, left, right in (
            *((2, "A", "null"), (3, "A", "a"), (4, "B", "a"), (5, "B", "b"), (6, None, None)),
            *((8, "C", "null"), (9, "C", "c"), (10, "C", "null"), (11, None, None)),
        )
    },
}
IN_ORDER["outer"] = IN_ORDER["left"] | {6: ("null-b", 7), 7: (None, 8)}
_LEFT = {18: ("E-e", 15), 20: ("E-null", 15), 22: ("E-f", 15)}
_RIGHT = {18: ("E-e", 15), 19: (None, 14), 21: ("F-e", 14)}
_LATE = {14: ("D-null", 6), 15: (None, 2)}
_ALONE = {17: ("null-e", 14)}
#: Which tables have a history -> how -> the same of the others.
LATER = {
    (LEFT, RIGHT): {"inner": {18: ("E-e", 15)}, "left": {18: ("E-e", 15)}, "outer": _ALONE | {18: ("E-e", 15)}},
    (LEFT,): {
        "inner": _LEFT | {20: (None, 15)},
        "left": _LEFT,
        "outer": _LEFT | _ALONE | {13: ("null-d", 7), 16: (None, 3)},
    },
    (RIGHT,): {
        "inner": _RIGHT,
        "left": _RIGHT | _LATE,
        "outer": _RIGHT | _LATE | _ALONE | {19: ("null-e", 14)},
    },
}


def lines(row):
    return None if row is None else "-".join(row.get(name) or "null" for name in "lr")


@pytest.mark.parametrize("how", IN_ORDER)
@pytest.mark.parametrize("versioned", LATER)
def test_a_table_meets_a_table_and_one_has_a_history(spark, versioned, how):
    """TableTableJoinIntegrationTest.test{Inner,Left,Outer}With{VersionedStores,LeftVersionedOnly,RightVersionedOnly}"""
    builder = StreamsBuilder()
    left, right = (
        builder.table(name, key=Long("k"), value=String(name[0]), history=HISTORY if name in versioned else None)
        for name in (LEFT, RIGHT)
    )
    left.join(right, "k", how).to("out", value=Json())
    expected = IN_ORDER[how] | LATER[versioned][how]
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topics = {name: driver.create_input_topic(name) for name in (LEFT, RIGHT)}
        out = driver.create_output_topic("out", key=Long())
        for index, (name, value, at) in enumerate(INPUT):
            topics[name].pipe_input(0, value, at)
            found = [(r.key, lines(r.value), r.timestamp) for r in out.read_records()]
            assert found == ([(0, *expected[index])] if index in expected else []), f"after input {index}"


class Waiting:
    """A stream whose rows wait for 2 ms in front of a table with a history (KStreamKTableJoinTest.makeJoin)."""

    def __init__(self, spark):
        builder = StreamsBuilder()
        table = builder.table("table", key=Integer("k"), value=String("r"), history=HISTORY)
        stream = builder.stream("stream", key=Integer("k"), value=String("l"))
        joined = stream.join(table, "k", grace="2 milliseconds")
        joined.selectExpr("k", "concat(l, '+', r) AS both").to("out", key="k", value=String("both"))
        self.driver = TopologyTestDriver(builder.build(), spark=spark)
        self.stream, self._table = (self.driver.create_input_topic(name) for name in ("stream", "table"))
        self._out = self.driver.create_output_topic("out", key=Integer(), value=String())

    def push_to_stream(self, count, prefix):
        """Push, and return what comes of it."""
        for key in range(count):
            self.stream.pipe_input(key, f"{prefix}{key}", key)
        return self.taken()

    def push_to_table(self, prefix):
        for key in range(4):
            self._table.pipe_input(key, f"{prefix}{key}", 0)
        return self.taken()

    def taken(self):
        return [(record.key, record.value, record.timestamp) for record in self._out.read_records()]


@pytest.fixture
def waiting(spark):
    both = Waiting(spark)
    yield both
    both.driver.close()


def test_rows_wait_for_the_grace(waiting):
    """KStreamKTableJoinTest.shouldDelayJoinByGracePeriod"""
    assert waiting.push_to_table("Y") == []
    assert waiting.push_to_stream(4, "X") == [(0, "X0+Y0", 0), (1, "X1+Y1", 1)]
    assert waiting.push_to_table("YY") == []
    assert waiting.push_to_stream(4, "X") == [(0, "X0+YY0", 0), (1, "X1+YY1", 1)]
    waiting.stream.pipe_input(5, "test", 7)
    assert waiting.taken() == [(key, f"X{key}+YY{key}", key) for key in (2, 2, 3, 3)]
    assert waiting.push_to_table("YYY") == []


def test_rows_that_come_later_than_the_grace_do_not_wait(waiting):
    """KStreamKTableJoinTest.shouldHandleLateJoinsWithGracePeriod"""
    assert waiting.push_to_table("Y") == []
    assert waiting.push_to_stream(4, "X") == [(0, "X0+Y0", 0), (1, "X1+Y1", 1)]
    assert waiting.push_to_stream(1, "X") == [(0, "X0+Y0", 0)]


def test_a_grace_longer_than_the_history_is_refused(spark):
    """KStreamKTableJoinTest.shouldFailIfGracePeriodIsLongerThanHistoryRetention, ...AndInheritedStore"""
    for filtered in (False, True):
        builder = StreamsBuilder()
        table = builder.table("table", key=Integer("k"), value=String("r"), history="5 minutes")
        table = table.where("k > 0") if filtered else table
        builder.stream("stream", key=Integer("k"), value=String("l")).join(table, "k", grace="6 minutes").to("out")
        with pytest.raises(TopologyException, match="rows wait for 360000 ms, and the table's history is 300000 ms"):
            TopologyTestDriver(builder.build(), spark=spark)


def test_a_grace_without_a_history_is_refused():
    """KStreamKTableJoinTest.shouldFailIfTableIsNotVersioned, ...ButMaterializationIsInherited"""
    for filtered in (False, True):
        builder = StreamsBuilder()
        table = builder.table("table", key=Integer("k"), value=String("r"))
        table = table.where("k > 0") if filtered else table
        stream = builder.stream("stream", key=Integer("k"), value=String("l"))
        with pytest.raises(TopologyException, match="only a table with a history"):
            stream.join(table, "k", grace="6 milliseconds")

"""When a join of streams writes rows that find nothing: in this, ours differs from Kafka Streams.

There it does so once either stream is far enough, here once both are. The inputs are those of Kafka Streams' own tests,
whose answers are also recorded (``test_topologies.py``) where they are the same over the whole run;
INVENTORY.md has which is which. Times are milliseconds, and rows go together that are at most
100 apart.
"""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Integer, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = [pytest.mark.integration, pytest.mark.long]

KEYS = range(4)
LEFT, RIGHT = "left", "right"


class Joined:
    """Two streams of texts by number, joined; what comes out is both texts, with the time."""

    def __init__(self, spark, how, grace):
        builder = StreamsBuilder()
        left, right = (
            builder.stream(name, key=Integer("k"), value=String(name))
            .select("k", name, F.col("kafka.timestamp").alias(f"{name}_at"))
            .withWatermark(f"{name}_at", f"{grace} milliseconds")
            for name in (LEFT, RIGHT)
        )
        texts = (F.coalesce(name, F.lit("null")) for name in (LEFT, RIGHT))
        left.join(right, "k", how, within="100 milliseconds").select(F.concat_ws("+", *texts).alias("both")).to(
            "out", value=String("both")
        )
        self._driver = TopologyTestDriver(builder.build(), spark=spark, batch="all")
        self._topics = {name: self._driver.create_input_topic(name) for name in (LEFT, RIGHT)}
        self._out = self._driver.create_output_topic("out", key=Integer(), value=String())

    def push(self, name, text, at=0, keys=KEYS):
        """Push a text to several keys, and return what comes of it, in its order."""
        for key in keys:
            self._topics[name].pipe_input(key, f"{text}{key}", at)
        return self.taken()

    def pipe(self, name, *records):
        for record in records:
            self._topics[name].pipe_input(*record)
        return self.taken()

    def pass_time(self, at):
        """Have both streams go on to a time, by rows that find nothing; return what comes of that."""
        found = [*self.pipe(LEFT, (-1, "x", at)), *self.pipe(RIGHT, (-2, "y", at))]
        return sorted(row for row in found if row[0] >= 0)

    def taken(self):
        return [(record.key, record.value, record.timestamp) for record in self._out.read_records()]

    def close(self):
        self._driver.close()


@pytest.fixture
def joined(spark, request):
    how, grace = request.param
    both = Joined(spark, how, grace)
    yield both
    both.close()


def of(how, grace):
    """Parametrize with a join of these ways."""
    ways = (how,) if isinstance(how, str) else how
    return pytest.mark.parametrize("joined", [(way, grace) for way in ways], indirect=True, ids=ways)


def alone(texts, at):
    return [(int(text[-1]), f"{text}+null", at) for text in texts.split()]


#: Time of a row -> which of the rows of 1000, 1001, 1002 and 1003 go with it, by their keys.
REACHED = {1100: KEYS, 1101: KEYS[1:], 1102: KEYS[2:], 1103: KEYS[3:], 1104: KEYS[:0]} | {
    time: KEYS[: time - 899] for time in range(899, 904)
}


@of("left", grace=1000)
def test_rows_beyond_the_range_go_out_alone(joined):
    """KStreamKStreamLeftJoinTest.testWindowing, KStreamKStreamOuterJoinTest.testWindowing

    There a row that comes late goes out alone at once if it finds nothing; here each waits until nothing can come.
    """
    assert joined.pipe(RIGHT, *((key, f"b{key}", 1000 + key) for key in KEYS)) == []
    for time, keys in REACHED.items():
        expected = [(key, f"B{key}+b{key}", max(time, 1000 + key)) for key in keys]
        assert joined.push(LEFT, "B", time) == expected, time
    after = {1101: "B0", 1102: "B0 B1", 1103: "B0 B1 B2", 1104: "B0 B1 B2 B3"}
    nothing = after | {899: "B0 B1 B2 B3", 900: "B1 B2 B3", 901: "B2 B3", 902: "B3"}
    expected = [row for time, texts in nothing.items() for row in alone(texts, time)]
    assert joined.pass_time(5000) == sorted(expected)


@pytest.mark.parametrize(
    ("joined", "first", "second"), [(("left", 0), LEFT, RIGHT), (("full", 0), RIGHT, LEFT)], indirect=["joined"]
)
def test_both_streams_have_to_be_far_enough(joined, first, second):
    """KStreamKStreamLeftJoinTest.testLeftExpiredNonJoinedRecordsAreEmittedByTheLeftProcessor, ...ByTheRightProcessor,
    testRightNonJoinedRecordsAreNeverEmittedByTheLeftProcessor, ...ByTheRightProcessor, and those of the outer join

    There the first of both is enough.
    """
    assert joined.pipe(LEFT, (0, "A0", 1), (1, "A1", 2), (0, "A0-0", 3)) == []
    assert joined.pipe(RIGHT, (1, "a1", 3), (3, "a3", 3)) == [(1, "A1+a1", 3)]
    assert joined.pipe(first, (2, "dummy", 401)) == []
    of_right = [(3, "null+a3", 3)] if first == RIGHT else []
    expected = [(0, "A0+null", 1), (0, "A0-0+null", 3), (2, "dummy+dummy", 402), *of_right]
    assert sorted(joined.pipe(second, (2, "dummy", 402))) == expected
    assert joined.pass_time(1000) == []


@of("full", grace=0)
def test_what_is_over_does_not_wait_for_what_is_not(joined):
    """KStreamKStreamLeftJoinTest.testOrdering, KStreamKStreamOuterJoinTest.testOrdering"""
    assert joined.pipe(LEFT, (0, "A0", 0), (1, "A1", 100)) == []
    assert joined.pipe(RIGHT, (1, "a1", 110)) == [(1, "A1+a1", 110)]
    assert joined.pass_time(101) == [(0, "A0+null", 0)]


@of(("left", "full"), grace=10)
def test_grace_is_waited_for(joined, request):
    """KStreamKStreamLeftJoinTest.testGracePeriod, KStreamKStreamOuterJoinTest.testGracePeriod, to the millisecond"""
    assert joined.pipe(LEFT, (0, "A0", 0)) == []
    assert joined.pipe(RIGHT, (1, "11", 0)) == []
    assert joined.pipe(LEFT, (1, "A1", 101)) == []
    assert joined.pipe(RIGHT, (0, "10", 101)) == []
    assert joined.pass_time(110) == []
    of_right = [(1, "null+11", 0)] if "full" in request.node.callspec.id else []
    assert joined.pass_time(111) == [(0, "A0+null", 0), *of_right]

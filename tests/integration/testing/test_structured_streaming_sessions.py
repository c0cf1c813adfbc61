"""Spark's own tests of session windows in streams; INVENTORY.md has which is which."""

import datetime as dt

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder
from sparkrelay.testing import TopologyTestDriver

pytestmark = [pytest.mark.integration, pytest.mark.long]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: Lines of words and their times, in seconds: a micro-batch each.
FIRST = [("hello world spark streaming", 40), ("world hello structured streaming", 41)]
LATER = [("spark streaming", 25)]
BETWEEN = [("spark streaming", 30)]
BEHIND = [("hello apache spark", 60)]
#: Late: its sessions end at 10, the watermark is 11.
LATE = [("spark streaming", 0)]
END = [("structured streaming", 90)]


def words(builder, delay="30 seconds"):
    lines = builder.stream("lines", value=Json("line string, at long"))
    timed = lines.selectExpr("explode(split(line, ' ')) AS word", "at", "timestamp_seconds(at) AS time")
    return timed.withWatermark("time", delay)


class Sessions:
    """A table of sessions of words."""

    def __init__(self, spark, grouped, *aggregates, final=False):
        builder = StreamsBuilder()
        columns = aggregates or [F.count("*").alias("n")]
        table = grouped(words(builder)).agg(*columns)
        (table.outputMode("append") if final else table).to("out", value=Json())
        self.driver = TopologyTestDriver(builder.build(), spark=spark, batch="all")
        self._in, self._out = self.driver.create_input_topic("lines"), self.driver.create_output_topic("out")
        self._rows = {}

    def pipe(self, lines):
        """Pipe lines in as one micro-batch; return the rows that it adds or changes."""
        for line, at in lines:
            self._in.pipe_input(None, {"line": line, "at": at})
        self.driver.process()
        found = []
        for record in self._out.read_records():
            self._rows.pop(record.key, None)
            if record.value is not None:
                self._rows[record.key] = said(record.value)
                found.append(said(record.value))
        return sorted(found)

    @property
    def table(self):
        return sorted(self._rows.values())


def said(row):
    """Return a row's values; start and end of its session, in seconds, stand in front of the last one."""
    session = row["session"]
    start, end = ((dt.datetime.fromisoformat(session[name]) - EPOCH).total_seconds() for name in ("start", "end"))
    *values, last = (value for name, value in row.items() if name != "session")
    return (*values, start, end, last)


def session(gap="10 seconds"):
    return F.session_window("time", gap).alias("session")


@pytest.fixture
def make_sessions(spark):
    made = []

    def make(grouped, *aggregates, **options):
        made.append(Sessions(spark, grouped, *aggregates, **options))
        return made[-1]

    yield make
    for sessions in made:
        sessions.driver.close()


KEYS = {
    "one column": (lambda rows: rows.groupBy("word", session()), 1),
    "several columns": (lambda rows: rows.withColumn("other", F.col("word")).groupBy("word", session(), "other"), 2),
}


def of(key, *rows):
    """Rows with the word as often as there are columns of it."""
    return sorted((*[word] * KEYS[key][1], *others) for word, *others in rows)


@pytest.mark.parametrize("key", KEYS)
def test_the_table_of_all_sessions(make_sessions, key):
    """Complete mode: session window; ...multiple col key. Here the table that updates leave."""
    sessions = make_sessions(KEYS[key][0])
    hello, world = ("hello", 40, 51, 2), ("world", 40, 51, 2)
    streaming, spark, structured = ("streaming", 40, 51, 2), ("spark", 40, 50, 1), ("structured", 41, 51, 1)
    sessions.pipe(FIRST)
    assert sessions.table == of(key, hello, world, streaming, spark, structured)
    before = ("spark", 25, 35, 1), ("streaming", 25, 35, 1)
    assert sessions.pipe(LATER) == of(key, *before)
    assert sessions.table == of(key, *before, hello, world, streaming, spark, structured)
    merged = ("spark", 25, 50, 3), ("streaming", 25, 51, 4)
    assert sessions.pipe(BETWEEN) == of(key, *merged)
    assert sessions.table == of(key, *merged, hello, world, structured)
    after = ("hello", 60, 70, 1), ("apache", 60, 70, 1), ("spark", 60, 70, 1)
    assert sessions.pipe(BEHIND) == of(key, *after)
    last = ("structured", 90, 100, 1), ("streaming", 90, 100, 1)
    assert sessions.pipe(END) == of(key, *last)
    assert sessions.table == of(key, *merged, hello, world, structured, *after, *last)


def test_final_rows(make_sessions):
    """Append mode: session window; ...with async state checkpointing"""
    sessions = make_sessions(KEYS["one column"][0], final=True)
    for lines in (FIRST, LATER, LATE, BETWEEN, BEHIND):
        assert sessions.pipe(lines) == []
    merged = ("spark", 25, 50, 3), ("streaming", 25, 51, 4)
    assert sessions.pipe(END) == sorted(
        [*merged, ("hello", 40, 51, 2), ("world", 40, 51, 2), ("structured", 41, 51, 1)]
    )


@pytest.mark.parametrize("key", KEYS)
def test_a_gap_for_each_word(make_sessions, key):
    """SPARK-36465: dynamic gap duration; ...multiple col key. Rows whose gap is not above 0 are in no session."""
    gaps = {"hello": "1 second", "structured": "0 seconds", "world": "-10 seconds"}
    gap = F.udf(lambda word: gaps.get(word, "10 seconds"))
    more = ["other"] * (KEYS[key][1] - 1)

    def grouped(rows):
        return rows.withColumn("other", F.col("word")).groupBy("word", session(gap("word")), *more)

    sessions = make_sessions(grouped, final=True)
    for lines in (FIRST, LATER, LATE, BETWEEN, BEHIND):
        assert sessions.pipe(lines) == []
    assert sessions.pipe(END) == of(key, ("spark", 25, 50, 3), ("streaming", 25, 51, 4), ("hello", 40, 42, 2))


def test_sessions_of_all_rows_together(make_sessions):
    """Complete and append mode: no key, which is refused there."""
    sessions = make_sessions(lambda rows: rows.groupBy(session()), final=True)
    for lines in (FIRST, LATER, LATE, BETWEEN, BEHIND):
        assert sessions.pipe(lines) == []
    assert sessions.pipe(END) == [(25, 51, 12)]


def test_first_and_last_rows(make_sessions):
    """Session window with first/last function: here their order is that of arrival."""
    functions = [F.first, F.last, lambda column: F.min_by(column, "time"), lambda column: F.max_by(column, "time")]
    columns = [function("at").alias(f"n{number}") for number, function in enumerate(functions)]
    sessions = make_sessions(KEYS["one column"][0], *columns, final=True)
    for at in (41, 42, 40):
        assert sessions.pipe([("a", at)]) == []
    assert sessions.pipe([("b", 100)]) == [("a", 41, 40, 40, 40, 52, 42)]


def test_other_functions(make_sessions):
    """Session window - with more aggregation functions and UDAFs; there are no median and no UDAFs yet."""
    functions = (F.mean, F.stddev, F.variance, F.sum)
    columns = [function("at").alias(f"n{number}") for number, function in enumerate(functions)]
    sessions = make_sessions(KEYS["one column"][0], *columns, final=True)
    for at in (41, 42, 40):
        assert sessions.pipe([("a", at)]) == []
    assert sessions.pipe([("b", 100)]) == [("a", 41.0, 1.0, 1.0, 40, 52, 123)]

"""Every mistake names the line that made it, what was given, and the way out."""

# ruff: noqa: N803 - everybody writes F

import copy
import inspect
import re

import pytest

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder


def here(offset=1):
    frame = inspect.currentframe().f_back
    return f"test_errors.py:{frame.f_lineno + offset}"


def fails(message):
    return pytest.raises(TopologyException, match=re.escape(message))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, F: s.distinct(), "has no distinct(): name the columns that make two rows the same"),
        (lambda s, F: s.orderBy("a"), "has no orderBy(): an endless stream has no order"),
        (lambda s, F: s.limit(3), "has no limit(): a stream has no end"),
        (lambda s, F: s.union(3), "union() takes a stream of the same builder, not 3"),
        (lambda s, F: s.unionByName(s, allowMissingColumns=True), "unionByName() takes no allowMissingColumns=True"),
        (lambda s, F: s.cache(), "has no cache(): each micro-batch is read once"),
        (lambda s, F: s.collect(), "has no collect(): a topology is a description"),
        (
            lambda s, F: s.groupBy("a").count().dropDuplicates(["a"]),
            "has no dropDuplicates(): a table has",
        ),
        (lambda s, F: s.na.drop(), 'has no na(): use dropna(subset=["a"]) and fillna({"a": 0})'),
        (lambda s, F: s.dropna("some"), "how='some' of dropna() must be 'any' or 'all'"),
        (lambda s, F: s.dropna(thresh=True), "thresh=True of dropna() must be a number of columns"),
        (
            lambda s, F: s.dropna(subset=[]),
            "subset=[] of dropna() must be a column's name, or a list that names at least",
        ),
        (lambda s, F: s.dropna(subset="*"), "subset='*' of dropna() must be a column's name"),
        (lambda s, F: s.fillna({"a": None}), "a dict of column to one, not {'a': None}"),
        (lambda s, F: s.fillna({}), "a dict of column to one, not {}"),
        (lambda s, F: s.fillna({3: 0}), "fillna() takes a column's name, not 3"),
        (lambda s, F: s.dropna(subset=[3]), "dropna() takes a column's name, not 3"),
        (
            lambda s, F: s.fillna(None),
            "fillna() takes a number, a text, a boolean, or a dict of column to one, not None",
        ),
        (lambda s, F: s.fillna(0, subset={"a"}), "of fillna() must be a column's name, or a list"),
        (lambda s, F: s.selct("a"), "has no selct(): did you mean select?"),
        (lambda s, F: s.withcolumn("a", 1), "has no withcolumn(): did you mean withColumn?"),
        (
            lambda s, F: s.zzz,
            'has no zzz(): a column is written F.col("zzz"); steps are drop, dropDuplicates, ',
        ),
        (lambda s, F: s.to_stream(), "has no to_stream()"),
        (lambda s, F: s["carrier"], "columns of a KStream are written F.col(\"name\"), not ['carrier']"),
        (lambda s, F: list(s), "a KStream is a description and holds no rows"),
        (lambda s, F: s.count(), 'has no count(): group first: groupBy("a").count()'),
        (lambda s, F: s.foreachBatch("f"), "foreachBatch() takes a function (df, batch_id), not 'f'"),
        (lambda s, F: s.groupBy("a").count().foreachBatch(print), "KTable has no foreachBatch(): it is for streams"),
        (lambda s, F: s.join(s, "a"), "join() of two streams takes within="),
        (lambda s, F: s.groupBy(), "groupBy() names no columns"),
        (lambda s, F: s.groupBy([]), "groupBy() names no columns"),
        (lambda s, F: s.groupBy(3), "groupBy() takes names and Columns, not 3"),
        (lambda s, F: s.groupBy("*"), "groupBy() takes names and Columns, not '*'"),
        (lambda s, F: s.groupBy(F.isNull("origin")), 'needs a name there: add .alias("name")'),
        (lambda s, F: s.groupBy("a", name="a b"), "name='a b' becomes part of a topic's name"),
        (lambda s, F: s.groupBy("a").agg(), "agg() has no aggregates"),
        (lambda s, F: s.groupBy("a").agg("sum(b)"), "agg() takes Columns"),
        (lambda s, F: s.groupBy("a").agg({}), "agg() has no aggregates"),
        (lambda s, F: s.groupBy("a").agg({"b": "sum"}, F.count("*")), "agg() takes Columns"),
        (lambda s, F: s.groupBy("a").agg({3: "sum"}), "agg() takes a dictionary of names of columns, not 3"),
        (
            lambda s, F: s.groupBy("a").agg({"b": "stddev"}),
            "for column 'b', one of count, sum, avg, min, max, mean, not 'stddev'; others are written as Columns",
        ),
        (lambda s, F: s.groupBy("a").agg({"b": ["sum"]}), "for column 'b', one of count, sum"),
        (lambda s, F: s.groupBy("a").agg({"*": "sum"}), """agg() takes {"*": "count"}, not 'sum' of all columns"""),
        (lambda s, F: s.withWatermark("t", 5), 'a delay such as "10 minutes", not delayThreshold=5'),
        (
            lambda s, F: s.groupBy("a").agg(F.count("*"), late_to="no topic"),
            "'no topic' cannot be a topic",
        ),
        (lambda s, F: s.groupBy("a").agg(F.count("*"), late_to=3), "a topic's name is a string, not 3"),
        (
            lambda s, F: s.groupBy("a").agg(F.count("*"), retention=7),
            'agg() takes a retention such as "7 days", not retention=7',
        ),
        (lambda s, F: s.groupBy("a").agg(F.count("*"), retention=" "), "not retention=' '"),
        (lambda s, F: s.groupBy("a").count().outputMode("complete"), 'takes "update" or "append", not \'complete\''),
        (lambda s, F: s.groupBy("a").count().withWatermark("t", "1 s"), "use it on the stream, before groupBy()"),
        (lambda s, F: s.groupBy("a").sum(), 'sum() names no columns, such as sum("amount")'),
        (lambda s, F: s.groupBy("a").max(3), "max() takes names of columns, not 3; agg() takes Columns"),
        (lambda s, F: s.groupBy("a").median("b"), 'GroupedStream has no median(): use agg(F.median("a"))'),
        (
            lambda s, F: s.groupBy("a").aggregate(),
            'GroupedStream has no aggregate(): use agg(F.sum("x"), F.max("y"), ...); if no aggregate',
        ),
        (lambda s, F: s.groupBy("a").count().repartition("b"), "KTable has no repartition()"),
        (lambda s, F: s.groupBy("a").count().where(3), "where() takes SQL text or a Column, not 3"),
        (lambda s, F: s.groupBy("a").count().join(s), "a stream looks into a table, stream.join(table, ...)"),
        (lambda s, F: s.repartition(), "repartition() names no columns"),
        (lambda s, F: s.repartition(8), "repartition() takes names and Columns, not 8; use partitions="),
        (lambda s, F: s.repartition("a", partitions=0), "partitions=0 of repartition() must be a number from 1 on"),
        (lambda s, F: s.repartition("a", partitions=True), "partitions=True of repartition()"),
        (lambda s, F: s.repartition("a", partitions="8"), "partitions='8' of repartition()"),
        (lambda s, F: s.repartition(F.upper("a")), "repartition() takes names of columns; give upper(a) one first"),
        (lambda s, F: s.repartition("kafka.key"), 'give "kafka.key" one first'),
        (lambda s, F: s.repartition(F.col("a").alias("b")), "give a AS b one first"),
        (lambda s, F: s.select(), "select() names no columns"),
        (lambda s, F: s.select(1), "select() takes names and Columns, not 1"),
        (lambda s, F: s.selectExpr(), "selectExpr() has no expression"),
        (lambda s, F: s.selectExpr(F.col("a")), "selectExpr() takes SQL text"),
        (lambda s, F: s.where(lambda row: True), "for a Python function make a udf"),
        (lambda s, F: s.where(True), "where() takes SQL text or a Column, not True"),
        (lambda s, F: s.filter("  "), "filter() takes SQL text or a Column, not '  '"),
        (lambda s, F: s.withColumn("a", "b"), "withColumn() takes a Column such as F.col(\"b\"), not 'b'"),
        (lambda s, F: s.withColumn("a", 1), "withColumn() takes a Column such as F.lit(...), not 1"),
        (lambda s, F: s.withColumn("", F.lit(1)), "withColumn() takes a column's name, not ''"),
        (lambda s, F: s.withColumns({}), "withColumns() takes a dict of name to column, not {}"),
        (lambda s, F: s.withColumns({"a": 1}), "withColumns() takes a Column"),
        (lambda s, F: s.withColumnRenamed("a", None), "withColumnRenamed() takes a column's name, not None"),
        (lambda s, F: s.drop(), "drop() names no columns"),
        (lambda s, F: s.transform("f"), "transform() takes a function from DataFrame to DataFrame, not 'f'"),
        (lambda s, F: s.to(""), "the topic's name is empty"),
        (lambda s, F: s.to(None), "a topic's name is a string, not None"),
        (lambda s, F: s.to("a b"), "'a b' cannot be a topic"),
        (lambda s, F: s.to("x" * 250), "at most 249"),
        (lambda s, F: s.to("t", value="carrier"), "value= of to('t') takes a format such as String(\"carrier\")"),
        (lambda s, F: s.to("t", key=" "), "key= of to('t') takes a format such as String"),
        (lambda s, F: s.to("t", value=Json), "value= of to('t') takes a format"),
        (lambda s, F: s.to("t", key=Json("a int")), "key=Json(...) of to('t') has no fixed bytes"),
        (
            lambda s, F: s.to("t", value=Json("a  int")),
            "value=Json(\"a int\") of to('t') has a schema, which is for reading: columns are written as they are",
        ),
        (lambda s, F: s.to("t", name=3), "name= takes a string, not 3"),
    ],
)
def test_a_wrong_step_is_refused_where_it_is_written(flights, F, call, message):
    line = f"test_errors.py:{call.__code__.co_firstlineno}: "
    with fails(message) as raised:
        call(flights, F)
    assert str(raised.value).startswith(line)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.stream(""), "the topic's name is empty"),
        (lambda b: b.stream([]), "stream() takes a topic or a list of topics, not []"),
        (lambda b: b.stream(None), "stream() takes a topic or a list of topics, not None"),
        (lambda b: b.stream(["a", 1]), "a topic's name is a string, not 1"),
        (lambda b: b.stream("flights.*"), "patterns are not supported"),
        (lambda b: b.stream(".."), "'..' cannot be a topic"),
        (lambda b: b.stream(["a", "a"]), "names a topic twice"),
        (lambda b: b.stream("a", value="json"), "value= of stream() takes a format"),
        (lambda b: b.stream("a", value=String), "(an instance, with parentheses)"),
        (lambda b: b.stream("a", value=Json()), "value=Json() of stream() needs a schema"),
        (
            lambda b: b.global_table("a", key=String("k"), value=Json()),
            "value=Json() of global_table() needs a schema",
        ),
        (lambda b: b.stream("a", key=Json("k int")), "key=Json(...) of stream() is not supported: read it as String"),
        (lambda b: b.stream("a", timestamp="time"), "timestamp='time' names a decoded column"),
        (lambda b: b.stream("a", value=String(), timestamp=3), "timestamp= of stream() takes a column's name, not 3"),
        (lambda b: b.stream("a", name=""), "name='' becomes part of a topic's name"),
        (lambda b: b.stream("a", name="x" * 201), "1 to 200 of them"),
    ],
)
def test_a_wrong_source_is_refused_where_it_is_written(builder, call, message):
    line = f"test_errors.py:{call.__code__.co_firstlineno}: "
    with fails(message) as raised:
        call(builder)
    assert str(raised.value).startswith(line)


def test_an_empty_topology():
    with fails("the topology is empty; begin with builder.stream(topic)"):
        StreamsBuilder().build()


def test_a_source_that_nothing_uses(builder):
    line = here()
    builder.stream(["a", "b"])
    with fails(f"{line}: nothing is done with stream('a', 'b')"):
        builder.build()


def test_a_step_whose_result_is_unused(builder, flights):
    flights.to("out")
    line = here()
    flights.where("delay > 0")
    with fails(f'{line}: nothing uses the result of where("delay > 0"): every step returns a new object'):
        builder.build()


def test_a_repartition_whose_result_is_unused(builder, flights):
    line = here()
    flights.repartition("origin")
    with fails(f"{line}: nothing uses the result of repartition('origin')"):
        builder.build()


def test_a_grouping_without_aggregates(builder, flights):
    line = here()
    flights.groupBy("carrier")
    with fails(f'{line}: groupBy("carrier") is not followed by agg(...) or count()'):
        builder.build()


def test_table_steps_whose_result_is_unused(builder, flights):
    line = here()
    flights.groupBy("carrier").count().withColumnRenamed("count", "n").to_stream()
    with fails(f"{line}: nothing uses the result of to_stream()"):
        builder.build()


def test_final_rows_whose_result_is_unused(builder, flights, F):
    line = here()
    flights.withWatermark("time", "1 minute").groupBy(F.window("time", "1 hour")).count().outputMode("append")
    with fails(f'{line}: nothing uses the result of outputMode("append")'):
        builder.build()


def test_a_join_by_a_condition_whose_result_is_unused(builder):
    left = builder.stream("clicks", key=String("user"), value=Json("at timestamp")).withWatermark("at", "1 minute")
    right = builder.stream("views", key=String("viewer"), value=Json("seen timestamp"))
    line = here()
    left.join(right.withWatermark("seen", "1 minute"), "user = viewer and seen between at and at + interval 1 hour")
    with fails(f"{line}: nothing uses the result of join("):
        builder.build()


def test_sessions_of_everything_need_a_time(flights, F):
    session = F.session_window("at", "1 hour")
    with fails('groupBy() by sessions alone needs withWatermark("time", "10 minutes") before it') as raised:
        flights.groupBy(session).count()
    assert str(raised.value).endswith("not None")
    with fails("with a column of the stream, not 'kafka.timestamp'"):
        flights.withWatermark("kafka.timestamp", "1 hour").groupBy(session).count()


def test_a_table_of_final_rows_has_one_way_out(builder, flights, F):
    made = here()
    table = flights.withWatermark("at", "1 minute").groupBy(F.window("at", "1 hour"), "carrier").count()
    first = here()
    table.to("a")
    second = here()
    table.outputMode("append").to("b")
    used = f"{second}: the table of {made} is used here and at {first}"
    with fails(f'{used}; with outputMode("append"), at {second}, there is one way out of a table') as raised:
        builder.build()
    assert "Write it once with to(topic)" in str(raised.value)


def test_the_same_rows_twice_into_one_topic(builder, flights):
    first = here()
    flights.to("out")
    second = here()
    flights.to("out")
    with fails(f"{second}: {first} writes the same rows to 'out' already"):
        builder.build()


def test_a_circle(builder):
    source = here()
    stream = builder.stream("a")
    line = here()
    stream.where("true").to("a")
    with fails(f"{line}: rows would go round in a circle, written to 'a' at {line} and read again at {source}"):
        builder.build()


def test_a_circle_of_several(builder):
    source = here()
    builder.stream("a").to("b")
    between = here()
    builder.stream("b", key=String("k")).groupBy("kafka.topic").count().to("c")
    last = here()
    builder.stream("c").to("a")
    with fails(f"read again at {source}") as raised:
        builder.build()
    message = str(raised.value)
    assert message.startswith(f"{last}: ")
    assert f"'b' at {source} and" in message
    assert f"'c' at {between} and" in message


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (lambda s, n: s.groupBy("carrier").count(name=n), "store"),
        (lambda s, n: s.repartition("origin", name=n).to(f"out-{id(n)}"), "repartition topic"),
        (lambda s, n: s.where("true").to("out", name=n), "sink"),
    ],
)
def test_a_name_given_twice(builder, flights, write, kind):
    write(flights, "mine")
    write(flights.where("delay > 0"), "mine")
    line = f"test_errors.py:{write.__code__.co_firstlineno}"
    with fails(f"{line}: the {kind} name 'mine' is taken by {line}; choose another name="):
        builder.build()


def test_a_stream_name_given_twice(builder):
    builder.stream("a", name="s").to("x")
    builder.stream("b", name="s").to("y")
    with fails("the stream name 's' is taken by test_errors.py:"):
        builder.build()


def test_a_name_of_ours_given_to_another(builder, flights):
    automatic = here()
    flights.groupBy("carrier").count()
    chosen = here()
    flights.groupBy("carrier").count(name="flights-by-carrier")
    with fails(f"{automatic}: the store made here is called 'flights-by-carrier', but {chosen} gives that name"):
        builder.build()


def test_objects_can_be_shown_and_probed(builder, flights):
    grouped = flights.groupBy("carrier")
    table = grouped.count()
    assert repr(flights).startswith("<KStream written at conftest.py:")
    assert repr(grouped).startswith("<GroupedStream written at test_errors.py:")
    assert repr(table).startswith("<KTable written at test_errors.py:")
    assert repr(builder.build()) == "<Topology of 1 subtopologies reading flights>"
    for thing in (flights, grouped, table):
        assert not hasattr(thing, "_repr_html_")
        copy.copy(thing)


@pytest.mark.parametrize(
    "call",
    [
        lambda s, c: s.select("carrier", c),
        lambda s, c: s.where(c),
        lambda s, c: s.filter(c),
        lambda s, c: s.withColumn("a", c),
        lambda s, c: s.withColumns({"a": c}),
        lambda s, c: s.groupBy("carrier", c),
        lambda s, c: s.groupBy("carrier").agg(c),
        lambda s, c: s.groupBy("carrier").count().select(c),
    ],
)
def test_random_values_that_would_come_again_are_refused(flights, F, call):
    seed = F.lit(0)
    seed._jc.node().text = "8938404065519006619L"
    line = f"test_errors.py:{call.__code__.co_firstlineno}: "
    with fails("rand(seed) would give the same values in every micro-batch") as raised:
        call(flights, F.function("rand")(seed))
    assert str(raised.value).startswith(line)
    assert 'F.expr("rand(...)") without a seed' in str(raised.value)


def test_late_rows_need_a_watermark(builder, flights, F):
    line = here()
    flights.groupBy(F.window("at", "1 hour")).agg(F.count("*"), late_to="late")
    with fails(f"{line}: agg(..., late_to=...) needs to know which rows are late: put withWatermark"):
        builder.build()


@pytest.mark.parametrize("sink", [True, False])
def test_a_retention_needs_a_watermark(builder, flights, F, sink):
    line = here()
    table = flights.groupBy(F.window("at", "1 hour")).agg(F.count("*"), retention="1 day")
    if sink:
        table.to("out")
    with fails(f"{line}: agg(..., retention='1 day') needs to know when a window is over: put withWatermark"):
        builder.build()


@pytest.mark.parametrize(
    "step",
    [
        lambda s, _: s.where("time > timestamp'yesterday'"),
        lambda s, _: s.selectExpr("carrier", "date 'today' as day"),
        lambda s, functions: s.withColumn("day", functions.expr("date'today'")),
        lambda s, functions: s.groupBy(functions.expr("time > timestamp'18:00'")),
    ],
)
def test_literals_that_would_stay_at_one_time(flights, F, step):
    with pytest.raises(TopologyException, match=r"test_errors.py:\d+: .* is the time at which .* current_date\(\)"):
        step(flights, F)

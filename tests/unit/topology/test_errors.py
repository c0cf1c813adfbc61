"""Every mistake names the line that made it, what was given, and the way out."""

# ruff: noqa: N803 - everybody writes F

import copy
import inspect
import re

import pytest
from pyspark.sql.streaming import StatefulProcessor

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder


def here(offset=1):
    frame = inspect.currentframe().f_back
    return f"test_errors.py:{frame.f_lineno + offset}"


def fails(message):
    return pytest.raises(TopologyException, match=re.escape(message))


def hours(stream, F):
    return stream.withWatermark("time", "1 minute").groupBy("carrier", F.window("time", "1 hour"))


class Nothing(StatefulProcessor):
    def init(self, handle): ...

    def handleInputRows(self, key, rows, timerValues): ...


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, F: s.orderBy("carrier"), "has no orderBy(): an endless stream has no order"),
        (lambda s, F: s.limit(3), "has no limit(): a stream has no end"),
        (lambda s, F: s.union(3), "union() takes a stream of the same builder, not 3"),
        (
            lambda s, F: s.unionByName(s.drop("delay")),
            'Cannot resolve column name "delay" among (origin, time, carrier, kafka)',
        ),
        (lambda s, F: s.cache(), "has no cache(): each micro-batch is read once"),
        (lambda s, F: s.collect(), "has no collect(): a topology is a description"),
        (
            lambda s, F: s.groupBy("carrier").count().dropDuplicates(["carrier"]),
            "a table has one row of each group already; for the first of its changes put to_stream() before it",
        ),
        (lambda s, F: s.dropna("some"), "Value for `how` has to be amongst the following values: ['any', 'all']"),
        (lambda s, F: s.dropna(thresh="x"), "how (x) must be 'any' or 'all'"),
        (lambda s, F: s.dropna(subset="*"), "with name `*` cannot be resolved"),
        (lambda s, F: s.dropna(subset=["zzz"]), "with name `zzz` cannot be resolved"),
        (lambda s, F: s.fillna(None), "Argument `value` should be bool, dict, float, int or str, got NoneType"),
        (lambda s, F: s.fillna(0, subset={"carrier"}), "Argument `subset` should be list or tuple, got set"),
        (lambda s, F: s.selct("carrier"), "has no selct(): did you mean select?"),
        (lambda s, F: s.withcolumn("a", 1), "has no withcolumn(): did you mean withColumn?"),
        (
            lambda s, F: s.zzz,
            'has no zzz(): a column is written F.col("zzz"); steps are alias, drop, dropDuplicates, ',
        ),
        (lambda s, F: s["zzz"], "with name `zzz` cannot be resolved"),
        (lambda s, F: s.to_stream(), "has no to_stream(): it is a stream already"),
        (lambda s, F: list(s), "a KStream is a description and holds no rows"),
        (lambda s, F: s.count(), 'has no count(): use groupBy("a").count(), or groupBy().count(), a table of one row'),
        (lambda s, F: s.where(F.sum("delay") > 1), "contains invalid expressions: sum(delay)"),
        (lambda s, F: s.foreachBatch("f"), "foreachBatch() takes a function (df, batch_id), not 'f'"),
        (
            lambda s, F: s.groupBy("carrier").count().foreachBatch(print),
            "KTable has no foreachBatch(): it is for streams",
        ),
        (lambda s, F: s.join(s, "carrier"), "join() of two streams takes within="),
        (lambda s, F: s.rollup(), "rollup() names no columns"),
        (
            lambda s, F: s.groupBy().transformWithState(Nothing(), "a int", "Append", "None"),
            "transformWithState() needs columns of groupBy(): state belongs to a key",
        ),
        (lambda s, F: s.groupBy("*").count(), "Invalid usage of '*' in Aggregate"),
        (lambda s, F: s.groupBy("carrier", name="a b"), "name='a b' becomes part of a topic's name"),
        (lambda s, F: s.groupBy("carrier").agg(), "agg() has no aggregates"),
        (lambda s, F: s.groupBy("carrier").agg("sum(delay)"), "all exprs should be Column"),
        (lambda s, F: s.groupBy("carrier").agg({"delay": "sum"}, F.count("*")), "all exprs should be Column"),
        (lambda s, F: s.groupBy("carrier").agg({"*": "sum"}), "The `sum` requires 1 parameters"),
        (lambda s, F: s.withWatermark("time", 5), "Argument `delayThreshold` should be str, got int"),
        (lambda s, F: s.withWatermark("time", "soon"), "Unable to parse 'soon'"),
        (lambda s, F: s.withWatermark("time", "-5 minutes"), "delay threshold (-5 minutes) should not be negative"),
        (lambda s, F: s.withWatermark("origin", "1 hour"), 'has the invalid type "STRING", but expected "TIMESTAMP"'),
        (lambda s, F: hours(s, F).agg(F.count("*"), late_to="no topic"), "'no topic' cannot be a topic"),
        (lambda s, F: hours(s, F).agg(F.count("*"), late_to=3), "a topic's name is a string, not 3"),
        (
            lambda s, F: s.groupBy("carrier").agg(F.count("*"), retention=7),
            'agg() takes a retention such as "7 days", not retention=7',
        ),
        (lambda s, F: s.groupBy("carrier").agg(F.count("*"), retention=" "), "not retention=' '"),
        (
            lambda s, F: s.groupBy("carrier").count().outputMode("complete"),
            'takes "update" or "append", not \'complete\'',
        ),
        (
            lambda s, F: s.groupBy("carrier").agg(F.max("time").alias("t")).withWatermark("t", "1 second"),
            "use it on the stream, before groupBy()",
        ),
        (lambda s, F: s.groupBy("carrier").sum("origin"), '"origin" is not a numeric column'),
        (lambda s, F: s.groupBy("carrier").max("zzz"), "with name `zzz` cannot be resolved"),
        (lambda s, F: s.groupBy("carrier").median("delay"), 'GroupedStream has no median(): use agg(F.median("a"))'),
        (
            lambda s, F: s.groupBy("carrier").aggregate(),
            'GroupedStream has no aggregate(): use agg(F.sum("x"), F.max("y"), ...); if no aggregate',
        ),
        (
            lambda s, F: s.groupBy("carrier").count().repartition("count"),
            "it is for streams; groupBy(...) and join(...) move a table's rows themselves",
        ),
        (lambda s, F: s.groupBy("carrier").count().where(3), "Argument `condition` should be Column or str, got int"),
        (lambda s, F: s.groupBy("carrier").count().join(s), "a stream looks into a table, stream.join(table, ...)"),
        (lambda s, F: s.repartition(), "repartition() names no columns"),
        (lambda s, F: s.repartition(8), "repartition() takes names and Columns, not 8; give the count as partitions=8"),
        (
            lambda s, F: s.repartition("carrier", partitions=0),
            "partitions=0 of repartition() must be a number from 1 on",
        ),
        (lambda s, F: s.repartition("carrier", partitions=True), "partitions=True of repartition()"),
        (lambda s, F: s.repartition("carrier", partitions="8"), "partitions='8' of repartition()"),
        (
            lambda s, F: s.repartition(F.upper("carrier")),
            "repartition() takes names of columns; give Column<'upper(carrier)'> one first",
        ),
        (lambda s, F: s.repartition("kafka.key"), "give kafka.key one first"),
        (lambda s, F: s.repartition(F.col("carrier").alias("b")), "give Column<'carrier AS b'> one first"),
        (lambda s, F: s.select(1), "Argument `col` should be Column or str, got int"),
        (lambda s, F: s.select("zzz"), "with name `zzz` cannot be resolved. Did you mean one of the following? ["),
        (lambda s, F: s.selectExpr(F.col("carrier")), "Column is not iterable"),
        (lambda s, F: s.where(lambda row: True), "Argument `condition` should be Column or str, got function"),
        (lambda s, F: s.where(True), "Argument `condition` should be Column or str, got bool"),
        (lambda s, F: s.where("zzz > 1"), "with name `zzz` cannot be resolved"),
        (lambda s, F: s.where("origin >"), "Syntax error at or near end of input"),
        (lambda s, F: s.filter("  "), "Syntax error, unexpected empty statement"),
        (lambda s, F: s.withColumn("a", "origin"), "Argument `col` should be Column, got str"),
        (lambda s, F: s.withColumn("a", 1), "Argument `col` should be Column, got int"),
        (lambda s, F: s.withColumns({"a": 1}), "Argument `col` should be Column or str, got int"),
        (lambda s, F: s.transform("f"), "transform() takes a function, not 'f'"),
        (lambda s, F: s.transform(lambda _: 3), "returned no rows of this builder, but 3"),
        (lambda s, F: s.intersect(s), "intersect(): it compares whole tables: write EXISTS, or LEFT SEMI JOIN"),
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
    with fails(f"{line}: nothing uses the result of where(...): every step returns a new object"):
        builder.build()


def test_a_repartition_whose_result_is_unused(builder, flights):
    line = here()
    flights.repartition("origin")
    with fails(f"{line}: nothing uses the result of repartition('origin')"):
        builder.build()


def test_a_grouping_without_aggregates(builder, flights):
    line = here()
    flights.groupBy("carrier")
    with fails(f"{line}: groupBy() is not followed by agg(...) or count()"):
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


def test_a_join_by_a_condition_whose_result_is_unused(builder, F):
    left = builder.stream("clicks", key=String("user"), value=Json("at timestamp")).withWatermark("at", "1 minute")
    right = builder.stream("views", key=String("viewer"), value=Json("seen timestamp"))
    line = here()
    left.join(
        right.withWatermark("seen", "1 minute"), F.expr("user = viewer and seen between at and at + interval 1 hour")
    )
    with fails(f"{line}: nothing uses the result of join("):
        builder.build()


def test_sessions_of_everything_need_a_time(flights, F):
    session = F.session_window("time", "1 hour")
    with fails(f'{here()}: groupBy() by sessions alone needs withWatermark("time", "10 minutes") before it'):
        flights.groupBy(session).count()
    with fails("must be a top-level column, but 'kafka.timestamp' is a nested field"):
        flights.withWatermark("kafka.timestamp", "1 hour").groupBy(session).count()


def test_a_table_of_final_rows_has_one_way_out(builder, flights, F):
    made = here()
    table = flights.withWatermark("time", "1 minute").groupBy(F.window("time", "1 hour"), "carrier").count()
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
    with fails(
        f"{line}: rows would go round in a circle, written to 'a' at {line} and read again at {source}"
    ) as raised:
        builder.build()
    assert str(raised.value).endswith("or say that they may come back: to(..., circular=True)")


def test_a_circle_that_is_said(builder):
    builder.stream("a").where("value IS NULL").to("a", circular=True)
    assert "      circular: rows may come back from this topic\n" in builder.build().describe()
    builder.stream("b").to("c", circular=True)
    builder.stream("c").to("b")
    builder.stream("d").to("d")
    with fails("written to 'd'"):
        builder.build()
    with fails("circular='yes' of to('a') must be True or False"):
        builder.stream("e").to("a", circular="yes")


def test_sources_that_begin_at_different_places(builder):
    first = here()
    builder.stream("a", starting="latest").where("value IS NULL").to("out")
    line = here()
    builder.stream("a", starting={0: 23}).where("key IS NULL").to("out-2")
    words = f"{line}: topic 'a' is read from 0: 23 here and from latest at {first}, and an application has one position"
    with fails(words):
        builder.build()


def test_a_source_that_begins_where_the_settings_say(builder):
    first = here()
    builder.stream("a").where("value IS NULL").to("out")
    line = here()
    builder.stream(["a", "b"], starting={"b": "latest", "a": "earliest"}).where("key IS NULL").to("out-2")
    with fails(f"{line}: topic 'a' is read from earliest here and from auto.offset.reset at {first}"):
        builder.build()


def test_a_name_that_names_nothing(builder, flights):
    with fails("name='best' of where() names the table of the first rows of each key, and this makes none"):
        flights.where("true", name="best")


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
        (lambda s, n: s.groupBy("carrier").count(name=n).to(f"out-{id(s)}"), "store"),
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
    flights.groupBy("carrier").count().to("some")
    chosen = here()
    flights.groupBy("carrier").count(name="flights-by-carrier").to("others")
    with fails(f"{automatic}: the store made here is called 'flights-by-carrier', but {chosen} gives that name"):
        builder.build()


def test_objects_can_be_shown_and_probed(builder, flights):
    grouped = flights.groupBy("carrier")
    table = grouped.count()
    table.to("out")
    assert repr(flights).startswith("KStream[origin: string, delay: double, time: timestamp, carrier: string, kafka: ")
    assert repr(grouped).startswith("<GroupedStream written at test_errors.py:")
    assert repr(table) == "KTable[carrier: string, count: bigint]"
    assert repr(builder.build()) == "<Topology of 1 subtopologies reading flights>"
    # What a notebook shows is the text, not rows, which a DataFrame would run for.
    assert (flights._repr_html_(), table._repr_html_()) == (None, None)
    assert not hasattr(grouped, "_repr_html_")
    for thing in (flights, grouped, table):
        copy.copy(thing)


def test_random_values_are_drawn_anew_so_no_seed_is_part_of_the_pipeline(F):
    def built(*seed):
        builder = StreamsBuilder()
        stream = builder.stream("flights", key=String("carrier"), value=Json("origin string"))
        stream.withColumn("drawn", F.rand(*seed)).where(F.rand(*seed) > 0.5).to("out")
        return builder.build().fingerprint

    assert built() == built() == built(1) == built(2)


@pytest.mark.parametrize(
    "write",
    [lambda s, F: s.select("carrier", F.rand()), lambda s, F: s.groupBy("carrier", F.rand()).count()],
)
def test_a_seed_is_part_of_no_name(flights, F, write):
    with pytest.raises(TopologyException, match=r"'rand\(-?\d+\)' has in its name the seed .*alias\(\"drawn\"\)"):
        write(flights, F).to("out")


def test_random_values_are_not_aggregated(flights, F):
    with fails(f'{here()}: [AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION] Non-deterministic expression "sum('):
        flights.groupBy("carrier").agg(F.sum(F.rand()))


def test_late_rows_need_a_watermark(flights, F):
    with fails(f"{here()}: agg(..., late_to=...) needs to know which rows are late: put withWatermark"):
        flights.groupBy(F.window("time", "1 hour")).agg(F.count("*"), late_to="late")


def test_late_rows_need_windows(flights, F):
    with fails(f"{here()}: late_to= is for the rows whose window is over, and this grouping has none: group by "):
        flights.withWatermark("time", "1 minute").groupBy("carrier").agg(F.count("*"), late_to="late")


def test_a_retention_needs_a_watermark(flights, F):
    with fails(f"{here()}: agg(..., retention='1 day') needs to know when a window is over: put withWatermark"):
        flights.groupBy(F.window("time", "1 hour")).agg(F.count("*"), retention="1 day")


def test_a_retention_needs_windows(flights, F):
    with fails(f"{here()}: retention='1 day' keeps windows that are over, and this grouping has none: group by "):
        flights.withWatermark("time", "1 minute").groupBy("carrier").agg(F.count("*"), retention="1 day")


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
    with pytest.raises(
        TopologyException, match=r"test_errors.py:\d+: .* is read once, .* write current_(date|timestamp)\(\)"
    ):
        step(flights, F)


def test_an_error_of_the_jvm_s_comes_without_its_stack(flights):
    with pytest.raises(TopologyException) as refused:
        flights.dropna(thresh=True)
    assert "Trace" not in str(refused.value)


def test_a_stream_without_columns_is_refused_where_it_is_written(flights):
    with fails(f"{here()}: "):
        flights.select().to("out")


def test_an_aggregation_of_nothing_is_refused_in_both_ways_to_write_it(flights):
    with fails(f"{here()}: agg() has no aggregates"):
        flights.groupBy("carrier").agg({})

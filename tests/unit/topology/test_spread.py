"""Which columns decide in which task a row is, against a small model of what Spark does with names."""

# ruff: noqa: N803 - everybody writes F

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyspark.sql import functions

from sparkrelay.records.formats import Integer, Json, Long, Raw, String
from sparkrelay.topology import StreamsBuilder

NAMES = ["origin", "carrier", "kafka"]


@pytest.fixture
def keyed(builder):
    return builder.stream("flights", key=String("carrier"), value=Json("origin string"))


def located(frame, *columns):
    """Return how a grouping by columns, or fields of them, finds its rows."""
    fields = {"kafka.key": 0, "kafka.partition": 3}
    names = [column.name for column in frame._rows.columns]
    paths = {(names.index(one.partition(".")[0]), *([fields[one]] if one in fields else [])) for one in columns}
    return frame._rows.spread.locate_paths(paths)


def kept(frame, *columns):
    return located(frame, *columns) is not None


@pytest.mark.parametrize("key", [String("k"), Raw("k"), Integer("k"), Long("k")])
def test_a_source_is_located_by_its_key(builder, key):
    assert kept(builder.stream("in", key=key), "k")


def test_a_key_beside_other_columns_will_do(keyed):
    assert kept(keyed, "carrier")
    assert kept(keyed, "origin", "carrier")
    assert kept(keyed, "kafka.key")
    assert kept(keyed, "kafka.partition")
    assert not kept(keyed, "origin")
    assert not kept(keyed, "kafka")


def test_a_source_without_formats_has_kafkas_own_columns(builder):
    raw = builder.stream("raw")
    assert kept(raw, "key")
    assert kept(raw, "partition")
    assert not kept(raw, "value")
    without_key = builder.stream("values", value=Json("a int"))
    assert kept(without_key, "kafka.key")
    assert not kept(without_key, "a")


def test_a_message_without_a_key_may_lie_anywhere(builder, keyed):
    assert located(keyed, "carrier", "origin").not_null == ((1,),)
    assert located(keyed, "kafka.partition").not_null == ()
    assert located(keyed.repartition("origin"), "origin").not_null == ((0,),)
    assert located(keyed.repartition("origin", "carrier"), "carrier", "origin").not_null == ()


def test_the_columns_that_decide_are_in_the_order_of_the_key(keyed):
    sent = keyed.repartition("origin", "carrier").select("carrier", "origin")
    assert located(sent, "carrier", "origin").columns == (1, 0)
    assert located(keyed, "kafka.partition").columns is None
    assert located(keyed, "kafka.key").columns is None


def test_a_repartition_key_is_needed_as_a_whole(keyed):
    sent = keyed.repartition("origin", "carrier")
    assert kept(sent, "origin", "carrier", "kafka")
    assert not kept(sent, "origin")
    assert not kept(sent.drop("carrier"), "origin")
    assert not kept(keyed.repartition("origin"), "carrier"), "the message has another key now"


@pytest.mark.parametrize(
    ("write", "column"),
    [
        (lambda s, F: s.where("origin = 'JFK'").filter("true"), "carrier"),
        (lambda s, F: s.withColumnRenamed("carrier", "c"), "c"),
        (lambda s, F: s.withColumnRenamed("Carrier", "c"), "c"),
        (lambda s, F: s.select("*"), "carrier"),
        (lambda s, F: s.select("origin", "carrier"), "carrier"),
        (lambda s, F: s.select("CARRIER"), "CARRIER"),
        (lambda s, F: s.select("kafka"), "kafka.key"),
        (lambda s, F: s.select("kafka.*"), "key"),
        (lambda s, F: s.select("kafka.key"), "key"),
        (lambda s, F: s.select(F.col("kafka.key").alias("k")), "k"),
        (lambda s, F: s.selectExpr("origin", "carrier as c"), "c"),
        (lambda s, F: s.selectExpr("*", "1 as one"), "carrier"),
        (lambda s, F: s.drop("origin"), "carrier"),
        (lambda s, F: s.withColumn("copy", F.col("carrier")).drop("carrier"), "copy"),
        (lambda s, F: s.withColumn("carrier", F.col("carrier")), "carrier"),
        (lambda s, F: s.withColumns({"origin": F.col("carrier"), "carrier": F.col("origin")}), "origin"),
        (lambda s, F: s.transform(lambda rows: rows), "carrier"),
        (lambda s, F: s.transform(lambda rows: rows.withColumnRenamed("carrier", "c")), "c"),
        (lambda s, F: s.dropna(), "carrier"),
        (lambda s, F: s.fillna("x", subset=["origin"]), "carrier"),
        (lambda s, F: s.fillna(0), "carrier"),
        (lambda s, F: s.alias("x").select("x.carrier"), "carrier"),
        (lambda s, F: s.select("carrier", F.explode(F.array("origin"))), "carrier"),
        (lambda s, F: s.withColumn("both", F.struct("carrier", "origin")).select("carrier", "both"), "carrier"),
    ],
)
def test_steps_that_keep_the_key(keyed, F, write, column):
    assert kept(write(keyed, F), column)


@pytest.mark.parametrize(
    ("write", "column"),
    [
        (lambda s, F: s.withColumn("carrier", F.upper("carrier")), "carrier"),
        (lambda s, F: s.withColumn("Carrier", F.upper("carrier")), "Carrier"),
        (lambda s, F: s.withColumns({"CARRIER": F.lit("x")}), "CARRIER"),
        (lambda s, F: s.withColumns({"origin": F.col("carrier"), "carrier": F.col("origin")}), "carrier"),
        (lambda s, F: s.drop("carrier").withColumnRenamed("origin", "carrier"), "carrier"),
        (lambda s, F: s.select(F.col("origin").alias("carrier")), "carrier"),
        (lambda s, F: s.selectExpr("upper(carrier) as carrier"), "carrier"),
        (lambda s, F: s.selectExpr("cast(carrier as binary) as carrier"), "carrier"),
        (lambda s, F: s.transform(lambda rows: rows.withColumn("carrier", F.upper("carrier"))), "carrier"),
        (lambda s, F: s.fillna("x"), "carrier"),
        (lambda s, F: s.fillna({"carrier": "x"}), "carrier"),
        (lambda s, F: s.unionByName(s), "carrier"),
        (lambda s, F: s.groupBy("carrier").count().to_stream(), "carrier"),
        (lambda s, F: s.dropDuplicates(["carrier"]), "carrier"),
    ],
)
def test_steps_that_lose_the_key(keyed, F, write, column):
    assert not kept(write(keyed, F), column)


def test_of_several_copies_the_one_with_the_name_it_was_read_under_is_the_key(keyed, F):
    copied = keyed.select(F.col("carrier").alias("a"), "carrier", F.col("carrier").alias("z"))
    spread = copied._rows.spread
    assert spread.key(copied.columns) == (1,)
    assert spread.copies() == (0, 1, 2)
    renamed = keyed.select(F.col("carrier").alias("a"), F.col("carrier").alias("z"))
    assert renamed._rows.spread.key(renamed.columns) is not None


def test_without_all_of_its_columns_there_is_no_key(keyed):
    sent = keyed.repartition("origin", "carrier")
    assert sent._rows.spread.key(sent.columns) == (0, 1)
    lost = sent.drop("origin")
    assert lost._rows.spread.key(lost.columns) is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("where")),
        st.tuples(st.just("withColumn"), st.sampled_from("abc"), st.sampled_from("abc")),
        st.tuples(st.just("overwrite"), st.sampled_from("abc")),
        st.tuples(st.just("rename"), st.sampled_from("abc"), st.sampled_from("ABC")),
        st.tuples(st.just("select"), st.permutations("abc")),
    ),
    max_size=5,
)


@given(steps=STEPS, grouped=st.sets(st.sampled_from("abc"), min_size=1, max_size=2))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_located_groups_hold_the_key_whatever_the_steps_were(steps, grouped):
    contents = {"a": "the key", "b": "something", "c": "more"}
    frame = StreamsBuilder().stream("in", key=String("a"), value=Json("b string, c string")).select("a", "b", "c")
    for kind, *args in steps:
        if kind == "where":
            frame = frame.where("b > 'x'")
        elif kind == "withColumn":
            name, copied = args
            frame = frame.withColumn(name, functions.col(copied))
            contents[name] = contents[copied]
        elif kind == "overwrite":
            frame = frame.withColumn(args[0], functions.upper(args[0]))
            contents[args[0]] = "made"
        elif kind == "rename":
            old, new = args
            if new.lower() == old:
                frame = frame.withColumnRenamed(old, new).withColumnRenamed(new, old)
        else:
            frame = frame.select(*args[0])
    assert kept(frame, *grouped) == ("the key" in {contents[name] for name in grouped})

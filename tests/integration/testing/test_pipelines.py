"""Whole pipelines against plain Python and Spark batch: functions, several ways out, ways that let nothing through."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Integer, Json, Raw, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def orders(count):
    return [(f"u{i % 7}", {"shop": f"s{i % 5}", "amount": i % 13 - 3}) for i in range(count)]


def newest(driver, topic, **formats):
    """Return the last value of each key of a topic."""
    return {record.key: record.value for record in driver.create_output_topic(topic, **formats).read_records()}


def test_a_tombstone_is_one_also_where_no_step_looks_at_values(spark):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"))
    stream.groupBy("k").count().to("counts", key=String("k"), value=Json())
    stream.select("k").to("copies", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        rows = [("a", b"1"), ("a", None), ("b", None), ("a", b"2"), ("end", b"x")]
        driver.create_input_topic("in").pipe_rows(rows)
        assert newest(driver, "counts") == {"a": {"k": "a", "count": 2}, "end": {"k": "end", "count": 1}}
        copies = driver.create_output_topic("copies", value=Raw()).read_records()
    passed = [(record.key, record.value is None) for record in copies]
    assert passed == [(b"a", False), (b"a", True), (b"b", True), (b"a", False), (b"end", False)]


def test_python_and_pandas_functions(spark):
    import pandas as pd

    @F.udf("string")
    def lowered(word):
        return word.lower()

    @F.pandas_udf("bigint")
    def doubled(n: pd.Series) -> pd.Series:
        return n * 2

    builder = StreamsBuilder()
    words = builder.stream("words", key=String("k"), value=Json("word string, n bigint"))
    grouped = words.withColumn("word", lowered("word")).groupBy("word")
    counts = grouped.agg(F.sum(doubled("n")).alias("s"), F.count("*").alias("c"))
    counts.withColumn("half", doubled("s") / 4).to("counts")
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2, batch="all") as driver:
        driver.create_input_topic("words").pipe_rows((f"k{i}", {"word": f"Word{i % 3}", "n": i}) for i in range(30))
        found = newest(driver, "counts")
    expected = {}
    for w in range(3):
        total = sum(2 * i for i in range(30) if i % 3 == w)
        expected[f"word{w}".encode()] = {"word": f"word{w}", "s": total, "c": 10, "half": total / 2}
    assert found == expected


def test_two_stores_in_one_task_and_two_ways_into_one_topic(spark):
    rows = orders(200)
    builder = StreamsBuilder()
    stream = builder.stream("orders", key=String("user"), value=Json("shop string, amount int"))
    stream.groupBy("user", name="first").count().to("counts")
    stream.where("amount > 0").groupBy("user", name="second").agg(F.sum("amount").alias("total")).to("sums")
    stream.where("amount > 5").select("user", "amount", F.lit("big").alias("why")).to("both", value=Json())
    stream.where("amount < 0").select("user", "amount", F.lit("back").alias("why")).to("both", value=Json())
    config = {"max.batch.records": 30}
    with TopologyTestDriver(builder.build(), config, spark=spark, partitions=2, batch="all") as driver:
        driver.create_input_topic("orders").pipe_rows(rows)
        counts, sums = newest(driver, "counts"), newest(driver, "sums")
        both = driver.create_output_topic("both", key=String()).read_records()
    amounts = {user: [row["amount"] for of, row in rows if of == user] for user, _ in rows}
    assert counts == {user.encode(): {"user": user, "count": len(of)} for user, of in amounts.items()}
    totals = {user: sum(amount for amount in of if amount > 0) for user, of in amounts.items()}
    assert sums == {user.encode(): {"user": user, "total": total} for user, total in totals.items()}
    expected = [(user, user, row["amount"], "big") for user, row in rows if row["amount"] > 5]
    expected += [(user, user, row["amount"], "back") for user, row in rows if row["amount"] < 0]
    assert sorted((record.key, *record.value.values()) for record in both) == sorted(expected)


def test_keys_of_other_types_and_an_explicit_repartition(spark):
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", key=Integer("id"), value=Json("n bigint"))
    even = numbers.withColumn("even", F.col("n") % 2 == 0).withColumn("parity", F.when(F.col("even"), 0).otherwise(1))
    moved = even.select("parity", "n").repartition("parity", partitions=3)
    moved.groupBy("parity").agg(F.sum("n").alias("s")).to("sums")
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2, batch="all") as driver:
        driver.create_input_topic("numbers").pipe_rows((i % 4, {"n": i}) for i in range(40))
        assert newest(driver, "sums", key=Raw()) == {
            parity.to_bytes(4, "big"): {"parity": parity, "s": sum(range(parity, 40, 2))} for parity in (0, 1)
        }


def test_a_way_that_lets_nothing_through_holds_nobody_up(spark):
    """Spark runs no partition of such a leg, so nobody reports; the batches are committed all the same."""
    rows = orders(60)
    builder = StreamsBuilder()
    stream = builder.stream("orders", key=String("user"), value=Json("shop string, amount int"))
    stream.groupBy("user", name="users").count().to("counts")
    # What they read is still named, though nothing of it is read.
    dark = stream.where(F.lit(False)).where("amount > 1")
    dark.groupBy("user", name="spent").agg(F.sum(F.col("amount") * 2).alias("spent")).to("spent")
    dark.groupBy("shop", name="shops").agg(F.sum("amount").alias("sold")).to("shops")
    stream.where(F.lit(False)).to("off", value=Json())
    config = {"max.batch.records": 20}
    with TopologyTestDriver(builder.build(), config, spark=spark, partitions=2, batch="all") as driver:
        driver.create_input_topic("orders").pipe_rows(rows)
        users = [user for user, _ in rows]
        expected = {user.encode(): {"user": user, "count": users.count(user)} for user in users}
        assert newest(driver, "counts") == expected
        assert all(driver.create_output_topic(name).is_empty for name in ("spent", "shops", "off"))


@pytest.mark.parametrize("after", [False, True])
def test_a_store_moves_on_while_its_way_lets_nothing_through(application, after):
    """Its position is the task's: one that stood still would have the other ways' records read and written again."""

    def run(on, *, before, count):
        builder = StreamsBuilder()
        stream = builder.stream("orders", key=String("user"), value=Json("amount int"))
        counted = stream if after else stream.where(on)
        table = counted.groupBy("user", name="users").count()
        (table.to_stream().where(on) if after else table).to("counts")
        stream.where("amount > 0").select("user", "amount").to("big", value=Json())
        with application.running(builder, batch="all") as driver:
            rows = (("a", {"amount": n}) for n in range(before + 1, before + count + 1))
            driver.create_input_topic("orders").pipe_rows(rows)
            amounts = [row["amount"] for row in driver.create_output_topic("big").read_rows()]
            assert amounts == list(range(1, before + count + 1))
            return driver.create_output_topic("counts").read_rows()[-1]

    run(F.lit(True), before=0, count=3)
    run(F.lit(False), before=3, count=4)
    # It depends on the time, so its plan is built anew for every batch.
    run(F.expr("current_timestamp() < timestamp'2000-01-01'"), before=7, count=1)
    # Rows that were let through nowhere are counted only where the condition is after the count.
    assert run(F.lit(True), before=8, count=2) == {"user": "a", "count": 10 if after else 5}


def test_zeros_and_nans_are_grouped_as_spark_groups_them(spark):
    rows = [(f"u{n % 3}", text) for n, text in enumerate(["0.0", "-0.0", "1.5", "nan", "-nan", "-1.5", "-0.0"] * 6)]
    kinds = {"in-place": ("user", "price"), "repartitioned": ("price",)}

    def with_nans(stream):
        nan = F.lit(float("nan"))
        price = F.when(F.col("text") == "nan", nan).when(F.col("text") == "-nan", -nan).otherwise(F.col("price"))
        return stream.withColumn("price", price)

    def as_text(counts, keys):
        return counts.select(*keys[:-1], F.col("price").cast("string").alias("price"), "n")

    builder = StreamsBuilder()
    prices = with_nans(builder.stream("prices", key=String("user"), value=Json("text string, price double")))
    for sink, keys in kinds.items():
        as_text(prices.groupBy(*keys).agg(F.count("*").alias("n")), keys).to(sink)
    values = [(user, text, float(text)) for user, text in rows]
    batch = with_nans(spark.createDataFrame(values, "user string, text string, price double"))
    config = {"max.batch.records": 5}
    with TopologyTestDriver(builder.build(), config, spark=spark, partitions=3, batch="all") as driver:
        # JSON has no NaN, and Python's writer keeps the sign of a zero.
        piped = ((user, {"text": text, "price": 0.0 if "nan" in text else float(text)}) for user, text in rows)
        driver.create_input_topic("prices").pipe_rows(piped)
        for sink, keys in kinds.items():
            counted = as_text(batch.groupBy(*keys).agg(F.count("*").alias("n")), keys)
            expected = sorted(tuple(row.asDict().values()) for row in counted.collect())
            assert not any("-0.0" in row for row in expected), "Spark makes one group of both zeros"
            assert sorted(tuple(row.values()) for row in newest(driver, sink).values()) == expected, sink

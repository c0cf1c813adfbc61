"""Records that a pipeline goes on without: left out, counted, and kept in the dead letter topic."""

import re

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

LETTERS = "letters"
UNDECODED = {
    "deserialization.exception.handler": "log-and-continue",
    "errors.dead.letter.queue.topic.name": LETTERS,
}


def orders_of(builder):
    return builder.stream("orders", key=String("user"), value=Json("amount int, note string"))


def driven(spark, build, config, **options):
    builder = StreamsBuilder()
    build(orders_of(builder))
    return TopologyTestDriver(builder.build(), config, spark=spark, **options)


def said(letter, name):
    return dict(letter.headers)[f"__streams.errors.{name}"].decode()


def test_what_does_not_decode_is_kept_with_its_key_headers_and_reason(spark):
    def build(orders):
        orders.select("user", "note").to("notes", value=Json())
        orders.groupBy("user").count().to("counts", value=Json())

    with driven(spark, build, UNDECODED, batch="all", partitions=2) as driver:
        orders = driver.create_input_topic("orders")
        orders.pipe_input("ada", {"amount": 1, "note": "x"}, 1000)
        orders.pipe_input("ada", b"no json", 2000, headers=[("trace", b"7"), ("empty", None)])
        # What nobody reads is decoded all the same: so all legs leave the same records out.
        orders.pipe_input("ada", {"amount": "two", "note": "y"}, 3000)
        orders.pipe_input("ada", {"amount": 3, "note": "z"}, 4000)
        assert driver.create_output_topic("notes").read_rows() == [{"user": "ada", "note": n} for n in "xz"]
        assert driver.create_output_topic("counts").read_rows()[-1] == {"user": "ada", "count": 2}
        first, second = driver.create_output_topic(LETTERS, key=String()).read_records()
        assert (first.key, first.value, first.timestamp) == ("ada", b"no json", 2000)
        assert first.headers[:2] == (("trace", b"7"), ("empty", None))
        assert [said(first, name) for name in ("topic", "offset")] == ["orders", "1"]
        assert said(first, "exception") == "sparkrelay.errors.SerializationException"
        assert "JSON" in said(first, "message")
        assert said(second, "offset") == "2"
        orders.pipe_input("ada", b"nor this", 5000)
        [third] = driver.create_output_topic(LETTERS).read_records()[2:]
        assert third.value == b"nor this"


FAILING = {"processing.exception.handler": "log-and-continue", "errors.dead.letter.queue.topic.name": LETTERS}


def tenth(amount):
    return 10 // amount


@pytest.mark.long
@pytest.mark.parametrize(("partitions", "bad"), [(1, {0, 1, 11}), (3, {7})])
def test_the_record_that_makes_a_function_fail_is_found_among_others(spark, partitions, bad):
    def build(orders):
        computed = F.udf(tenth, "int")("amount").alias("tenth")
        orders.select("user", computed).where("tenth >= 0").groupBy("user").count().to("counts", value=Json())

    with driven(spark, build, FAILING, batch="all", partitions=partitions) as driver:
        orders = driver.create_input_topic("orders")
        orders.pipe_rows((f"u{n % 3}", {"amount": 0 if n in bad else n + 1, "note": str(n)}) for n in range(12))
        newest = {row["user"]: row["count"] for row in driver.create_output_topic("counts").read_rows()}
        good = [f"u{n % 3}" for n in range(12) if n not in bad]
        assert newest == {user: good.count(user) for user in set(good)}
        letters = driver.create_output_topic(LETTERS, value=Json()).read_records()
        assert sorted(int(letter.value["note"]) for letter in letters) == sorted(bad)
        assert {said(letter, "exception") for letter in letters} == {"ZeroDivisionError"}
        assert re.fullmatch(r".* by zero \(.*, in tenth\)", said(letters[0], "message"))
        assert "Traceback" in said(letters[0], "stacktrace")


@pytest.mark.long
def test_what_spark_itself_raises_over_a_record_is_set_aside_too_behind_a_repartition_as_well(spark):
    def build(orders):
        numbers = orders.repartition("note").select(F.expr("cast(note as int) as n"))
        numbers.groupBy("n").count().to("counts", value=Json())

    with driven(spark, build, FAILING, batch="all") as driver:
        orders = driver.create_input_topic("orders")
        orders.pipe_rows(("ada", {"amount": 1, "note": note}) for note in ("1", "two", "2"))
        rows = driver.create_output_topic("counts").read_rows()
        assert sorted(row["n"] for row in rows) == [1, 2]
        [letter] = driver.create_output_topic(LETTERS).read_records()
        assert said(letter, "exception") == "CAST_INVALID_INPUT"
        assert said(letter, "topic").endswith("-repartition")
        assert said(letter, "offset") == "1"


def test_a_record_is_left_out_of_the_table_too_where_a_step_behind_that_fails(spark):
    def build(orders):
        counts = orders.groupBy("user").count(name="counts").to_stream()
        counts.where("if(count = 3, raise_error('three'), true)").to("counts-so-far", value=Json())

    with driven(spark, build, FAILING) as driver:
        orders = driver.create_input_topic("orders")
        orders.pipe_rows((user, {"amount": 1, "note": str(n)}) for n, user in enumerate("aaabab"))
        rows = driver.create_output_topic("counts-so-far").read_rows()
        assert [(row["user"], row["count"]) for row in rows] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
        letters = driver.create_output_topic(LETTERS, value=Json()).read_records()
        assert [letter.value["note"] for letter in letters] == ["2", "4"], "the next one would be the third, too"
        assert {said(letter, "exception") for letter in letters} == {"USER_RAISED_EXCEPTION"}
        assert {row["user"]: row["count"] for row in driver.store("counts")} == {"a": 2, "b": 2}


def test_a_record_of_which_something_comes_that_cannot_be_written_is_set_aside(spark):
    def build(orders):
        orders.select("user", F.expr("unhex(note) as data")).selectExpr("user", "cast(data as string) as text").to(
            "texts", value=Json()
        )

    config = {"production.exception.handler": "log-and-continue", "errors.dead.letter.queue.topic.name": LETTERS}
    with driven(spark, build, config, batch="all") as driver:
        orders = driver.create_input_topic("orders")
        orders.pipe_rows(("ada", {"amount": 1, "note": note}) for note in ("61", "ff", "62"))
        assert [row["text"] for row in driver.create_output_topic("texts").read_rows()] == ["a", "b"]
        [letter] = driver.create_output_topic(LETTERS, value=Json()).read_records()
        assert letter.value["note"] == "ff"
        assert "not UTF-8" in said(letter, "message")


def test_without_a_topic_records_are_skipped_and_without_a_handler_they_end_the_pipeline(spark):
    def build(orders):
        orders.select("user", F.expr("10 div amount as tenth")).to("out", value=Json())

    with driven(spark, build, {"processing.exception.handler": "log-and-continue"}) as driver:
        orders = driver.create_input_topic("orders")
        for amount in (1, 0, 2):
            orders.pipe_input("ada", {"amount": amount})
        assert [row["tenth"] for row in driver.create_output_topic("out").read_rows()] == [10, 5]
    with driven(spark, build, {"max.batch.retries": 0}) as driver, pytest.raises(JobFailed, match="DIVIDE_BY_ZERO"):
        driver.create_input_topic("orders").pipe_input("ada", {"amount": 0})


def test_headers_are_read_changed_carried_through_a_repartition_topic_and_written(spark):
    def build(orders):
        added = F.array(F.struct(F.lit("seen").alias("key"), F.lit("yes").cast("binary").alias("value")))
        given = F.coalesce("kafka.headers", F.array().cast("array<struct<key:string,value:binary>>"))
        with_headers = orders.withColumn("given", F.concat(given, added)).drop("kafka")
        with_headers.repartition("note").select("note", "given").to("out", key="note", headers="given")

    with driven(spark, build, {}) as driver:
        orders = driver.create_input_topic("orders")
        orders.pipe_input("ada", {"amount": 1, "note": "a"}, headers=[("trace", b"\x00\xff"), ("trace", None)])
        orders.pipe_input("ada", {"amount": 1, "note": "b"})
        first, second = driver.create_output_topic("out").read_records()
        assert first.headers == (("trace", b"\x00\xff"), ("trace", None), ("seen", b"yes"))
        assert second.headers == (("seen", b"yes"),)
        assert first.value == {"note": "a"}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda orders: orders.to("out", headers="user"), "writes column 'user' .string. as the message headers"),
        (lambda orders: orders.to("out", headers="nothing"), "writes the headers 'nothing', but the columns are"),
        (lambda orders: orders.to("out", headers=F.lit(1)), "is the name of a column; make it first"),
    ],
)
def test_headers_that_are_none_are_refused(spark, build, message):
    with pytest.raises(TopologyException, match=message):
        driven(spark, build, {})


def test_a_batch_function_and_skipping_what_fails_do_not_go_together(spark):
    with pytest.raises(TopologyException, match=r"foreachBatch.*processing\.exception\.handler"):
        driven(spark, lambda orders: orders.foreachBatch(lambda rows, id_: None), FAILING)

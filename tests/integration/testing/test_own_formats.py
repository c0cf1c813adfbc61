"""Formats of a user's own, and Arrow's, through a pipeline: read, grouped, written, and what does not decode."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from sparkrelay import Arrow, CustomFormat, Json, Raw, StreamsBuilder, String
from sparkrelay.errors import SerializationException, TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def csv(**overwritten):
    """Return a class that no worker can import."""

    class Csv(CustomFormat):
        schema = "user string, amount bigint"

        def __init__(self, separator=","):
            self.separator = separator

        def decode(self, values):
            parts = pc.split_pattern(values.cast(pa.string()), self.separator)
            rows = [{"user": user, "amount": int(amount)} for user, amount in parts.to_pylist()]
            return pa.RecordBatch.from_pylist(rows, pa.schema([("user", pa.string()), ("amount", pa.int32())]))

        def encode(self, rows):
            columns = [rows.column(name).cast(pa.string()) for name in ("user", "amount")]
            return pc.binary_join_element_wise(*columns, self.separator)

    for name, its in overwritten.items():
        setattr(Csv, name, its)
    return Csv


def test_a_format_of_one_s_own_is_read_grouped_and_written(spark):
    form = csv()
    builder = StreamsBuilder()
    rows = builder.stream("rows", key=String("key"), value=form())
    rows.where("amount > 1").to("copies", value=form(";"))
    rows.groupBy("user").agg(F.sum("amount").alias("amount"), name="sums").to("sums", value=form("="))
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        source = driver.create_input_topic("rows")
        source.pipe_rows([("k", b"ada,1"), ("k", {"user": "bob", "amount": 2}), ("k", None), ("k", b"ada,3")])
        copies = driver.create_output_topic("copies", value=Raw())
        assert copies.read_rows() == [b"bob;2", b"ada;3"]
        assert sorted(driver.create_output_topic("sums").read_rows(), key=str) == [
            {"user": "ada", "amount": 4},
            {"user": "bob", "amount": 2},
        ]


def test_what_it_cannot_read_is_kept(spark):
    builder = StreamsBuilder()
    builder.stream("rows", key=String("key"), value=csv()()).to("copies", value=Json())
    config = {
        "deserialization.exception.handler": "log-and-continue",
        "errors.dead.letter.queue.topic.name": "letters",
    }
    with TopologyTestDriver(builder.build(), config, spark=spark, batch="all") as driver:
        driver.create_input_topic("rows").pipe_rows([("k", b"ada,1"), ("k", b"ada"), ("k", b"bob,2"), ("k", b"bob,x")])
        assert [row["amount"] for row in driver.create_output_topic("copies").read_rows()] == [1, 2]
        letters = driver.create_output_topic("letters", value=Raw()).read_records()
        assert [letter.value for letter in letters] == [b"ada", b"bob,x"]
        headers = dict(letters[1].headers)
        assert headers["__streams.errors.offset"] == b"3"
        assert b"Csv.decode() raised ValueError: invalid literal" in headers["__streams.errors.message"]


def test_the_record_that_fails_is_named(spark):
    builder = StreamsBuilder()
    builder.stream("rows", key=String("key"), value=csv()()).to("copies", value=Json())
    reason = r"record rows-0 at offset 1 does not decode: Csv\.decode\(\) raised ValueError"
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        driver.create_input_topic("rows").pipe_rows([("k", b"ada,1"), ("k", b"ada,x")])
        with pytest.raises(SerializationException, match=reason):
            driver.process()


def test_a_class_that_is_wrong_is_named(spark):
    def decode(self, values):
        return pa.RecordBatch.from_pydict({"user": ["a"]}) if len(values) else csv()().decode(values)

    builder = StreamsBuilder()
    builder.stream("rows", key=String("key"), value=csv(decode=decode)()).to("copies", value=Json())
    with (
        TopologyTestDriver(builder.build(), spark=spark) as driver,
        pytest.raises(SerializationException, match=r"rows-0 from offset 0 on do not decode: Csv\.decode\(\) returned"),
    ):
        driver.create_input_topic("rows").pipe_input("k", b"ada,1")


def test_a_row_that_cannot_be_written_is_named(spark):
    def encode(self, rows):
        if None in rows.column("user").to_pylist():
            raise ValueError("no user")
        return rows.column("user")

    builder = StreamsBuilder()
    builder.stream("rows", key=String("key"), value=Json("user string")).to("copies", value=csv(encode=encode)())
    with (
        TopologyTestDriver(builder.build(), spark=spark) as driver,
        pytest.raises(SerializationException, match=r"Csv\.encode\(\) raised ValueError: no user"),
    ):
        driver.create_input_topic("rows").pipe_rows([("k", {"user": "a"}), ("k", {})])


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (csv(schema=None)(), r'Csv\(\) of a stream needs a schema, such as schema="user string'),
        (csv(schema="no such type at all")(), r"is not a schema"),
        (csv(decode=lambda self, values: values)(), r"Csv\.decode\(\) returned an array of binary; it must be"),
        (csv(schema="other string")(), r"Csv\.decode\(\) returned the columns user, amount, but .* has 'other'"),
        (csv(decode=CustomFormat.decode)(), r"Csv has no decode\(\)"),
    ],
)
def test_a_class_that_cannot_be_is_refused(spark, form, reason):
    builder = StreamsBuilder()
    with pytest.raises(TopologyException, match=rf"test_own_formats.py:\d+: .*{reason}"):
        builder.stream("rows", value=form)


def test_rows_that_it_cannot_write_are_refused(spark):
    builder = StreamsBuilder()
    builder.stream("rows", value=Json("user string")).to("copies", value=csv()())
    with pytest.raises(TopologyException, match=r"to\('copies'\): Csv\.encode\(\) raised KeyError"):
        TopologyTestDriver(builder.build(), spark=spark)


def test_arrow_is_read_grouped_and_written(spark):
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=Arrow("amount bigint, tags array<string>"))
    orders.to("copies", value=Arrow())
    orders.groupBy("user").agg(F.sum("amount").alias("total"), name="totals").to("totals", value=Arrow())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        rows = [{"amount": 1, "tags": ["a"]}, {"amount": 2, "tags": None}]
        driver.create_input_topic("orders").pipe_rows([("ada", row) for row in rows])
        copies = driver.create_output_topic("copies").read_rows()
        assert copies == [{"user": "ada", **row} for row in rows]
        assert driver.create_output_topic("totals").read_rows() == [{"user": "ada", "total": 3}]


def test_a_record_s_rows_in_arrow_are_exploded_and_put_together(spark):
    builder = StreamsBuilder()
    schema = StructType().add("sku", StringType()).add("n", LongType())
    orders = builder.stream("orders", key=String("user"), value=Arrow(schema, column="rows"))
    orders.to("copies", value=Arrow(column="rows"))
    orders.select("user", F.explode("rows").alias("row")).select("user", "row.*").to("items", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        rows = [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]
        source = driver.create_input_topic("orders")
        source.pipe_rows([("ada", rows), ("bob", []), ("bob", None)])
        assert driver.create_output_topic("copies").read_rows() == [rows, [], None]
        items = driver.create_output_topic("items").read_rows()
        assert items == [{"user": "ada", **row} for row in rows]


def test_arrow_s_rows_are_an_array_of_structs(spark):
    builder = StreamsBuilder()
    builder.stream("rows", value=Json("user string")).to("copies", value=Arrow(column="user"))
    with pytest.raises(
        TopologyException, match=r"'user' as Arrow\(column='user'\), which takes an array of structs; it is"
    ):
        TopologyTestDriver(builder.build(), spark=spark)

"""Avro through a pipeline: keys and values, flat and nested, read, grouped and written."""

import datetime as dt
import decimal

import pytest
from pyspark.sql import functions as F

from sparkrelay import Avro, Boolean, Double, Float, Short, StreamsBuilder, String, Uuid
from sparkrelay.errors import SerializationException, TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}],
                },
            },
        },
        {"name": "tags", "type": {"type": "map", "values": "string"}, "default": {}},
    ],
}
KEY = Avro('{"type": "record", "name": "Key", "fields": [{"name": "shop", "type": "string"}]}')
TOTAL = Avro(
    {
        "type": "record",
        "name": "Total",
        "fields": [
            {"name": "shop", "type": "string"},
            {
                "name": "total",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}],
            },
            {"name": "note", "type": "string", "default": "-"},
        ],
    }
)


def order(number, **more):
    row = {
        "id": number,
        "amount": decimal.Decimal(number) / 4,
        "time": dt.datetime(2026, 1, 1, 0, 0, number, tzinfo=dt.UTC),
        "items": [{"sku": f"s{item}", "n": item} for item in range(number % 3)],
    }
    return {**row, **more}


def test_keys_and_values_are_read_grouped_and_written(spark):
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=KEY, value=Avro(ORDER), timestamp="time")
    orders.where("size(items) > 0").drop("shop").to("large", value=Avro(ORDER))
    orders.groupBy("shop").agg(F.sum("amount").alias("total"), name="totals").to("totals", key=KEY, value=TOTAL)
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        source = driver.create_input_topic("orders")
        source.pipe_rows([({"shop": "a" if n % 2 else "b"}, order(n, tags={"n": str(n)})) for n in range(1, 6)])
        source.pipe_input({"shop": "a"}, None)
        large = driver.create_output_topic("large").read_records()
        # A map is a list of its entries, as in Arrow.
        assert [record.value for record in large] == [
            {**order(n), "user": None, "tags": [("n", str(n))]} for n in (1, 2, 4, 5)
        ]
        assert [record.timestamp for record in large] == [1767225600000 + 1000 * n for n in (1, 2, 4, 5)]
        totals = driver.create_output_topic("totals").read_records()
        assert {record.key["shop"]: record.value for record in totals} == {
            "a": {"shop": "a", "total": decimal.Decimal("2.25"), "note": "-"},
            "b": {"shop": "b", "total": decimal.Decimal("1.50"), "note": "-"},
        }


def test_what_does_not_decode_is_named_or_skipped(spark):
    builder = StreamsBuilder()
    builder.stream("orders", key=String("shop"), value=Avro(ORDER)).select("id").to("ids")
    topology = builder.build()
    with TopologyTestDriver(topology, spark=spark) as driver:  # noqa: SIM117 - it must be closed
        with pytest.raises(
            SerializationException, match=r"orders-0 at offset 0 does not decode: field 'user': the union"
        ):
            driver.create_input_topic("orders").pipe_input("a", b"\x02\x05")
    config = {"deserialization.exception.handler": "log-and-continue"}
    with TopologyTestDriver(topology, config, spark=spark) as driver:
        source = driver.create_input_topic("orders")
        source.pipe_rows([("a", b"\x02\x05"), ("a", order(7))])
        assert driver.create_output_topic("ids").read_rows() == [{"id": 7}]


def test_columns_that_a_schema_does_not_take_are_refused_when_the_pipeline_is_built(spark):
    builder = StreamsBuilder()
    builder.stream("orders", value=Avro(ORDER)).to("out", value=TOTAL)
    with pytest.raises(
        TopologyException, match=r"to\('out'\): the Avro schema has no field 'id', but shop, total, note"
    ):
        TopologyTestDriver(builder.build(), spark=spark)
    builder = StreamsBuilder()
    union = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}
    with pytest.raises(
        TopologyException, match=r"test_avro.py:\d+: field 'a' of the Avro schema is a union of int, str"
    ):
        builder.stream("in", value=Avro(union))


def test_what_kafka_s_plain_serializers_write(spark):
    builder = StreamsBuilder()
    for form in (Short, Float, Double, Boolean, Uuid):
        name = form.__name__.lower()
        builder.stream(name, key=form("k"), value=form("v")).to(f"{name}-out", key=form("k"), value=form("v"))
    shorts = builder.stream("shorts", key=Short("k"))
    shorts.groupBy("k").count().to("counts")
    values = {Short: -7, Float: 1.5, Double: -0.1, Boolean: True, Uuid: "00112233-4455-6677-8899-aabbccddeeff"}
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        for form, value in values.items():
            driver.create_input_topic(form.__name__.lower()).pipe_input(value, value)
        driver.create_input_topic("shorts").pipe_rows([(1, b""), (1, b""), (2, b"")])
        for form, value in values.items():
            (record,) = driver.create_output_topic(f"{form.__name__.lower()}-out").read_records()
            assert (record.key, record.value) == (value, value)
        rows = driver.create_output_topic("counts").read_rows()
        assert sorted((row["k"], row["count"]) for row in rows) == [(1, 2), (2, 1)]

"""Rows with arrays, maps and structs of them: through repartition topics and tables, as Spark batch has them."""

import decimal
import json
import random

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, Raw, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

GOODS = "tags array<string>, attributes map<string, struct<a: bigint, b: array<double>>>, price decimal(20,4)"
ORDER = (
    "item string, shop string, n bigint, notes array<struct<text: string, at: timestamp>>, "
    "grid array<array<decimal(38,10)>>, extra map<string, map<string, array<date>>>"
)
SHOPS = "hours map<string, array<struct<open: int, shut: int>>>, place struct<lat: double, words: array<string>>"


def maybe(dice, value, chance=0.25):
    return None if dice.random() < chance else value


def some(dice, make):
    return [maybe(dice, make(), 0.2) for _ in range(dice.choice((0, 1, 3)))]


def named(dice, make):
    return {name: maybe(dice, make(), 0.2) for name in dice.sample("zyxab", dice.choice((0, 1, 3)))}


def goods_of(dice):
    return {
        "tags": maybe(dice, some(dice, lambda: dice.choice(("", "ü", "a\0b", "tag")))),
        "attributes": maybe(
            dice,
            named(
                dice,
                lambda: {
                    "a": maybe(dice, dice.getrandbits(60)),
                    "b": maybe(dice, some(dice, lambda: dice.randrange(99) / 4)),
                },
            ),
        ),
        "price": maybe(dice, decimal.Decimal(dice.randrange(-(10**19), 10**19)).scaleb(-4)),
    }


def order_of(dice):
    def note():
        return {
            "text": maybe(dice, "note"),
            "at": maybe(dice, f"2026-0{dice.randrange(1, 9)}-01T0{dice.randrange(9)}:00:00.123Z"),
        }

    def number():
        return decimal.Decimal(dice.randrange(-(10**37), 10**37)).scaleb(-10, decimal.Context(prec=40))

    return {
        "item": f"item-{dice.randrange(8)}",
        "shop": maybe(dice, f"shop-{dice.randrange(4)}"),
        "n": maybe(dice, dice.randrange(9)),
        "notes": maybe(dice, some(dice, note)),
        "grid": maybe(dice, some(dice, lambda: some(dice, number))),
        "extra": maybe(dice, named(dice, lambda: named(dice, lambda: some(dice, lambda: "2026-01-31")))),
    }


def shop_of(dice):
    return {
        "hours": maybe(dice, named(dice, lambda: some(dice, lambda: {"open": maybe(dice, 8), "shut": 20}))),
        "place": maybe(dice, {"lat": maybe(dice, 1.5), "words": maybe(dice, some(dice, lambda: "word"))}),
    }


def text(value):
    # (Python has no JSON for decimals.)
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(name)}:{text(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(text, value))}]"
    return f"{value:f}" if isinstance(value, decimal.Decimal) else json.dumps(value)


def read(values):
    """Return rows of JSON so that they can be compared, numbers as they are written."""
    return sorted(json.dumps(json.loads(value, parse_float=str), sort_keys=True) for value in values)


def as_batch(spark, rows, key, schema):
    """Return rows as Spark reads them."""
    frame = spark.createDataFrame([(name, text(value)) for name, value in rows], f"{key} string, value string")
    return frame.select(F.from_json("value", schema).alias("v"), key).select(key, "v.*")


def written(frame):
    options = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
    return read(row[0] for row in frame.select(F.to_json(F.struct("*"), options)).collect())


def found(driver, topic):
    return read(record.value for record in driver.create_output_topic(topic, value=Raw()).read_records())


@pytest.fixture(params=["UTC", "America/New_York"])
def zoned(spark, request):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def test_they_are_what_spark_batch_makes_of_them(zoned):
    spark, dice = zoned, random.Random(7)
    goods = [(f"item-{number}", goods_of(dice)) for number in range(6)]
    shops = [(f"shop-{number}", shop_of(dice)) for number in range(3)]
    orders = [(f"order-{number}", order_of(dice)) for number in range(60)]

    builder = StreamsBuilder()
    table = builder.table("goods", key=String("item"), value=Json(GOODS), name="goods")
    everywhere = builder.global_table("shops", key=String("shop"), value=Json(SHOPS), name="shops")
    stream = builder.stream("orders", key=String("id"), value=Json(ORDER))
    # Of types that JSON cannot be read to, and columns that are never null.
    made = stream.withColumn("by_n", F.expr("map(coalesce(n, 0), notes)")).withColumn("both", F.array("id", "item"))
    joined = made.join(table, "item", "left").join(everywhere, "shop", "left")
    joined.to("joined", value=Json())
    made.repartition("id").to_table(name="orders").to("orders-out", value=Json())
    table.to("goods-out", value=Json())

    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=2) as driver:
        topics = {name: driver.create_input_topic(name) for name in ("goods", "shops", "orders")}

        def pipe(topic, rows, first=0):
            for number, (key, value) in enumerate(rows):
                topics[topic].pipe_input(key, text(value).encode(), first + number)
            driver.process()

        pipe("shops", shops)
        pipe("goods", goods)
        pipe("orders", orders[:20], 100)
        kept = [driver.store(name) for name in ("goods", "orders", "shops")]
        driver.restart(from_changelog=True)
        assert [driver.store(name) for name in ("goods", "orders", "shops")] == kept
        pipe("orders", orders[20:40], 200)
        driver.restart()
        # Equal rows go no further, from wherever they come.
        pipe("goods", goods, 300)
        pipe("orders", orders[40:], 400)
        results = {name: found(driver, name) for name in ("joined", "orders-out", "goods-out")}

    in_batch = as_batch(spark, orders, "id", ORDER)
    in_batch = in_batch.withColumn("by_n", F.expr("map(coalesce(n, 0), notes)")).withColumn(
        "both", F.array("id", "item")
    )
    with_goods = in_batch.join(as_batch(spark, goods, "item", GOODS), "item", "left")
    assert results["joined"] == written(with_goods.join(as_batch(spark, shops, "shop", SHOPS), "shop", "left"))
    assert results["orders-out"] == written(in_batch)
    assert results["goods-out"] == written(as_batch(spark, goods, "item", GOODS))


def test_a_changed_element_is_a_change_and_a_deleted_row_goes_on_as_it_was(spark):
    builder = StreamsBuilder()
    table = builder.table("goods", key=String("item"), value=Json(GOODS))
    table.where("tags is null or size(tags) < 3").to("few", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, few = driver.create_input_topic("goods"), driver.create_output_topic("few", key=String())

        def out():
            return [record.value for record in few.read_records()]

        row = {"tags": ["a"], "attributes": {"x": {"a": 1, "b": [1.5, None]}, "y": None}, "price": 1.25}
        topic.pipe_input("i", row, 1)
        assert out() == [{"item": "i", **row}]
        topic.pipe_input("i", row, 2)
        assert out() == []
        other = {**row, "attributes": {"x": {"a": 1, "b": [1.5]}, "y": None}}
        topic.pipe_input("i", other, 3)
        assert out() == [{"item": "i", **other}]
        turned = {**other, "attributes": {"y": None, "x": {"a": 1, "b": [1.5]}}}
        topic.pipe_input("i", turned, 4)
        assert [list(value["attributes"]) for value in out()] == [["y", "x"]], "entries are kept in their order"
        topic.pipe_input("i", {**other, "tags": ["a", "b", "c"]}, 5)
        assert out() == [None]
        topic.pipe_input("i", other, 6)
        topic.pipe_input("i", None, 7)
        assert [value is None for value in out()] == [False, True]
        assert driver.store("goods-table") == []


def test_streams_find_rows_of_a_table_that_steps_have_made(spark):
    builder = StreamsBuilder()
    rows = builder.stream("rows", key=String("k"), value=Json("n int, l array<int>"))
    made = rows.select("k", F.expr("map(n, struct(l, array(map(n, n))))").alias("m"))
    table = made.to_table(name="made")
    builder.stream("asks", key=String("k"), value=Json("id int")).join(table, "k").select(
        "id", F.expr("m[id].l").alias("l")
    ).to("out")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("rows").pipe_input("a", {"n": 3, "l": [1, None]})
        asks = driver.create_input_topic("asks")
        asks.pipe_input("a", {"id": 3})
        asks.pipe_input("a", {"id": 4})
        asks.pipe_input("b", {"id": 3})
        assert driver.create_output_topic("out").read_rows() == [{"id": 3, "l": [1, None]}, {"id": 4}]

"""Joins of tables by a foreign key on the test driver, beside a plain model and Spark batch over the newest rows."""

import random

import pytest
from pyspark.sql import functions as F
from tests.marks import first_of

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def orders_and_customers(how="inner", **more):
    builder = StreamsBuilder()
    orders = builder.table("orders", key=String("order_id"), value=Json("customer string, amount long"), **more)
    customers = builder.table("customers", key=String("customer"), value=Json("name string"), **more)
    orders.join(customers, "customer", how).to("out", value=Json())
    return builder.build()


def read(topic):
    return [
        (r.key, None if r.value is None else {n: v for n, v in r.value.items() if v is not None}, r.timestamp)
        for r in topic.read_records()
    ]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_joined_row_follows_both_tables(spark, how):
    with TopologyTestDriver(orders_and_customers(how), spark=spark) as driver:
        topics = {name: driver.create_input_topic(name) for name in ("orders", "customers")}
        out = driver.create_output_topic("out", key=String())

        def put(topic, key, value, at):
            topics[topic].pipe_input(key, value, at)
            return read(out)

        def row(order, customer, amount, name=None):
            return {"order_id": order, "customer": customer, "amount": amount} | ({"name": name} if name else {})

        alone = [] if how == "inner" else [("o1", row("o1", "ada", 1), 1)]
        assert put("orders", "o1", {"customer": "ada", "amount": 1}, 1) == alone
        assert put("customers", "ada", {"name": "Ada"}, 5) == [("o1", row("o1", "ada", 1, "Ada"), 5)]
        assert put("orders", "o2", {"customer": "ada", "amount": 2}, 3) == [("o2", row("o2", "ada", 2, "Ada"), 5)]
        assert put("customers", "ada", {"name": "A."}, 6) == [
            ("o1", row("o1", "ada", 1, "A."), 6),
            ("o2", row("o2", "ada", 2, "A."), 6),
        ]
        driver.restart(from_changelog=True)
        assert put("customers", "bob", {"name": "Bob"}, 7) == []
        assert put("orders", "o1", {"customer": "bob", "amount": 1}, 8) == [("o1", row("o1", "bob", 1, "Bob"), 8)]
        assert put("customers", "ada", {"name": "Ada"}, 9) == [("o2", row("o2", "ada", 2, "Ada"), 9)]
        assert put("customers", "ada", {"name": "Ada"}, 10) == [], "an equal row is no change"
        alone = [("o1", None, 11)] if how == "inner" else [("o1", {"order_id": "o1", "amount": 1}, 11)]
        assert put("orders", "o1", {"amount": 1}, 11) == alone
        alone = [("o2", None, 12)] if how == "inner" else [("o2", row("o2", "ada", 2), 12)]
        assert put("customers", "ada", None, 12) == alone
        assert put("orders", "o2", None, 13) == ([] if how == "inner" else [("o2", None, 13)])
        assert put("orders", "o2", None, 14) == []


def joined(tables, how):
    """Return what a plain model has of both tables: key -> row."""
    rows = {}
    for key, order in tables["orders"].items():
        found = tables["customers"].get(order["customer"])
        if found is not None or how == "left":
            row = {"order_id": key, **order, **(found or {})}
            rows[key] = {name: value for name, value in row.items() if value is not None}
    return rows


def changes(rng, count):
    """Yield changes of both tables; a row's number and name rise with time."""
    for at in range(count):
        value = {"name": f"{at:04}"} if rng.random() < 0.75 else None
        if rng.random() < 0.4:
            yield "customers", rng.choice("abc"), value, at
            continue
        if value is not None:
            value = {"customer": rng.choice(["a", "b", "c", "d", None]), "amount": at}
        yield "orders", rng.choice("uvwxy"), value, at


def put(tables, topics, change):
    name, key, value, at = change
    tables[name].pop(key, None)
    if value is not None:
        tables[name][key] = value
    topics[name].pipe_input(key, value, at)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_record_by_record_each_change_makes_what_a_plain_model_has(spark, how):
    rng = random.Random(how)
    with TopologyTestDriver(orders_and_customers(how), spark=spark, partitions=2) as driver:
        topics = {name: driver.create_input_topic(name) for name in ("orders", "customers")}
        out = driver.create_output_topic("out", key=String())
        tables, before = {name: {} for name in topics}, {}
        for change in changes(rng, 25):
            put(tables, topics, change)
            now = joined(tables, how)
            found = read(out)
            expected = {key: now.get(key) for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
            assert {key: value for key, value, _ in found} == expected, change
            assert len(found) == len(expected), "each change is one"
            before = now


@pytest.mark.long
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_whatever_task_is_first_no_stale_answer_counts(spark, how, seed):
    """Tasks run in any order and are cut anywhere; some have a restart between."""
    rng = random.Random(f"{how} {seed}")
    tables, seen, newest = {"orders": {}, "customers": {}}, {}, {}
    config = {"max.batch.records": [1, 3, 1000][seed]}
    with TopologyTestDriver(orders_and_customers(how), config, spark=spark, partitions=3, batch="all") as driver:
        topics = {name: driver.create_input_topic(name) for name in tables}
        out = driver.create_output_topic("out", key=String())
        for part in range(3):
            in_any_order(driver, rng)
            for change in changes(rng, 40):
                name, key, value, at = change
                fresh = {n: f"{part}{v}" if n == "name" else v for n, v in value.items()} if value else None
                if fresh and "amount" in fresh:
                    fresh["amount"] += 1000 * part
                put(tables, topics, (name, key, fresh, at))
            for key, row, time in read(out):
                last = seen.get(key)
                assert row is not None or last is not None, "nothing was there to be deleted"
                if row is None:
                    # Of a left join, where the left table has no row.
                    newest[key] = 1000 * part + time if how == "left" else newest[key]
                else:
                    assert row["amount"] >= newest.get(key, -1), "an older row of the left table"
                    newest[key] = row["amount"]
                    if last is not None and row["amount"] == last["amount"]:
                        assert row.get("name", "~") != last.get("name", "~"), "an equal row"
                        assert row.get("name", "~") > last.get("name", "") or "name" not in row, "an older answer"
                seen[key] = row
            assert {key: row for key, row in seen.items() if row is not None} == joined(tables, how)
            driver.restart(from_changelog=part == 0)


def in_any_order(driver, rng):
    """Have some tasks run alone that all have input."""
    batches = driver._tasks._batches
    run = batches.run

    def some(plans, work, partitions):
        chosen = rng.sample(sorted(work), rng.randint(1, len(work)))
        return run(plans, {task: work[task] for task in chosen}, partitions)

    batches.run = some


def in_the_end(topic, key):
    """Return the rows that a table's topic holds in the end."""
    last = {}
    for record in topic.read_records():
        last[record.key] = record.value
    rows = (row for row in last.values() if row is not None)
    return {row[key]: {name: value for name, value in row.items() if value is not None} for row in rows}


def collected(frame, key):
    return {row[key]: {n: v for n, v in row.asDict().items() if v is not None} for row in frame.collect()}


def frame(spark, rows, topic, key, columns):
    """Return what a table holds in the end, as Spark sees it."""
    last = {k: value for name, k, value, _ in rows if name == topic}
    data = [{key: k, **value} for k, value in last.items() if value is not None]
    return spark.createDataFrame(data, f"{key} string, {columns}")


COLUMNS = {
    "lines": "order string, price double, tags array<string>",
    "orders": "customer string, amount long",
    "customers": "name string, manager string",
    "cities": "city string",
}
KEYS = {"lines": "line", "orders": "order", "customers": "customer", "cities": "customer"}


def any_row(rng, topic):
    number = rng.randrange(4)
    return {
        "lines": {"order": f"o{number}", "price": rng.choice([0.1, -0.0, None, 1e300]), "tags": [None, "x"] * number},
        "orders": {"customer": f"c{number}" if number else None, "amount": number},
        "customers": {"name": f"n{number}", "manager": f"c{number}"},
        "cities": {"city": f"city {number}"},
    }[topic]


@pytest.mark.long
@pytest.mark.parametrize("seed", first_of(range(4)))
def test_spark_batch_joins_the_newest_rows_alike(spark, seed):
    """Tables behind filters, of joins, of groups, and themselves joined by foreign keys, on either side."""
    rng = random.Random(f"batch {seed}")
    hows = [rng.choice(["inner", "left"]) for _ in range(4)]
    builder = StreamsBuilder()
    lines, orders, customers, cities = (
        builder.table(topic, key=String(KEYS[topic]), value=Json(columns)) for topic, columns in COLUMNS.items()
    )
    some = orders.where("amount > 0").withColumn("share", F.expr("10 / amount"))
    located = customers.join(cities, "customer", "left")
    bought = some.join(located, "customer", hows[0])
    bought.to("bought", value=Json())
    lines.join(bought, "order", hows[1]).to("sold", value=Json())
    managers = customers.selectExpr("customer AS manager", "name AS manager_name")
    customers.join(managers, "manager", hows[2]).to("managed", value=Json())
    # A group whose rows change, on the left; its own key is the manager, and the boss's one an aggregate.
    groups = builder.stream("calls", key=String("caller"), value=Json("customer string, price double"))
    called = groups.groupBy("caller").agg(F.max("customer").alias("customer"), F.avg("price").alias("price"))
    called.join(located, "customer", hows[3]).to("called", value=Json())
    rows, calls = [], []
    for at in range(80):
        topic = rng.choice([*COLUMNS, "calls"])
        key, value = f"{topic[0] if topic != 'cities' else 'c'}{rng.randrange(4)}", None
        if topic == "calls":
            value = {"customer": f"c{rng.randrange(4)}", "price": float(rng.randrange(9))}
            calls.append({"caller": key, **value})
        elif rng.random() < 0.8:
            value = any_row(rng, topic)
        rows.append((topic, key, value, at))
    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=1 + seed % 3) as driver:
        topics = {topic: driver.create_input_topic(topic) for topic in [*COLUMNS, "calls"]}
        for topic, key, value, at in rows:
            topics[topic].pipe_input(key, value, at)
            if rng.random() < 0.1:
                driver.process()
            if at == 40:
                driver.restart(from_changelog=bool(seed % 2))
        keys = {"bought": "order", "sold": "line", "managed": "customer", "called": "caller"}
        found = {name: in_the_end(driver.create_output_topic(name, key=String()), key) for name, key in keys.items()}
    tables = {topic: frame(spark, rows, topic, KEYS[topic], columns) for topic, columns in COLUMNS.items()}
    some = tables["orders"].where("amount > 0").withColumn("share", F.expr("10 / amount"))
    located = tables["customers"].join(tables["cities"], "customer", "left")
    bought = some.join(located, "customer", hows[0])
    managers = tables["customers"].selectExpr("customer AS manager", "name AS manager_name")
    called = spark.createDataFrame(calls, "caller string, customer string, price double").groupBy("caller")
    called = called.agg(F.max("customer").alias("customer"), F.avg("price").alias("price"))
    wanted = {
        "bought": bought,
        "sold": tables["lines"].join(bought, "order", hows[1]),
        "managed": tables["customers"].join(managers, "manager", hows[2]),
        "called": called.join(located, "customer", hows[3]),
    }
    for name, table in wanted.items():
        assert found[name] == collected(table, keys[name]), (name, hows)


@pytest.mark.long
def test_keys_of_several_columns_and_long_ones(spark):
    """A null in a part of a foreign key names nothing; keys longer than LMDB takes are found all the same."""
    builder = StreamsBuilder()
    left = builder.table("left", key=String("k"), value=Json("a string, b long, x double"))
    sales = builder.stream("sales", key=String("s"), value=Json("a string, b long"))
    counted = sales.groupBy("a", "b").agg(F.count("*").alias("n"))
    left.join(counted, ["b", "a"], "left").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        topics = {name: driver.create_input_topic(name) for name in ("left", "sales")}
        out = driver.create_output_topic("out", key=String())
        long = ["y" * 600 + end for end in ("1", "2")]
        for key, value in (
            *(("k1", {"a": long[0], "b": 1}), ("k2", {"a": long[1], "b": 1}), ("k" * 600, {"a": long[0], "b": 1})),
            *(("k3", {"a": "y", "b": 1}), ("k4", {"a": "y", "b": None})),
        ):
            topics["left"].pipe_input(key, value, 1)
        alone = [("k1", 0), ("k2", 0), ("k3", 0), ("k4", 0), ("k" * 600, 0)]
        assert sorted((key, row.get("n", 0)) for key, row, _ in read(out)) == alone

        def sold(a, b):
            topics["sales"].pipe_input("s", {"a": a, "b": b}, 2)
            return sorted((key, row["n"]) for key, row, _ in read(out))

        assert sold(long[0], 1) == [("k1", 1), ("k" * 600, 1)]
        assert sold(long[1], 1) == [("k2", 1)]
        assert sold("y", None) == []
        assert sold("y", 2) == []
        assert sold("y", 1) == [("k3", 1)]
        driver.restart(from_changelog=True)
        assert sold(long[0], 1) == [("k1", 2), ("k" * 600, 2)]


@pytest.mark.long
def test_what_is_joined_is_a_table_like_others(spark):
    """It is filtered, grouped and looked into; what passes no more is deleted."""
    builder = StreamsBuilder()
    orders = builder.table("orders", key=String("order_id"), value=Json("customer string, amount long"))
    customers = builder.table("customers", key=String("customer"), value=Json("name string"))
    both = orders.join(customers, "customer")
    both.where("amount > 1").to("large", key=String("order_id"), value=Json())
    both.groupBy("name").agg(F.sum("amount").alias("amount")).to("names", key=String("name"), value=Json())
    clicks = builder.stream("clicks", key=String("order_id"), value=Json("page string"))
    clicks.join(both, "order_id").select("page", "name").to("seen", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        topics = {name: driver.create_input_topic(name) for name in ("orders", "customers", "clicks")}
        outs = [driver.create_output_topic(name) for name in ("large", "names", "seen")]

        def put(topic, key, value):
            topics[topic].pipe_input(key, value, 1)
            return [[value and tuple(value.values()) for _, value, _ in read(out)] for out in outs]

        put("customers", "ada", {"name": "A"})
        put("customers", "bob", {"name": "B"})
        assert put("orders", "o1", {"customer": "ada", "amount": 2}) == [[("ada", "o1", 2, "A")], [("A", 2)], []]
        assert put("clicks", "o1", {"page": "p"}) == [[], [], [("p", "A")]]
        assert put("clicks", "o2", {"page": "p"}) == [[], [], []]
        large, names, _ = put("orders", "o1", {"customer": "bob", "amount": 3})
        assert (large, sorted(names, key=str)) == ([("bob", "o1", 3, "B")], [("B", 3), None])
        assert put("orders", "o1", {"customer": "bob", "amount": 1}) == [[None], [("B", 1)], []]
        assert put("customers", "bob", None) == [[], [None], []]
        assert put("clicks", "o1", {"page": "p"}) == [[], [], []]


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("client string, amount long", "name string", "`customer` cannot be resolved on the left side.*`client`"),
        ("customer string, name string", "NAME string", "two columns 'name' and 'NAME'; give one of them another name"),
        ("customer string", "order_id string", "two columns 'order_id'; give one of them another name"),
    ],
)
def test_what_does_not_go_together_is_refused(spark, left, right, message):
    builder = StreamsBuilder()
    orders = builder.table("orders", key=String("order_id"), value=Json(left))
    customers = builder.table("customers", key=String("customer"), value=Json(right))

    def build():
        orders.join(customers, "customer").to("out", value=Json())
        return builder.build()

    with pytest.raises(TopologyException, match=f"test_foreign_key_joins.py:[0-9]+: .*{message}"):
        TopologyTestDriver(build(), spark=spark)


def test_both_tables_may_have_columns_of_one_name(spark):
    """Also of the left one's key."""
    builder = StreamsBuilder()
    orders = builder.table("orders", key=String("order_id"), value=Json("customer string, name string"))
    customers = builder.table("customers", key=String("customer"), value=Json("NAME string, order_id string"))
    both = orders.join(customers, orders.customer == customers["customer"], "left")
    both.select(orders["order_id"], orders.name, customers["NAME"].alias("whose"), customers.order_id.alias("last")).to(
        "out", value=Json()
    )
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        driver.create_input_topic("orders").pipe_input("o1", {"customer": "ada", "name": "tea"})
        for name in ("Ada", "Countess"):
            driver.create_input_topic("customers").pipe_input("ada", {"NAME": name, "order_id": "o7"})
        rows = driver.create_output_topic("out").read_rows()
    assert rows[0] == {"order_id": "o1", "name": "tea"}
    assert rows[1:] == [
        {"order_id": "o1", "name": "tea", "whose": whose, "last": "o7"} for whose in ("Ada", "Countess")
    ]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("aggregate", "value"),
    [
        (lambda: (F.sum("n") / F.count("*")).alias("x"), 5.0),
        (lambda: F.count_distinct("n").alias("x"), 2),
    ],
)
def test_tables_whose_rows_no_store_holds_are_stored_by_the_equal_columns(spark, side, aggregate, value):
    builder = StreamsBuilder()
    key = "order_id" if side == "left" else "customer"
    groups = builder.stream("s", key=String(key), value=Json("n long, c string")).groupBy(key)
    if side == "left":
        orders = groups.agg(aggregate(), F.max("c").alias("customer"))
        customers = builder.table("customers", key=String("customer"), value=Json("name string"))
    else:
        orders = builder.table("orders", key=String("order_id"), value=Json("customer string"))
        customers = groups.agg(aggregate())
    orders.join(customers, "customer").to("out")
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        if side == "left":
            driver.create_input_topic("customers").pipe_input("ada", {"name": "Ada"})
        else:
            driver.create_input_topic("orders").pipe_input("o1", {"customer": "ada"})
        for n in (4, 6):
            driver.create_input_topic("s").pipe_input("o1" if side == "left" else "ada", {"n": n, "c": "ada"})
        row = driver.create_output_topic("out").read_rows()[-1]
    more = {"name": "Ada"} if side == "left" else {}
    assert row == {"order_id": "o1", "customer": "ada", "x": value, **more}

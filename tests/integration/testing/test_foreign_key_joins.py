"""Joins of tables by a foreign key on the test driver, beside a plain model and Spark batch over the newest rows."""

import random

import pytest

from sparkrelay import Json, StreamsBuilder, String
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


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("seed", range(3))
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

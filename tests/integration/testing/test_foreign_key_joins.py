"""Joins of tables by a foreign key on the test driver, beside a plain model and Spark batch over the newest rows."""

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

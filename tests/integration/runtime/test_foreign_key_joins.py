"""A join by a foreign key of real instances: tables cut differently, a move, and state from changelogs."""

import pytest

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def topics(make_topic):
    """Both tables' topics, and what is made of them."""
    return make_topic("orders", 3), make_topic("customers", 2), make_topic("both", 1)


@pytest.fixture
def start(instance, topics, tmp_path):
    """`start(state)` starts an instance with that state."""

    def run(state, **settings):
        builder = StreamsBuilder()
        orders = builder.table(topics[0], key=String("id"), value=Json("customer string, amount long"), name="orders")
        customers = builder.table(topics[1], key=String("customer"), value=Json("name string"), name="customers")
        orders.join(customers, "customer", "left").to(topics[2], key=String("id"), value=Json())
        streams = instance(builder, {"state.dir": str(tmp_path / state), **settings})
        streams.start()
        return streams

    return run


@pytest.mark.long
def test_answers_come_back_wherever_the_rows_are(start, topics, produce, wait_for_table):
    """The proof on a real broker; tests/integration/testing/test_foreign_key_joins.py has what rows are joined."""
    orders = {f"o{number}": {"customer": f"c{number % 4}", "amount": number} for number in range(12)}
    names = {f"c{number}": f"name {number}" for number in range(3)}

    def expected():
        rows = {}
        for order, row in orders.items():
            found = None if row is None else names.get(row.get("customer"))
            named = {} if found is None else {"name": found}
            rows[order.encode()] = None if row is None else {"id": order, **row, **named}
        return rows

    def change(table, topic, **changed):
        table.update(changed)
        rows = ((key, {"name": value} if isinstance(value, str) else value) for key, value in changed.items())
        produce(topic, list(rows))

    change(orders, topics[0], **orders)
    with start("one") as one:
        change(names, topics[1], **names)
        wait_for_table(topics[2], expected(), one)
        with start("other", **{"num.standby.replicas": 0}) as other:
            change(names, topics[1], c0="renamed", c1=None)
            change(orders, topics[0], o2={"customer": "c0", "amount": 9}, o3=None, o4={"amount": 1})
            wait_for_table(topics[2], expected(), other)
            assert one.exception() is None
    # A third one restores all four stores from their changelogs.
    change(names, topics[1], c3="new", c2="another")
    change(orders, topics[0], o5={"customer": "c3", "amount": 5}, o3={"customer": "c2", "amount": 3})
    with start("third") as third:
        wait_for_table(topics[2], expected(), third)
